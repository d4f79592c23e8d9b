"""Every estimate of the bound and of its gradients is unbiased: means of 20,000 draws within 4 standard errors."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_models import (
    SmallModel,
    exact_factor_gradient,
    exact_mean_gradient,
    exact_terms,
    gradient_through_features,
    small_model,
)
from support_control import support_control, support_expectation
from vastgp._precision import precision
from vastgp.methods.qsgp.stochastic.control_variates import (
    interpolated_error,
    target_control,
)
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.sampled_elbo import (
    DensePrior,
    DiagonalPrior,
    constant_objective,
    covariance_objective,
    diagonal_objective,
    mean_gradient,
    mean_objective,
    optimal_diagonal,
    sampled_product,
)

DRAWS = 20_000
BATCH = 500
GATE = 4.0

ROWS, COLUMNS = 7, 9  # sizes of the sets l, and i, j (and r)
SUPPORT = np.array([0, 3, 4, 8, 11])


@pytest.fixture(autouse=True)
def _double_precision():
    with precision("float64"):
        yield


def check_mean(draw: Callable, exact: object, seed: int = 0) -> None:
    """Fail when the mean of any entry of ``draw(key)`` is more than 4 standard errors from ``exact``."""
    truth = jax.tree.map(jnp.asarray, exact)

    def add(sums, keys):
        # deviations from the truth, so that squares lose no digits
        gaps = jax.tree.map(lambda v, t: v - t, jax.vmap(draw)(keys), truth)
        return jax.tree.map(
            lambda s, g: (s[0] + g.sum(0), s[1] + (g**2).sum(0)), sums, gaps, is_leaf=_is_pair
        ), None

    keys = jax.random.split(jax.random.key(seed), (DRAWS // BATCH, BATCH))
    start = jax.tree.map(lambda t: (jnp.zeros_like(t), jnp.zeros_like(t)), truth)
    sums, _ = jax.jit(lambda keys: jax.lax.scan(add, start, keys))(keys)
    for (total, squares), goal in zip(
        jax.tree.leaves(sums, is_leaf=_is_pair), jax.tree.leaves(truth), strict=True
    ):
        gap = np.asarray(total) / DRAWS
        error = np.sqrt(np.maximum(np.asarray(squares) / DRAWS - gap**2, 0) / DRAWS)
        rounding = 1e-9 * (1.0 + np.abs(np.asarray(goal)))  # entries that do not vary
        assert np.all(np.abs(gap) <= GATE * error + rounding), np.max(
            np.abs(gap) / (error + rounding)
        )


def _is_pair(node: object) -> bool:
    return (
        isinstance(node, tuple)
        and len(node) == 2
        and all(isinstance(part, jax.Array) for part in node)
    )


def draw_sets(
    key: jax.Array, model: SmallModel
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return rows ``l`` and independent sets ``i``, ``j``, ``r`` of basis functions, without replacement."""
    n, m = model.phi.shape
    keys = jax.random.split(key, 4)
    rows = jax.random.choice(keys[0], n, (ROWS,), replace=False)
    i, j, r = (stratified_indices(k, COLUMNS, 0, m) for k in keys[1:])
    return rows, i, j, r


MODELS = {"n40-m60-dense": (0, 40, 60, True), "n23-m31-diagonal": (1, 23, 31, False)}


@pytest.fixture
def model(request) -> SmallModel:
    seed, n, m, dense = MODELS[request.param]
    return small_model(seed, n, m, dense)


def on_models(name: str, dense: list, diagonal: list) -> pytest.MarkDecorator:
    """Try each way on one of the models: they differ in the prior's blocks, which no control variate knows."""
    both = zip(MODELS, (dense, diagonal), strict=True)
    cases = [(model, way) for model, ways in both for way in ways]
    return pytest.mark.parametrize(("model", name), cases, indirect=["model"])


def prior_blocks(model: SmallModel, i: jax.Array, j: jax.Array) -> DensePrior | DiagonalPrior:
    S = jnp.asarray(model.S)
    if np.count_nonzero(model.S - np.diag(np.diagonal(model.S))):
        return DensePrior(S[j][:, i])
    return DiagonalPrior(jnp.diagonal(S)[i], jnp.diagonal(S)[j])


