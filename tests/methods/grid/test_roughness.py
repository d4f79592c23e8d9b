"""How rough a field is in time is learned where no kernel was given: intervals in long gaps hang on it."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from vastgp import GridGP, Matern12, Matern32, Matern52
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
