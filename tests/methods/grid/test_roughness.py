"""Kernels of dimensions: how rough a field is in time is learned where none was given, and what else one may give."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from vastgp import RBF, GridGP, Matern12, Matern32, Matern52
from vastgp._precision import precision
from vastgp.kernels import Constant, Linear
from vastgp.options import Evidence

QUICK = {"tol": 1e-3, "criterion": Evidence(num_probes=0)}
SIZES = {"time": 80, "lat": 7, "lon": 8}
TRUTHS = {"matern12": Matern12, "matern32": Matern32, "matern52": Matern52}
# Slices of which all cells are withheld.
GONE = np.arange(7, 78, 10)


def field(kernel, seed=0):
    """Draw a field that is as rough in time as a kernel, and smooth in space, with a noise of a tenth."""
    rng = np.random.default_rng(seed)
    coords = {name: 2.0 * np.arange(size) for name, size in SIZES.items()}
    roots = [
        np.linalg.cholesky(
            np.asarray(k(jnp.asarray(x[:, None]), jnp.asarray(x[:, None]))) + 1e-5 * np.eye(len(x))
        )
        for k, x in zip((kernel(8.0), Matern52(9.0), Matern52(9.0)), coords.values(), strict=True)
    ]
    values = np.einsum("ai,bj,ck,ijk->abc", *roots, rng.normal(size=tuple(SIZES.values())))
    values = values + 0.1 * rng.normal(size=values.shape)
    return xr.DataArray(values, dims=tuple(SIZES), coords=coords, name="u")


@pytest.mark.parametrize("name", TRUTHS)
def test_the_roughness_in_time_is_that_of_highest_evidence(name):
    whole = field(TRUTHS[name])
    given = whole.copy(deep=True)
    given[GONE] = np.nan
    model = GridGP(**QUICK).fit(given)
    assert [type(part) for part in model.kernel_.parts] == [TRUTHS[name], Matern52, Matern52]
    each = {other: GridGP({"time": other}, **QUICK).fit(given).log_evidence_ for other in TRUTHS}
    assert max(each, key=each.get) == name
    assert model.log_evidence_ == pytest.approx(each[name], abs=0.5)


def test_intervals_of_slices_that_are_withheld_hold_what_they_say():
    """Ten fields: with the smoother default alone 95 % intervals hold 90 %."""
    inside = {"chosen": [], "smooth": []}
    for seed in range(10):
        whole = field(Matern12, seed)
        given = whole.copy(deep=True)
        given[GONE] = np.nan
        for label, kernels in (("chosen", None), ("smooth", {"time": "matern52"})):
            found = GridGP(kernels, **QUICK).fit(given).predict()
            z = ((found["mean"] - whole) / found["std"])[GONE]
            inside[label].append(float((abs(z) < 1.96).mean()))
    assert 0.93 <= np.mean(inside["chosen"]) <= 0.97
    assert np.mean(inside["smooth"]) < 0.92


def test_kernels_that_were_given_and_other_dimensions_stay(tmp_path):
    whole = field(Matern12)
    given = GridGP({"time": "matern52"}, **QUICK).fit(whole)
    assert isinstance(given.kernel_.parts[0], Matern52)
    other = GridGP(**QUICK).fit(whole.rename(time="depth"))
    assert isinstance(other.kernel_.parts[0], Matern52)
    short = GridGP(**(QUICK | {"max_iter": 1, "tol": 1e-9})).fit(whole)
    assert not short.converged_ and isinstance(short.kernel_.parts[0], Matern52)
    dates = whole.assign_coords(time=np.datetime64("2000-01-01") + np.arange(80).astype("m8[D]"))
    dated = GridGP(**QUICK).fit(dates.rename(time="day"))
    assert isinstance(dated.kernel_.parts[0], Matern12)


@pytest.mark.parametrize("spec", ["rbf + constant", RBF(2.0) + Constant(0.5)])
def test_a_map_that_stays_is_a_constant_in_time(spec):
    """The evidence of what was learned is that of the dense process, and higher than without the constant."""
    rng = np.random.default_rng(0)
    day, x = np.arange(12.0), np.arange(5.0)
    values = 3.0 * np.cos(2 * x) + 0.5 * rng.normal(size=(12, 1)) * np.sin(x)
    values = values + 0.1 * rng.normal(size=(12, 5))
    array = xr.DataArray(values, dims=("day", "x"), coords={"day": day, "x": x})
    options = {"tol": 1e-3, "criterion": Evidence(num_probes=0)}
    model = GridGP({"day": spec}, **options).fit(array)
    without = GridGP({"day": "rbf"}, **options).fit(array)
    assert model.log_evidence_ > without.log_evidence_ + 10.0
    with precision("float64"):
        pairs = zip(model.kernel_.parts, (day, x), strict=True)
        factors = [part(at[:, None], at[:, None]) for part, at in pairs]
    K = float(model.kernel_.variance) * np.kron(*map(np.asarray, factors))
    A, y = K + model.noise_std_**2 * np.eye(60), values.ravel() - values.mean()
    log_evidence = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(2 * np.pi * A)[1])
    assert model.log_evidence_ == pytest.approx(log_evidence, rel=1e-6)


@pytest.mark.parametrize("spec", ["linear", "rbf + linear", Matern52(2.0) * Linear()])
def test_lines_are_refused_with_what_to_give(spec):
    array = xr.DataArray(np.eye(4), dims=("day", "x"))
    with pytest.raises(ValueError, match=r"kernels\['day'\] is .*inear.*long lengthscale"):
        GridGP({"day": spec}).fit(array)


def test_parts_of_a_sum_that_is_given_by_name_part():
    """Slow and fast: from equal lengthscales both slopes would be the same for ever."""
    rng, day = np.random.default_rng(0), np.arange(120.0)
    values = 2.0 * np.sin(day / 25) + 0.5 * np.sin(day / 1.7)
    values = values[:, None] + 0.05 * rng.normal(size=(120, 3))
    array = xr.DataArray(values, dims=("day", "x"), coords={"day": day, "x": np.arange(3.0)})
    one, two = (
        GridGP({"day": name}, **QUICK).fit(array) for name in ("matern32", "matern32 + matern32")
    )
    fast, slow = sorted(float(part.lengthscales[0]) for part in two.kernel_.parts[0].parts)
    assert slow > 1.5 * fast and two.log_evidence_ > one.log_evidence_ + 100.0
