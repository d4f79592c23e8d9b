"""Eigenvectors are known up to their sign, those of one eigenvalue up to a turn: no answer hangs on which are found."""

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from vastgp import RBF, Cyclic, GridGP, Matern52
from vastgp.kernels import Coregionalisation
from vastgp.linalg import kronecker
from vastgp.methods.grid.samples import joint_samples
from vastgp.methods.grid.weights import GridWeights
from vastgp.options import Average, Evidence, FillGaps, Fixed, IgnoreGaps

DAYS, LON = np.arange(7.0), np.arange(0.0, 360.0, 30.0)
KERNELS = {"day": RBF(2.0, 0.5), "lon": Cyclic(kernel=Matern52(50.0))}
HELD = {"hyperparameters": Fixed(noise_std=0.1), "criterion": Evidence(num_probes=0)}


@pytest.fixture(scope="module")
def field():
    rng = np.random.default_rng(0)
    values = np.sin(np.radians(LON)) + 0.5 * np.sin(DAYS / 2)[:, None] * np.cos(np.radians(LON))
    values = values + 0.1 * rng.standard_normal(values.shape)
    array = xr.DataArray(values, dims=("day", "lon"), coords={"day": DAYS, "lon": LON})
    return array.where(rng.random(values.shape) > 0.2)


@pytest.fixture
def turned(monkeypatch):
    """Other eigenvectors from now on, as another machine finds them."""
    usual, rng = kronecker._eigh, np.random.default_rng(1)

    def other(matrix):
        t, Q = usual(matrix)
        turn = np.zeros((len(t), len(t)))
        starts = np.flatnonzero(np.diff(t, prepend=-np.inf) > 1e-10 * t[-1])
        for start, stop in zip(starts, [*starts[1:], len(t)], strict=True):
            block = rng.standard_normal((stop - start, stop - start))
            turn[start:stop, start:stop] = np.linalg.qr(block)[0] * rng.choice([-1.0, 1.0])
        return t, Q @ turn

    return lambda: monkeypatch.setattr(kronecker, "_eigh", other)


def outputs_of(field):
    both = xr.concat([field, 3.0 * field.roll(lon=2) + 7.0], xr.DataArray(["u", "v"], dims="name"))
    kernels = {"name": Coregionalisation(2), **KERNELS}
    held = {**HELD, "hyperparameters": Fixed(noise_std=[0.1, 0.6])}
    return GridGP(kernels, **held).fit(both)


MODELS = {
    "filled": lambda field: GridGP(KERNELS, solver=FillGaps(tol=1e-10), **HELD).fit(field),
    "ignored": lambda field: GridGP(KERNELS, solver=IgnoreGaps(tol=1e-10), **HELD).fit(field),
    "single precision": lambda field: GridGP(KERNELS, dtype="float32", **HELD).fit(field),
    "known errors": lambda field: GridGP(KERNELS, **HELD).fit(
        field, noise_std=0.1 * (1.0 + field.lon % 7.0 + 0.0 * field.day)
    ),
    "outputs": outputs_of,
    "averaged": lambda field: GridGP(
        KERNELS, hyperparameters=Average(num_components=8), tol=0.05, max_iter=3
    ).fit(field),
}


def answers(model, ahead):
    points = pd.DataFrame({"day": [0.5, 3.0, 6.5], "lon": [5.0, 90.0, 300.0]})
    points = points.assign(name="u") if "name" in model.dims_ else points
    return [
        model.predict(variance="exact"),
        model.predict(ahead, variance="exact"),
        model.predict(variance="samples"),
        model.predict(ahead, variance="low-rank"),
        *(model.sample_y(at, n_samples=3).to_dataset(name="mean") for at in (None, ahead, points)),
    ]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_a_model_predicts_the_same_where_other_eigenvectors_are_found(
    kind, field, turned, tmp_path
):
    model = MODELS[kind](field)
    model.save(tmp_path / "m.vastgp")
    kept = pickle.dumps(model)
    ahead = {"day": [2.5, 7.5], "lon": [10.0, 200.0, 355.0]}
    expected = answers(model, ahead)
    turned()
    size = float(np.abs(expected[0]["mean"]).max())
    off = 2e-4 if model.dtype == "float32" else 1e-6
    for part in model.posterior_.parts:
        part.forget()
    for again in (model, pickle.loads(kept), vastgp.load(tmp_path / "m.vastgp")):
        for one, other in zip(answers(again, ahead), expected, strict=True):
            xr.testing.assert_allclose(one, other, rtol=0.0, atol=off * size)


@pytest.mark.parametrize("solver", ["fill-gaps", "ignore-gaps"])
def test_files_of_earlier_versions_are_read(field, solver):
    """They hold ``Q^T alpha``, in the place of the filled grid."""
    posterior = GridGP(KERNELS, solver=solver, **HELD).fit(field).posterior_
    state, arrays = posterior.to_state()
    assert set(arrays) >= {"filled"} and "coefficients" not in arrays
    arrays = {name: array for name, array in arrays.items() if name != "filled"}
    again = GridWeights.from_state(state, arrays | {"coefficients": posterior.coefficients})
    np.testing.assert_allclose(again.filled, posterior.filled, atol=1e-12)
    np.testing.assert_allclose(again.mean(again.axes), posterior.mean(again.axes), atol=1e-12)


class Unit(np.random.Generator):
    """Gives the numbers of a vector one after the other: zeros, and a one in one place."""

    def __init__(self, place):
        super().__init__(np.random.PCG64(0))
        self.place = place

    def standard_normal(self, shape):
        numbers = np.zeros(np.prod(shape, dtype=int))
        if 0 <= self.place < numbers.size:
            numbers[self.place] = 1.0
        self.place -= numbers.size
        return numbers.reshape(shape)


@pytest.mark.parametrize("solver", [FillGaps(tol=1e-12), IgnoreGaps(tol=1e-12)])
@pytest.mark.parametrize("scattered", [False, True])
def test_draws_are_a_linear_map_of_normals_whose_square_is_the_covariance(
    field, turned, monkeypatch, solver, scattered
):
    """Exact, in the place of averages over draws; and no choice of eigenvectors changes the map."""
    error = 0.1 * (1.0 + field.lon % 7.0 + 0.0 * field.day)
    model = GridGP(KERNELS, solver=solver, **HELD).fit(field, noise_std=error)
    posterior, rng = model.posterior_, np.random.default_rng(2)
    grid = [np.append(DAYS, 2.5)[:, None], np.append(LON, 100.0)[:, None]]
    points = [rng.uniform(0.0, most, (9, 1)) for most in (8.0, 360.0)] if scattered else grid
    # of the prior (at points what the grid leaves open too), and of the noise
    size = posterior.filled.size
    count = size + (size + 9 if scattered else 8 * 13)
    monkeypatch.setattr(np.random, "default_rng", lambda key: Unit(key[1] - 1))
    found = joint_samples(posterior, points, 1 + count, 0, scattered)
    mean, along = found[0], found[1:] - found[0]
    np.testing.assert_allclose(mean, posterior.mean(points, scattered), atol=1e-9)
    variance = posterior.variance(points, "exact", scattered)
    np.testing.assert_allclose(np.sum(along**2, axis=0), variance, atol=1e-9)
    turned()
    posterior.forget()
    again = joint_samples(posterior, points, 1 + count, 0, scattered)
    np.testing.assert_allclose(again, found, atol=1e-8)
