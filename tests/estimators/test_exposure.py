"""Counts of rows that were looked at for unequal times, by the estimators that take exposures."""

import numpy as np
import pandas as pd
import pytest

import vastgp
from estimators.conformance import Killed
from vastgp import RBF, ExactGPRegressor, SVGPRegressor, TSVGPRegressor
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.likelihoods import Poisson, PoissonLogNormal
from vastgp.options import Fixed

pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge")
QUICK = {"kernel": "rbf", "num_inducing": 12, "hyperparameters": "subset"}


def claims(n=200, seed=0):
    """Counts of exposures from 0.1 to 10, at a rate between a third and six."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 6.0, (n, 1))
    exposure = 10.0 ** rng.uniform(-1.0, 1.0, n)
    rate = np.exp(0.4 + 1.4 * np.sin(X[:, 0]))
    return X, rng.poisson(exposure * rate).astype(float), exposure, rate


@pytest.fixture(scope="module")
def data():
    return claims()


@pytest.fixture(scope="module", params=["poisson", "poisson-log-normal"])
def fitted(request, data):
    X, y, exposure, _ = data
    return TSVGPRegressor(**QUICK, likelihood=request.param).fit(X, y, exposure=exposure)


def test_rates_are_found_where_the_counts_alone_mislead(fitted, data):
    X, y, _, _ = data
    new, seen, exposure, rate = claims(500, 1)
    plain = TSVGPRegressor(**QUICK, likelihood=fitted.likelihood).fit(X, y)
    mean = fitted.predict(new)
    assert np.sqrt(np.mean(np.log(mean / rate) ** 2)) < 0.15
    assert np.sqrt(np.mean(np.log(plain.predict(new) / rate) ** 2)) > 0.5
    with_it = fitted.log_predictive_density(new, seen, exposure=exposure).mean()
    assert with_it > plain.log_predictive_density(new, seen).mean() + 0.5
    found = fitted.distribution(new, exposure)
    scores = found.normal_scores(seen)
    assert abs(scores.mean()) < 0.15 and scores.std() == pytest.approx(1.0, abs=0.12)
    low, _, high = fitted.predict_quantiles(new, exposure=exposure).T
    assert np.mean((low <= seen) & (seen <= high)) > 0.93


def test_predictions_are_proportional_to_the_exposure(fitted):
    new, seen, exposure, _ = claims(30, 2)
    of_one = fitted.predict(new)
    np.testing.assert_allclose(
        fitted.predict(new, exposure=exposure), exposure * of_one, rtol=1e-12
    )
    np.testing.assert_allclose(fitted.predict(new, exposure=2.5), 2.5 * of_one, rtol=1e-12)
    table = pd.DataFrame({"x0": new[:, 0], "years": exposure, "seen": seen})
    named = TSVGPRegressor(**QUICK, likelihood="poisson").fit(table, "seen", exposure="years")
    assert named.feature_names_in_.tolist() == ["x0"]
    np.testing.assert_array_equal(
        named.predict(table, exposure="years"), named.predict(table[["x0"]], exposure=exposure)
    )
    np.testing.assert_array_equal(
        named.log_predictive_density(table, "seen", exposure="years"),
        named.log_predictive_density(table[["x0"]], seen, exposure=exposure),
    )


def test_exposures_of_one_change_no_bit_and_equal_ones_are_a_rate(data):
    X, y, _, _ = data
    make = lambda: TSVGPRegressor(**QUICK, likelihood="poisson")  # noqa: E731
    plain, ones, equal = (
        make().fit(X, y),
        make().fit(X, y, exposure=np.ones(len(y))),
        make().fit(X, y, exposure=np.full(len(y), 8.0)),
    )
    np.testing.assert_array_equal(ones.predict(X), plain.predict(X))
    np.testing.assert_allclose(equal.predict(X, exposure=8.0), plain.predict(X), rtol=1e-6)
    assert float(equal.likelihood_.rate) == pytest.approx(float(plain.likelihood_.rate) / 8.0)


def test_the_unit_of_the_exposure_does_not_matter(fitted, data):
    X, y, exposure, _ = data
    seconds = TSVGPRegressor(**QUICK, likelihood=fitted.likelihood)
    seconds.fit(X, y, exposure=3.15e12 * exposure)
    np.testing.assert_allclose(seconds.predict(X, exposure=3.15e12), fitted.predict(X), rtol=1e-5)


@pytest.mark.parametrize("kind", [SVGPRegressor, TSVGPRegressor])
def test_two_rows_at_one_place_are_one_row_of_both_exposures(kind, data):
    """Sums of Poisson counts are Poisson: at given hyperparameters the posterior is the same."""
    X, y, exposure, _ = data
    given = {
        "kernel": RBF([1.0], 1.5), "likelihood": Poisson(1.5), "hyperparameters": Fixed(),
        "inducing_inputs": np.linspace(0.0, 6.0, 15)[:, None], "tol": 1e-9,
    }  # fmt: skip
    more = np.random.default_rng(3).poisson(2.0 * exposure)
    apart = kind(**given).fit(
        np.concatenate([X, X]), np.concatenate([y, more]), exposure=np.concatenate([exposure, 2 * exposure])
    )  # fmt: skip
    together = kind(**given).fit(X, y + more, exposure=3 * exposure)
    for mine, theirs in zip(
        apart.predict(X, return_std="latent"), together.predict(X, return_std="latent"), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert float(together.likelihood_.rate) == pytest.approx(1.5)


def test_a_file_keeps_the_model(fitted, tmp_path):
    new, seen, exposure, _ = claims(20, 4)
    fitted.save(tmp_path / "model.vastgp")
    again = vastgp.load(tmp_path / "model.vastgp")
    assert type(again.likelihood_) in (Poisson, PoissonLogNormal)
    np.testing.assert_array_equal(
        again.log_predictive_density(new, seen, exposure=exposure),
        fitted.log_predictive_density(new, seen, exposure=exposure),
    )


def test_a_checkpoint_is_of_its_exposures(data, tmp_path, monkeypatch):
    X, y, exposure, _ = data
    make = lambda: TSVGPRegressor(  # noqa: E731
        **QUICK, likelihood="poisson", checkpoint=vastgp.options.SaveTo(tmp_path / "fit", 1e-9)
    )
    write = Checkpoint.write

    def killed(self):
        write(self)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", killed)
        with pytest.raises(Killed):
            make().fit(X, y, exposure=exposure)
    with pytest.raises(ValueError, match="data"):
        make().fit(X, y, exposure=2 * exposure)
    whole = TSVGPRegressor(**QUICK, likelihood="poisson").fit(X, y, exposure=exposure)
    resumed = make().fit(X, y, exposure=exposure)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


def test_refusals(fitted, data):
    X, y, exposure, _ = data
    model = TSVGPRegressor(**QUICK, likelihood="poisson")
    for bad, words in ((0.0, "leave it out"), (-1.0, "above zero"), (np.nan, "unknown")):
        wrong = np.where(np.arange(len(y)) == 7, bad, exposure)
        with pytest.raises(ValueError, match=rf"exposure must hold .*{words}"):
            model.fit(X, y, exposure=wrong)
    with pytest.raises(ValueError, match=r"exposure has shape \(3,\)"):
        model.fit(X, y, exposure=exposure[:3])
    with pytest.raises(ValueError, match=r"exposure=2\.0 is a single value"):
        model.fit(X, y, exposure=2.0)
    with pytest.raises(ValueError, match="exposure='years' is a string"):
        model.fit(X, y, exposure="years")
    with pytest.raises(ValueError, match=r"exposure multiplies .*likelihood is Gaussian"):
        TSVGPRegressor(**QUICK).fit(X, y, exposure=exposure)
    with pytest.raises(ValueError, match="noise_std is of normal noise"):
        model.fit(X, y, noise_std=exposure, exposure=exposure)
    with pytest.raises(ValueError, match=r"exposure must hold .*row 0"):
        fitted.predict(X[:1], exposure=0.0)
    with pytest.raises(TypeError, match="exposure"):
        vastgp.SWSGPRegressor().fit(X, y, exposure=exposure)
    with pytest.raises(TypeError, match="exposure"):
        ExactGPRegressor().fit(X, y, exposure=exposure)