def sampled_mean_objective(
    model: SmallModel, key: jax.Array, mu: jax.Array, phi: jax.Array, noise: jax.Array, control: str
) -> jax.Array:
    """Theorem 1 from one draw of the sets, with a control variate or without, as a function of what it depends on."""
    n, m = model.phi.shape
    rows, i, j, _ = draw_sets(key, model)
    factor, row_factor = m / COLUMNS, n / ROWS
    y, frozen = jnp.asarray(model.y), jnp.asarray(model.phi)
    f_i = sampled_product(phi[rows][:, i], mu[i, None], factor)
    f_j = sampled_product(phi[rows][:, j], mu[j, None], factor)
    prior = prior_blocks(model, i, j).quadratic(mu[i, None], mu[j, None], factor, factor)
    a = jax.lax.stop_gradient(frozen[SUPPORT] @ mu)[:, None]
    if control == "interpolation":
        K = frozen @ frozen.T
        inverse = jnp.linalg.inv(K[SUPPORT][:, SUPPORT] + 0.1 * jnp.eye(len(SUPPORT)))
        cross = K[rows][:, SUPPORT]
        held = jax.lax.stop_gradient(mu)
        f_i, f_j = (
            f
            - interpolated_error(
                cross, inverse, sampled_product(frozen[SUPPORT][:, k], held[k, None], factor) - a
            )
            for f, k in ((f_i, i), (f_j, j))
        )
    value = mean_objective(
        y[rows], f_i[:, 0], f_j[:, 0], prior[0], noise_variance=noise, row_factor=row_factor
    )
    if control in ("union", "split"):
        value = value + eq3(frozen, mu, i, j, a, m, n, control) / noise
    if control == "target":
        b = frozen.T @ y
        for k in (i, j):
            value = value + 0.5 * target_control(
                b[k],
                mu[k],
                jax.lax.stop_gradient(b @ mu),
                basis_factor=factor,
                noise_variance=noise,
            )
    return value


def eq3(phi, mu, i, j, a, m, n, control):
    """Eq. (3) with the gradient of F.1 over the union of both sets, or over one set after the other."""
    support = phi[SUPPORT]
    if control == "union":
        member = jnp.zeros(m, bool).at[i].set(True).at[j].set(True)
        held = jax.lax.stop_gradient(mu)
        v = jnp.where(member, mu, held)[:, None]
        expectation = support_expectation(a, support, v, gradient_factor=m / member.sum())
    else:
        both = jnp.concatenate([i, j])
        expectation = support_expectation(
            a, support[:, both], mu[both, None], gradient_factor=m / (2 * COLUMNS)
        )
    return support_control(
        support[:, i], support[:, j], mu[i, None], mu[j, None], expectation,
        factor_i=m / COLUMNS, factor_j=m / COLUMNS, row_factor=n / len(SUPPORT),
    )[0]  # fmt: skip


@on_models("control", ["none", "split"], ["union"])
def test_mean_objective_and_its_gradients(model, control):
    exact, _, _ = exact_terms(model)
    data = exact - model.mu @ model.S @ model.mu

    def draw(key):
        return jax.value_and_grad(
            lambda mu, noise: sampled_mean_objective(
                model, key, mu, jnp.asarray(model.phi), noise, control
            ),
            argnums=(0, 1),
        )(jnp.asarray(model.mu), jnp.asarray(model.noise))

    check_mean(draw, (exact, (exact_mean_gradient(model), -data / model.noise)))


@on_models("control", ["interpolation"], ["target"])
def test_value_and_noise_gradient_with_other_control_variates(model, control):
    exact, _, _ = exact_terms(model)
    data = exact - model.mu @ model.S @ model.mu

    def draw(key):
        return jax.value_and_grad(
            lambda noise: sampled_mean_objective(
                model, key, jnp.asarray(model.mu), jnp.asarray(model.phi), noise, control
            )
        )(jnp.asarray(model.noise))

    check_mean(draw, (exact, -data / model.noise))


@on_models("control", ["interpolation"], ["none"])
def test_mean_gradient_in_closed_form(model, control):
    """The entries of a step, spread over all of mu by their inverse inclusion probability."""
    n, m = model.phi.shape
    y, phi, S, mu = (jnp.asarray(part) for part in model[:4])
    K = phi @ phi.T
    inverse = jnp.linalg.inv(K[SUPPORT][:, SUPPORT] + 0.1 * jnp.eye(len(SUPPORT)))

    def draw(key):
        rows, i, j, _ = draw_sets(key, model)
        f = sampled_product(phi[rows][:, j], mu[j, None], m / COLUMNS)
        if control == "interpolation":
            error = (
                sampled_product(phi[SUPPORT][:, j], mu[j, None], m / COLUMNS)
                - phi[SUPPORT] @ mu[:, None]
            )
            f = f - 0.8 * interpolated_error(K[rows][:, SUPPORT], inverse, error)
        prior = m / COLUMNS * S[i][:, j] @ mu[j]
        half = mean_gradient(
            phi[rows][:, i], (f[:, 0] - y[rows])[None], prior[None],
            noise_variance=model.noise, row_factor=n / ROWS,
        )  # fmt: skip
        return jnp.zeros(m).at[i].set(2 * m / COLUMNS * half[0])

    check_mean(draw, exact_mean_gradient(model))


