"""Single precision on very many rows: sums that rounding left without a posterior are mended, and never silently."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vastgp import RBF, TSVGPRegressor
from vastgp._precision import precision
from vastgp.methods.svgp import passes as svgp_passes
from vastgp.methods.svgp.bound import SiteSums, posterior_of
from vastgp.methods.svgp.steps import mended
from vastgp.options import Natural


def _indefinite(m=30, size=1e9):
    """Return sums of one function of rank three, with rounding errors of their size in float32."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(m, 3)) * size**0.5
    noise = rng.normal(size=(m, m)) * 3e-5 * size
    A = (root @ root.T + noise + noise.T).astype(np.float32)
    b = (root @ rng.normal(size=3)).astype(np.float32)
    return SiteSums(jnp.asarray(b)[None], jnp.asarray(A)[None])


def test_mended_sums_have_a_posterior_and_are_otherwise_what_they_were():
    sums = _indefinite()
    assert not np.all(np.isfinite(posterior_of(sums).root))
    fixed = mended(sums)
    q = posterior_of(fixed)
    assert np.all(np.isfinite(q.root)) and np.all(np.isfinite(q.mean))
    change = np.linalg.norm(fixed.precision - sums.precision, 2, axis=(1, 2))
    wrong = np.linalg.eigvalsh(np.asarray(sums.precision[0], np.float64))
    assert change[0] <= 1.1 * max(-wrong[0], 0.0) + 1e-4 * wrong[-1]


def test_sound_sums_are_left_alone():
    rng = np.random.default_rng(0)
    psi = rng.normal(size=(5, 40)).astype(np.float32)
    sums = SiteSums(jnp.ones((1, 5), jnp.float32), jnp.asarray(psi @ psi.T)[None])
    assert svgp_passes._sound(sums) is sums
    broken = _indefinite()
    with precision("float64"):
        assert np.all(np.isfinite(posterior_of(svgp_passes._sound(broken)).root))


def test_a_fit_goes_on_from_sums_that_rounding_broke(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (2000, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2000)
    whole = svgp_passes._sound

    def breaks(sums):
        A = np.array(sums.precision)
        A[0] -= 1e-3 * np.linalg.eigvalsh(A[0])[-1] * np.eye(A.shape[-1])
        return whole(sums._replace(precision=jnp.asarray(A)))

    monkeypatch.setattr(svgp_passes, "_sound", breaks)
    model = TSVGPRegressor(
        RBF(1.0), 20, solver=Natural(max_steps=20, row_batch=200), dtype="float32"
    ).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - np.sin(X[:, 0])) ** 2)) < 0.05
    assert np.isfinite(model.diagnosis_["bound"]) and model.diagnosis_["damped_steps"] >= 1


def test_a_fit_without_a_posterior_ends_with_a_simple_answer(monkeypatch):
    X = np.linspace(-3, 3, 300)[:, None]
    nothing = svgp_passes.finish

    def broken(params, sums, *rest):
        return nothing(params, sums._replace(precision=sums.precision * np.nan), *rest)

    monkeypatch.setattr(svgp_passes, "finish", broken)
    with pytest.warns(
        ConvergenceWarning,
        match=r"ended without a finite posterior, in float64\. Raise.*is the answer",
    ):
        model = TSVGPRegressor(RBF(1.0), 10, solver=Natural(max_steps=5)).fit(X, np.sin(X[:, 0]))
    assert model.answer_ != "own" and np.all(np.isfinite(model.predict(X)))
