"""Single precision on very many rows: sums that rounding left without a posterior are mended, and never silently."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from vastgp import RBF, SVGPRegressor, TSVGPRegressor
from vastgp._precision import as_dtype, precision
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult
from vastgp.kernels.matrices import covariance
from vastgp.likelihoods import Gaussian
from vastgp.methods.svgp import passes as svgp_passes
from vastgp.methods.svgp.bound import SiteSums, posterior_of, row_sums, whitened_features
from vastgp.methods.svgp.fit import _posterior
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.passes import without_passes
from vastgp.methods.svgp.steps import Params, coordinates_of, mended
from vastgp.methods.svgp.training import Trainer
from vastgp.options import Adam, Fixed, Natural


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


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_posterior_of_adam_is_that_of_its_moments(monkeypatch, whiten, dtype):
    """In the coordinates that the steps had: of single precision the mean was off by 0.64 deviations of the target."""
    states, result = [], Trainer.result

    def kept(trainer, state):
        states.append(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state))
        return result(trainer, state)

    monkeypatch.setattr(Trainer, "result", kept)
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (1000, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=1000)
    model = SVGPRegressor(
        RBF(1.0), inducing_inputs=np.linspace(-3, 3, 30)[:, None], dtype=dtype,
        hyperparameters=Fixed(noise_std=0.1), solver=Adam(whiten=whiten, max_steps=300),
    ).fit(X, y)  # fmt: skip
    (state,) = states
    kernel = jax.tree.map(np.exp, state.params.kernel)
    K = covariance(kernel, state.params.Z, state.params.Z)
    jitter = max(1e-8, 4.0 * np.finfo(dtype).eps * len(K)) * float(kernel.total_variance())
    L = np.linalg.cholesky(K + jitter * np.eye(len(K)))
    C = np.tril(state.q.root[0], -1) + np.diag(np.exp(np.diagonal(state.q.root[0])))
    new = np.linspace(-3, 3, 41)[:, None]
    k = covariance(kernel, state.params.Z, model.standardizer_.transform_X(new))
    psi = np.linalg.solve(L, k)
    a = psi if whiten else np.linalg.solve(L.T, psi)
    mean = a.T @ state.q.mean[0]
    variance = float(kernel.total_variance()) - np.sum(psi**2, 0) + np.sum((C.T @ a) ** 2, 0)
    found, std = model.predict(new, return_std="latent")
    scale = model.standardizer_.y_scale
    # moments of single precision are those of coordinates that are rounded, too
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float64" else {"rtol": 0.1, "atol": 0.01}
    assert_allclose(found, np.mean(y) + scale * mean, **close)
    assert_allclose(std, scale * np.sqrt(variance), **close)


def test_sums_of_single_precision_are_in_coordinates_of_its_jitter():
    """What steps leave where there is no time for a pass; in coordinates of less jitter the mean is off by 1.1."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (500, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=500)
    kernel, noise, Z = RBF(np.array([0.8]), np.float64(1.0)), 0.01, np.linspace(-2, 2, 40)[:, None]
    params = Params(*jax.tree.map(np.log, (kernel, Gaussian(np.float64(noise)))), Z)
    with precision("float32"):
        narrow = as_dtype(params, "float32")
        inverse = coordinates_of(narrow, np.float32(1e-8)).inverse
        psi = whitened_features(narrow.positive()[0], narrow.Z, inverse, jnp.asarray(X, "float32"))
        targets = jnp.asarray(y[None] / noise, "float32")
        sums = row_sums(psi, targets, jnp.full_like(targets, 1.0 / noise))
    ended = LoopResult(0, 0.0, True, "", History())
    fit = without_passes(narrow, sums, SVGPOptions(), ended, 0, "float32")
    mean, variance = _posterior(fit, "float32").mean_and_latent_variance(X)
    # k_xu (K_uu + K_uf K_fu / sigma^2)^-1 K_uf y / sigma^2
    K, k = covariance(kernel, Z, Z), covariance(kernel, Z, X)
    K += fit.jitter * np.eye(len(Z))
    system = K + k @ k.T / noise
    assert_allclose(mean, k.T @ np.linalg.solve(system, k @ y / noise), atol=2e-3)
    known = np.sum(k * (np.linalg.solve(K, k) - np.linalg.solve(system, k)), axis=0)
    assert_allclose(variance, 1.0 - known, atol=5e-5)


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