@on_models("control", [True], [False])
def test_covariance_objective_and_its_gradients(model, control):
    n, m = model.phi.shape
    _, exact, _ = exact_terms(model)
    phi = jnp.asarray(model.phi)
    prior_part = np.trace(model.S @ model.C @ model.C.T) - np.linalg.slogdet(model.C @ model.C.T)[1]

    def draw(key):
        rows, i, j, r = draw_sets(key, model)
        factor = m / COLUMNS

        def value(C, noise):
            c = jnp.tril(C)[:, r]
            h_i = sampled_product(phi[rows][:, i], c[i], factor)
            h_j = sampled_product(phi[rows][:, j], c[j], factor)
            prior = prior_blocks(model, i, j).quadratic(c[i], c[j], factor, factor)
            if control:
                a = jax.lax.stop_gradient(phi[SUPPORT] @ c)
                both = jnp.concatenate([i, j])
                expectation = support_expectation(
                    a, phi[SUPPORT][:, both], c[both], gradient_factor=factor / 2
                )
                prior = prior + support_control(
                    phi[SUPPORT][:, i], phi[SUPPORT][:, j], c[i], c[j], expectation,
                    factor_i=factor, factor_j=factor, row_factor=n / len(SUPPORT),
                ) / noise  # fmt: skip
            return covariance_objective(
                h_i,
                h_j,
                prior,
                jnp.diagonal(C)[r],
                noise_variance=noise,
                row_factor=n / ROWS,
                column_factor=factor,
            )

        return jax.value_and_grad(value, argnums=(0, 1))(
            jnp.asarray(model.C), jnp.asarray(model.noise)
        )

    by_noise = -(exact - prior_part) / model.noise
    check_mean(draw, (exact, (exact_factor_gradient(model), by_noise)))


@pytest.mark.parametrize("model", MODELS, indirect=True)
def test_diagonal_columns_and_constant(model):
    n, m = model.phi.shape
    phi, y = jnp.asarray(model.phi), jnp.asarray(model.y)
    s = jnp.diagonal(jnp.asarray(model.S))
    best = optimal_diagonal(jnp.sum(phi**2, axis=0), s, model.noise)
    diagonal_only = model._replace(S=np.diag(np.asarray(s)), C=np.diag(np.asarray(best)))
    _, exact_covariance, exact_constant = exact_terms(diagonal_only)

    def draw(key):
        rows, i, _, _ = draw_sets(key, model)
        common = {"noise_variance": model.noise, "row_factor": n / ROWS}
        return (
            diagonal_objective(phi[rows][:, i], best[i], s[i], column_factor=m / COLUMNS, **common),
            constant_objective(
                y[rows], s[i], basis_factor=m / COLUMNS, num_rows=n, num_basis=m, **common
            ),
        )

    check_mean(draw, (exact_covariance, exact_constant))


@on_models("control", ["union", "interpolation"], ["none"])
def test_gradient_by_lengthscales_through_the_features(model, control):
    """Features ``phi(x) = cos(x / l)`` of random frequencies: the bound's derivative by log lengthscales (F.3)."""
    n, m = model.phi.shape
    rng = np.random.default_rng(5)
    X, W = jnp.asarray(rng.normal(size=(n, 3))), jnp.asarray(rng.normal(size=(3, m)))

    def features(log_scale):
        return jnp.cos((X / jnp.exp(log_scale)) @ W) * (2 / m) ** 0.5

    start = jnp.asarray([0.1, -0.2, 0.3])
    small = model._replace(phi=np.asarray(features(start)))
    _, pull = jax.vjp(features, start)
    mean_only = small._replace(C=0.0 * small.C)
    exact = pull(jnp.asarray(gradient_through_features(mean_only)))[0]

    def draw(key):
        return jax.grad(
            lambda log_scale: sampled_mean_objective(
                small,
                key,
                jnp.asarray(small.mu),
                features(log_scale),
                jnp.asarray(small.noise),
                control,
            )
        )(start)

    check_mean(draw, exact)
