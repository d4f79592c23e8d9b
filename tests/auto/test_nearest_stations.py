"""Kriging from the nearest readings: generalised least squares by whitening, universal kriging by hand, files."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from stations_by_hand import GIVEN, KM, NOISE, VARIANCE, covariance, made, universal_kriging
from vastgp import StationGP
from vastgp.auto.stations import nearest_kriging, process
from vastgp.auto.stations.nearest_kriging import NearestKriging, whitened
from vastgp.data.coordinates import chord_points
from vastgp.options import Nearest
from vastgp.solvers.neighbour_posterior import NeighbourPosterior

pytestmark = pytest.mark.little_work

NAMES = ["height", "coast"]
# Of so many readings each depends on all before it.
FEW = 30


def fitted(table, **more):
    return StationGP(method="nearest", **GIVEN).fit(table, "temp", covariates=NAMES, **more)


@pytest.fixture(scope="module")
def table():
    return made(FEW)


@pytest.fixture(scope="module")
def model(table):
    return fitted(table)


def test_with_all_readings_it_is_universal_kriging_by_hand(table, model):
    new = made(25, seed=1)
    new.loc[0, NAMES] = [
        50.0,
        -40.0,
    ]  # far beyond the covariates: their coefficients' errors are nearly all
    b, errors, mean, std = universal_kriging(table, new, NAMES)
    found = np.array([model.trend_[name] for name in NAMES])
    np.testing.assert_allclose(found[:, 0], b, rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], errors, rtol=1e-6)
    latent = model.predict(new, return_std="latent")
    np.testing.assert_allclose(latent["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(latent["std"], std, rtol=1e-5)
    np.testing.assert_allclose(model.predict(new)["std"], np.sqrt(std**2 + NOISE**2), rtol=1e-5)
    assert latent["std"][0] > 5.0 * VARIANCE**0.5
    assert isinstance(model.kriging_, NearestKriging) and model.kriging_.trend_readings == FEW


def test_known_errors_are_those_of_each_reading(table):
    errors = np.random.default_rng(4).uniform(0.1, 2.0, FEW)
    found = fitted(table.assign(error=errors), noise_std="error")
    new = made(9, seed=2)
    level = found.kriging_.model.standardizer_.y_mean  # sure readings count more in it
    b, of_b, mean, std = universal_kriging(table, new, NAMES, errors, level)
    trend = np.array([found.trend_[name] for name in NAMES])
    np.testing.assert_allclose(trend, np.column_stack([b, of_b]), rtol=1e-6)
    latent = found.predict(new, return_std="latent")
    np.testing.assert_allclose(latent["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(latent["std"], std, rtol=1e-5)


def posterior_of(table, columns):
    X = chord_points(table["lat"], table["lon"])
    noise = np.random.default_rng(5).uniform(0.05, 0.5, len(table))
    kernel = vastgp.Matern32(KM, VARIANCE)
    targets = table[columns].to_numpy(float)
    return NeighbourPosterior(kernel, X, targets, np.zeros_like(targets), 20, 1e-12, noise=noise)


def test_whitened_by_all_before_them_is_the_inverse_covariance():
    table = made(50)
    posterior = posterior_of(table, ["temp", *NAMES])
    found = whitened(posterior, np.random.default_rng(6).permutation(50), 49)
    A = covariance(table, table) + np.diag(posterior.noise)
    targets = posterior.mean_u
    np.testing.assert_allclose(found @ found.T, targets.T @ np.linalg.solve(A, targets), rtol=1e-7)


@pytest.mark.parametrize("near", [1, 6])
def test_whitened_by_the_nearest_before_them_is_by_hand(near):
    table = made(40)
    posterior = posterior_of(table, ["temp", "height"])
    order = np.random.default_rng(7).permutation(40)[:33]
    K, X = covariance(table, table), posterior.Z
    expected = []
    for place, i in enumerate(order):
        before = order[:place]
        others = before[np.argsort(np.linalg.norm(X[before] - X[i], axis=1))[:near]]
        a = np.linalg.solve(
            K[np.ix_(others, others)] + np.diag(posterior.noise[others]), K[others, i]
        )
        variance = K[i, i] - K[others, i] @ a + posterior.noise[i]
        expected.append((posterior.mean_u[i] - a @ posterior.mean_u[others]) / np.sqrt(variance))
    np.testing.assert_allclose(whitened(posterior, order, near), np.transpose(expected), rtol=1e-6)


def test_each_place_has_the_covariates_of_its_nearest_readings():
    # with two neighbours, by hand at the coefficients of the fit
    table, new = made(60), made(8, seed=3)
    given = StationGP(method="nearest", **GIVEN).fit(table, "temp", covariates=NAMES)
    process_ = given.process_
    process_.model_ = process_.model_.set_params(num_neighbors=2)
    two = nearest_kriging.nearest_kriging(
        process_.model_.fit(given._encoded_readings(), table["temp"]), table[NAMES].to_numpy(), NAMES, 0
    )  # fmt: skip
    b, V = two.coefficients / two.scale, two.covariance / np.outer(two.scale, two.scale)
    H, y = table[NAMES].to_numpy() - two.shift, table["temp"].to_numpy() - table["temp"].mean()
    X, at = (chord_points(t["lat"], t["lon"]) for t in (table, new))
    K, k = covariance(table, table), covariance(table, new)
    mean, variance = two.moments(at, new[NAMES].to_numpy())
    for j in range(8):
        near = np.argsort(np.linalg.norm(X - at[j], axis=1))[:2]
        a = np.linalg.solve(K[np.ix_(near, near)] + NOISE**2 * np.eye(2), k[near, j])
        r = new[NAMES].to_numpy()[j] - two.shift - H[near].T @ a
        assert mean[j] == pytest.approx(table["temp"].mean() + a @ y[near] + r @ b, rel=1e-6)
        assert variance[j] == pytest.approx(VARIANCE - k[near, j] @ a + r @ V @ r, rel=1e-5)


def test_cross_validation_is_that_of_refits_by_hand(table):
    twice = pd.concat([table, table.assign(temp=table["temp"] + 0.1)], ignore_index=True).iloc[:33]
    found = fitted(twice).cross_validate(by="station", folds=4)
    for number in range(found.folds):
        out = found.fold == number
        _, _, mean, std = universal_kriging(twice[~out], twice[out], NAMES)
        np.testing.assert_allclose(found.mean[out], mean, rtol=1e-6)
        np.testing.assert_allclose(found.std[out], np.sqrt(std**2 + NOISE**2), rtol=1e-5)
    assert np.array_equal(found.fold[:3], found.fold[FEW:])


def test_a_file_says_what_was_saved(tmp_path, table, model):
    path = tmp_path / "m.vastgp"
    dated = table.assign(time=np.linspace(0.0, 3.0, FEW), error=0.2)
    timed = fitted(dated, time="time", noise_std="error")
    grid = {"lat": [0.0, 10.0], "lon": [179.0, 181.0], "height": 0.5, "coast": 2.0}
    for one, more in ((model, {}), (timed, {"time": [0.5, 2.5]})):
        where = xr.Dataset(
            {name: grid[name] for name in NAMES}, {"lat": grid["lat"], "lon": grid["lon"], **more}
        )
        one.save(path)
        again = vastgp.load(path)
        xr.testing.assert_identical(again.predict(where), one.predict(where))
        assert again.trend_ == one.trend_
        assert again.cross_validate("row", 3).scores == one.cross_validate("row", 3).scores
        assert again.kriging_.trend_readings == FEW


def test_of_many_readings_it_is_what_runs(monkeypatch):
    monkeypatch.setattr(process, "_EXACT_ROWS", 40)
    many, few = (StationGP(**GIVEN).fit(made(n), "temp", covariates="height") for n in (41, 40))
    assert (many.method_, few.method_) == ("SWSGPRegressor", "ExactGPRegressor")
    assert isinstance(many.kriging_, NearestKriging) and not isinstance(
        few.kriging_, NearestKriging
    )


def test_a_trend_without_time_is_that_of_the_first_in_order(monkeypatch):
    monkeypatch.setattr(nearest_kriging, "_LEAST", 20)
    monkeypatch.setattr(nearest_kriging, "_FIRST", 8)
    table = made(33)
    late = StationGP(method="nearest", max_seconds=1e-3, **GIVEN).fit(
        table, "temp", covariates=NAMES
    )
    assert late.kriging_.trend_readings == 20
    order = nearest_kriging.fixed_indices(0, nearest_kriging._ORDER, 33, 33)[:20]
    # about the means of all readings, as the process is
    some = table.iloc[order]
    A = covariance(some, some) + NOISE**2 * np.eye(20)
    H = some[NAMES].to_numpy() - table[NAMES].to_numpy().mean(axis=0)
    V = np.linalg.inv(H.T @ np.linalg.solve(A, H))
    b = V @ H.T @ np.linalg.solve(A, some["temp"] - table["temp"].mean())
    found = np.array([late.trend_[name] for name in NAMES])
    np.testing.assert_allclose(found, np.column_stack([b, np.sqrt(np.diag(V))]), rtol=1e-6)
    # models that have not seen some readings are as good
    fold = late._conditioned(late._encoded_readings(), np.arange(1, 33))
    assert fold.trend_readings == 20


def test_readings_that_repeat_places_are_for_inducing_inputs(monkeypatch):
    monkeypatch.setattr(process, "_EXACT_ROWS", 40)
    table = made(25)
    # of so many all are the nearest of few places, but at times of their own they are different
    often = pd.concat([table.assign(time=float(k), temp=table["temp"] + 0.1 * k) for k in range(3)])
    same = StationGP(**GIVEN).fit(often, "temp", covariates="height")
    timed = StationGP(**GIVEN).fit(often, "temp", covariates="height", time="time")
    assert same.kriging_.model.solver_ == "sparse" and not isinstance(same.kriging_, NearestKriging)
    assert timed.kriging_.model.solver_ == "nearest" and isinstance(timed.kriging_, NearestKriging)


def test_a_fit_that_ended_with_some_readings_is_conditioned_on_the_nearest(table, model):
    """Of the exact posterior of some, kernel and noise are taken: smoothers of the nearest know no trend."""
    cut = vastgp.SWSGPRegressor(
        GIVEN["kernel"], hyperparameters=GIVEN["hyperparameters"], solver=Nearest()
    )
    X = model._encoded_readings()
    cut.fit(X, table["temp"])
    exact = vastgp.ExactGPRegressor(GIVEN["kernel"], hyperparameters=GIVEN["hyperparameters"])
    cut.answer_, cut.posterior_ = "subset", exact.fit(X[:20], table["temp"][:20]).posterior_
    model = fitted(table)
    model.process_.model_ = cut
    found = model._conditioned(X, np.arange(FEW))
    assert isinstance(found, NearestKriging)
    np.testing.assert_allclose(
        found.trend()[0], universal_kriging(table, table, NAMES)[0], rtol=1e-6
    )
