"""The end of learning where every step takes all rows."""

import jax
import numpy as np
import pytest

from vastgp import SVGPRegressor
from vastgp._precision import precision
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.lbfgs import ravel
from vastgp.kernels import RBF
from vastgp.likelihoods import Bernoulli, Gaussian, StudentT
from vastgp.methods.svgp.bound import SiteSums
from vastgp.methods.svgp.finish import BoundOfFew
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.steps import Params


def bound_of(likelihood, n=60, m=6, tol=1e-4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)
    y = np.sign(y) if isinstance(likelihood, Bernoulli) else y
    kernel = RBF(np.array([0.8, 1.5]), np.array(1.3))
    logs = jax.tree.map(lambda leaf: np.log(np.asarray(leaf, np.float64)), (kernel, likelihood))
    params = Params(*logs, X[:m].copy())
    with precision("float64"):
        scaling = Standardizer().fit(as_rows(X))
        nothing = SiteSums.none(1, m, np.float64)
        return params, BoundOfFew(as_rows(X, y), scaling, params, nothing, SVGPOptions(tol=tol))


@pytest.mark.parametrize("likelihood", [Gaussian(0.1), StudentT(0.3, 4.0), Bernoulli()])
def test_the_slope_is_that_of_the_bound_with_the_best_sites(likelihood):
    params, bound = bound_of(likelihood, tol=1e-6)
    flat, rebuild = ravel(params)
    with precision("float64"):
        slope = ravel(bound(params)[1])[0]
        for k in range(0, len(flat), 3):
            step = np.zeros_like(flat)
            step[k] = 1e-4
            ends = [bound(rebuild(flat + sign * step))[0] for sign in (1.0, -1.0)]
            assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(slope[k], rel=1e-3, abs=1e-3)


def test_a_fit_to_few_rows_has_converged_where_a_longer_one_predicts_the_same():
    # steps of Adam that gained less than tol ended this with a mean that was off by 0.04 of a deviation at some rows
    rng = np.random.default_rng(3)
    X = rng.uniform(-3.0, 3.0, (60, 2))
    y = np.sin(3.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.02 * rng.normal(size=60)
    new = rng.uniform(-3.0, 3.0, (200, 2))
    short, long = (SVGPRegressor("rbf", 12, tol=tol).fit(X, y) for tol in (1e-4, 1e-6))
    assert short.converged_
    assert "slope" in short.stop_reason_
    (mean, std), (better, _) = (model.predict(new, return_std=True) for model in (short, long))
    assert np.max(np.abs(mean - better) / std) < 1e-2
