"""Bounds of discrete weights beside sums over every hypothesis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_expit, log_softmax

from discrete_cases import enumerate_all, enumerated_elbo, random_logits, small_case
from vastgp._precision import precision
from vastgp.methods.direct.elbo import (
    draw_codes,
    entropy_bound,
    entropy_surrogate,
    expected_log_prior,
    log_probabilities,
    mixture_elbo_bound,
    sampled_value_and_slope,
    value_and_slope,
)
from vastgp.methods.direct.logistic_bound import (
    best_contact,
    exponential_bound,
    exponential_value_and_slope,
    quadratic_sites,
)
from vastgp.methods.direct.model import DiscreteLogits, bounded_spacing


@pytest.fixture(autouse=True)
def _double():
    with precision("float64"):
        yield


def finite_difference(function, point, direction, step=1e-5):
    """Return the central difference along a direction."""
    move = lambda t: jax.tree.map(lambda x, d: x + t * d, point, direction)  # noqa: E731
    return float(function(move(step)) - function(move(-step))) / (2 * step)


def direction_like(tree, seed=5):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)), tree)


def along(slope, direction):
    return sum(
        float(np.sum(np.asarray(g) * d))
        for g, d in zip(jax.tree.leaves(slope), jax.tree.leaves(direction), strict=True)
    )


# ---------------------------------------------------------------- Theorem 7.1


@pytest.mark.parametrize(("b", "noises"), [(6, 3), (8, 1)])
def test_the_mean_field_bound_is_the_sum_over_all_hypotheses(b, noises):
    """Up to 3^8 hypotheses, with a prior of the noise and without."""
    case = small_case(b=b, noises=noises)
    logits = random_logits(case.model)
    found, slope = value_and_slope(logits, case.model)
    right = enumerated_elbo(case, logits)
    assert float(found) == pytest.approx(right, rel=1e-12, abs=1e-10)
    direction = direction_like(logits)
    measured = finite_difference(lambda p: value_and_slope(p, case.model)[0], logits, direction)
    assert along(slope, direction) == pytest.approx(measured, rel=1e-7)


def test_at_the_posterior_of_one_weight_the_bound_is_the_evidence():
    """One weight and one noise: the mean-field posterior is the posterior, and nothing is lost."""
    case = small_case(b=1, k=5, noises=1)
    phi, y, model = case
    v = model.noise[0]
    log_joint = model.prior.log_mass[0, 0] - 0.5 * np.sum(
        (y[:, None] - phi @ model.values) ** 2, axis=0
    ) / v - 0.5 * len(y) * np.log(2 * np.pi * v)  # fmt: skip
    logits = DiscreteLogits(log_joint[None, None], np.zeros(1), np.zeros(1))
    evidence = np.logaddexp.reduce(log_joint)
    assert float(value_and_slope(logits, model)[0]) == pytest.approx(evidence, rel=1e-12)


def test_learned_spacing_is_the_model_with_the_values_moved():
    case = small_case()
    model = case.model
    spacing = np.array([-30.0, -0.3, -0.01, 0.01, 0.4, 1e4])
    factors = np.exp(bounded_spacing(spacing, model.values))
    # what is moved by little is moved by that; at the ends something is left, and values stay where the prior has mass
    np.testing.assert_allclose(factors[2:4], np.exp([-0.01, 0.01]), rtol=1e-6)
    assert factors[0] > 5e-6 and factors[5] * np.abs(model.values[5]).min() <= 6.0 + 1e-9
    spacing[5] = 1.0  # has a slope
    logits = random_logits(model)._replace(spacing=spacing)
    values = np.exp(bounded_spacing(spacing, model.values))[:, None] * model.values
    from equinox import tree_at

    moved = tree_at(
        lambda m: (m.values, m.prior.log_mass),
        model,
        (values, log_softmax(-0.5 * values**2, axis=-1)[None]),
    )
    found, slope = value_and_slope(logits, model)
    right = enumerated_elbo(case._replace(model=moved), logits._replace(spacing=None))
    right -= 0.5 * np.sum(spacing**2)  # standard normal beforehand
    assert float(found) == pytest.approx(right, rel=1e-12)
    direction = direction_like(logits)
    measured = finite_difference(lambda p: value_and_slope(p, model)[0], logits, direction)
    assert along(slope, direction) == pytest.approx(measured, rel=1e-7)


# ---------------------------------------------------------------- Theorems 7.3 and 7.4


def test_the_entropy_bound_of_a_mixture_never_exceeds_the_entropy():
    case = small_case(b=5)
    for seed in range(5):
        logits = random_logits(case.model, components=3, seed=seed)
        every = enumerate_all(case.model, logits)
        entropy = -np.exp(every.log_q) @ every.log_q
        log_q, log_alpha = log_softmax(logits.weights, axis=-1), log_softmax(logits.mixture)
        mean = np.log(np.einsum("r,rbk->bk", np.exp(log_alpha), np.exp(log_q)))
        for center in (mean, log_q[0], mean + 0.3):
            loose = float(entropy_bound(log_q, log_alpha, center))
            tight = float(entropy_bound(log_q, log_alpha, center, True))
            assert loose <= tight + 1e-12 <= entropy + 1e-10
            # (7.26), with every product written down
            a = np.exp(center[np.arange(5), every.codes].sum(axis=1))
            written = -np.exp(every.log_q) @ (np.log(a) + np.exp(every.log_q) / a - 1.0)
            assert loose == pytest.approx(written, rel=1e-10, abs=1e-10)


def test_the_entropy_bound_is_exact_where_all_components_are_the_center():
    logits = random_logits(small_case().model, components=1)
    log_q = np.repeat(log_softmax(logits.weights, axis=-1), 3, axis=0)
    log_alpha = log_softmax(np.array([0.1, 0.7, -1.0]))
    entropy = -np.sum(np.exp(log_q[0]) * log_q[0])
    for logarithmic in (False, True):
        found = float(entropy_bound(log_q, log_alpha, log_q[0], logarithmic))
        assert found == pytest.approx(entropy, rel=1e-12)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_the_bound_of_a_mixture_is_below_its_elbo_and_has_its_slope(logarithmic):
    case = small_case()
    logits = random_logits(case.model, components=2)
    center = log_softmax(logits.weights.mean(axis=0), axis=-1)
    point = (logits, center)
    found, slope = jax.value_and_grad(mixture_elbo_bound, argnums=(0, 1))(
        *point, case.model, logarithmic
    )
    assert float(found) <= enumerated_elbo(case, logits)
    direction = direction_like(point)
    measured = finite_difference(
        lambda p: mixture_elbo_bound(*p, case.model, logarithmic), point, direction
    )
    assert along(slope, direction) == pytest.approx(measured, rel=1e-6)


def test_second_derivatives_of_a_mixtures_bound_are_differences_of_its_slopes():
    case = small_case()
    logits = random_logits(case.model, components=2)
    point = (logits, log_softmax(logits.weights.mean(axis=0), axis=-1))
    first, second = direction_like(point), direction_like(point, seed=1)

    def slope(at):
        return jax.grad(lambda p: mixture_elbo_bound(*p, case.model, True))(at)

    given, along_it = (jax.tree.map(jnp.asarray, each) for each in (point, first))
    bent = jax.jvp(slope, (given,), (along_it,))[1]
    measured = finite_difference(lambda p: along(slope(p), second), point, first)
    assert along(bent, second) == pytest.approx(measured, rel=1e-6)


def test_the_bound_of_one_component_at_its_own_center_is_theorem_7_1():
    case = small_case()
    logits = random_logits(case.model)
    center = log_softmax(logits.weights[0], axis=-1)
    found = mixture_elbo_bound(logits, center, case.model)
    assert float(found) == pytest.approx(float(value_and_slope(logits, case.model)[0]), rel=1e-12)


def test_an_unfactorised_prior_is_bounded_from_below():
    """Theorem 7.4, and the same with the shares that maximise it."""
    case = small_case(prior_parts=3)
    for seed in range(5):
        logits = random_logits(case.model, seed=seed)
        every = enumerate_all(case.model, logits)
        exact = np.exp(every.log_q) @ every.log_p
        q = np.exp(log_softmax(logits.weights, axis=-1))
        loose = float(expected_log_prior(q, case.model.prior, tight=False)[0])
        tight = float(expected_log_prior(q, case.model.prior)[0])
        weights = np.exp(case.model.prior.log_weights)
        written = sum(
            w * np.sum(q[0] * p) for w, p in zip(weights, case.model.prior.log_mass, strict=True)
        )
        assert loose == pytest.approx(written, rel=1e-12)
        assert loose <= tight <= exact + 1e-10
        assert float(value_and_slope(logits, case.model)[0]) <= enumerated_elbo(case, logits)


def test_equal_parts_of_a_prior_are_one_prior():
    case = small_case()
    logits = random_logits(case.model)
    q = np.exp(log_softmax(logits.weights, axis=-1))
    one = case.model.prior
    three = one._replace(
        log_mass=np.repeat(one.log_mass, 3, axis=0), log_weights=np.log([0.2, 0.3, 0.5])
    )
    for tight in (False, True):
        np.testing.assert_allclose(
            expected_log_prior(q, three, tight), expected_log_prior(q, one, tight), rtol=1e-12
        )


# ---------------------------------------------------------------- (7.27)


def exact_entropy_slope(model, logits):
    def entropy(log_q, log_alpha):
        codes = jnp.asarray(enumerate_all(model, logits).codes)
        each = jnp.arange(codes.shape[1])
        parts = jnp.stack([part[each, codes].sum(axis=1) for part in log_q])
        whole = jax.nn.logsumexp(parts + log_alpha[:, None], axis=0)
        return -jnp.sum(jnp.exp(whole) * whole)

    def of_logits(weights, mixture):
        return entropy(jax.nn.log_softmax(weights), jax.nn.log_softmax(mixture))

    return jax.grad(of_logits, argnums=(0, 1))(
        jnp.asarray(logits.weights), jnp.asarray(logits.mixture)
    )


def squared_surrogate(log_q, log_alpha, codes):
    """Return (7.27) as printed, whose slope is that of ``q^T log q``:  1 / (2 t) sum_i (log q(w_i) + 1)^2."""
    log_mixture = jax.nn.logsumexp(log_probabilities(log_q, codes) + log_alpha[:, None], axis=0)
    return 0.5 * jnp.mean((log_mixture + 1.0) ** 2)


def test_gradients_of_the_entropy_are_unbiased():
    """400 estimates of 64 draws a component; every entry within 4.5 standard errors (75 entries)."""
    case = small_case(b=4)
    logits = random_logits(case.model, components=2, seed=3)
    right = exact_entropy_slope(case.model, logits)

    def printed(weights, mixture, key):
        log_q, log_alpha = jax.nn.log_softmax(weights), jax.nn.log_softmax(mixture)
        key, pick = jax.random.split(key)
        codes = draw_codes(key, log_q, 128)
        part = jax.random.categorical(pick, log_alpha, shape=(128,))
        return -squared_surrogate(log_q, log_alpha, codes[part, jnp.arange(128)])

    def split(weights, mixture, key):
        log_q, log_alpha = jax.nn.log_softmax(weights), jax.nn.log_softmax(mixture)
        return entropy_surrogate(log_q, log_alpha, draw_codes(key, log_q, 64))[0]

    keys = jax.random.split(jax.random.PRNGKey(0), 400)
    spread = []
    for surrogate in (printed, split):
        slope = jax.vmap(jax.grad(surrogate, argnums=(0, 1)), in_axes=(None, None, 0))
        found = slope(jnp.asarray(logits.weights), jnp.asarray(logits.mixture), keys)
        for draws, exact in zip(found, right, strict=True):
            error = np.std(draws, axis=0, ddof=1) / len(keys) ** 0.5
            assert np.all(np.abs(np.mean(draws, axis=0) - exact) < 4.5 * error + 1e-12)
        spread.append(float(np.mean(np.std(found[0], axis=0))))
    assert spread[1] < 0.5 * spread[0]  # what splitting off the exact part is for


def test_the_sampled_bound_of_a_mixture_is_unbiased():
    """400 estimates of value and slope; within 4 standard errors, slopes along a direction."""
    case = small_case()
    logits = random_logits(case.model, components=2)
    keys = jax.random.split(jax.random.PRNGKey(1), 400)
    many = jax.vmap(lambda key: sampled_value_and_slope(logits, case.model, key, 16))
    (_, values), slopes = many(keys)
    error = np.std(values, ddof=1) / 20.0
    assert abs(np.mean(values) - enumerated_elbo(case, logits)) < 4.0 * error
    direction = direction_like(logits)
    found = sum(
        np.sum(np.asarray(g) * d, axis=tuple(range(1, g.ndim)))
        for g, d in zip(jax.tree.leaves(slopes), jax.tree.leaves(direction), strict=True)
    )
    exact = finite_difference(lambda p: enumerated_elbo(case, p), logits, direction)
    assert abs(np.mean(found) - exact) < 4.0 * np.std(found, ddof=1) / 20.0


# ---------------------------------------------------------------- Theorem 7.2


def test_the_exponential_bound_of_the_logistic_likelihood():
    """(7.18) is the sum over all hypotheses of the first-order expansion, and below the exact average."""
    case = small_case(b=6)
    logits = random_logits(case.model, components=2)
    labels = np.where(case.y > 0, 1.0, -1.0)
    every = enumerate_all(case.model, logits)
    margins = labels * (every.weights @ case.phi.T)
    q = np.exp(every.log_q)
    found = float(
        exponential_bound(
            jax.nn.log_softmax(jnp.asarray(logits.weights)), jax.nn.log_softmax(jnp.asarray(logits.mixture)),
            jnp.asarray(case.model.values), jnp.asarray(case.phi), jnp.asarray(labels),
        )
    )  # fmt: skip
    assert found == pytest.approx(-q @ np.exp(-margins).sum(axis=1), rel=1e-12)
    assert found <= q @ log_expit(margins).sum(axis=1)
    # as the thesis codes classes: 0 is likely where the function is large, y in {0, 1}
    zero_one = (labels < 0).astype(float)
    z = every.weights @ case.phi.T
    printed = (
        -(q @ z) @ zero_one - np.where(zero_one == 0, q @ np.exp(-z), q @ np.exp(z) - q @ z).sum()
    )
    assert found == pytest.approx(printed, rel=1e-12)


def test_slope_of_the_exponential_bound(monkeypatch):
    from vastgp.methods.direct import logistic_bound as discrete_logistic

    monkeypatch.setattr(
        discrete_logistic, "_BLOCK_ENTRIES", 60
    )  # several blocks, the last one padded
    case = small_case(b=4, n=7)
    labels = jnp.asarray(np.where(case.y > 0, 1.0, -1.0))
    logits = random_logits(case.model)
    ask = lambda p: exponential_value_and_slope(p, case.model, jnp.asarray(case.phi), labels)  # noqa: E731
    direction = direction_like(logits)._replace(mixture=np.zeros(1))
    measured = finite_difference(lambda p: ask(p)[0], logits, direction)
    assert along(ask(logits)[1], direction) == pytest.approx(measured, rel=1e-6)


def test_the_quadratic_bound_touches_and_never_exceeds():
    f = np.linspace(-8.0, 8.0, 161)
    for y in (-1.0, 1.0):
        for contact in (0.0, 1e-6, 0.5, 3.0, 20.0):
            linear, precision_, constant = (
                np.asarray(part) for part in quadratic_sites(y, contact)
            )
            bound = linear * f - 0.5 * precision_ * f**2 + constant
            assert np.all(bound <= log_expit(y * f) + 1e-12)
            at = linear * contact - 0.5 * precision_ * contact**2 + constant
            assert at == pytest.approx(log_expit(y * contact), rel=1e-9)


def test_the_quadratic_bound_is_tighter_on_the_wrong_side():
    case = small_case(b=6)
    logits = random_logits(case.model)
    every = enumerate_all(case.model, logits)
    q, z = np.exp(every.log_q), every.weights @ case.phi.T
    mean, variance = q @ z, q @ z**2 - (q @ z) ** 2
    labels = np.where(case.y > 0, 1.0, -1.0)
    # at the best contact E[f^2] = xi^2 and the quadratic term vanishes: log sigmoid(xi) + (y E[f] - xi) / 2
    contact = np.sqrt(mean**2 + variance)
    found = log_expit(contact) + 0.5 * (labels * mean - contact)
    exact = q @ log_expit(labels * z)
    assert np.all(found <= exact + 1e-12)
    sites = quadratic_sites(labels, best_contact(mean, variance))
    averaged = sites.linear * mean - 0.5 * sites.precision * (mean**2 + variance) + sites.constant
    np.testing.assert_allclose(found, averaged, rtol=1e-10, atol=1e-12)
    wrong = labels * mean < -0.5
    assert wrong.any() and np.all(found[wrong] > -(q @ np.exp(-labels * z))[wrong])
    assert float(expit(0.0)) == 0.5
