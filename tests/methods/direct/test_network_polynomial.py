"""Networks as polynomials of discrete weights, beside networks that are evaluated at every hypothesis."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from vastgp._precision import precision
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    DiscretePrior,
    QuadraticLikelihood,
)
from vastgp.methods.direct.network_polynomial import (
    network_cost,
    network_products,
    network_statistics,
    network_terms,
    network_value_and_slope,
    single_offers,
)
from vastgp.methods.direct.network_posterior import DiscreteNetworkPosterior
from vastgp.methods.direct.network_start import descend


def forward(X, weights, hidden):
    """A plain forward pass of one hypothesis."""
    state = np.column_stack([np.ones(len(X)), X])
    weights = iter(weights)
    for size in hidden:
        take = lambda width: np.array([next(weights) for _ in range(width)])  # noqa: E731
        state = np.stack([(state @ take(state.shape[1])) ** 2 for _ in range(size)], axis=1)
    out = np.array([next(weights) for _ in range(state.shape[1])])
    return state @ out + next(weights)


CASES = [(1, (2,), 3), (2, (1,), 4), (1, (1, 1), 4), (1, (1, 2), 2)]


@pytest.fixture(params=CASES, ids=str)
def case(request):
    d, hidden, k = request.param
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(9, d)), rng.normal(size=9)
    terms = network_terms(d, hidden)
    b = terms.num_weights
    values = np.sort(rng.normal(size=(b, k)), axis=1)
    prior = DiscretePrior(log_softmax(rng.normal(size=(1, b, k)), axis=-1), np.zeros(1))
    noise, log_noise_prior = np.array([0.3, 1.1]), np.log([0.4, 0.6])
    empty = QuadraticLikelihood(0.0, 0.0, np.zeros(b), np.zeros((b, b)))
    model = DiscreteModel(empty, values, prior, noise, log_noise_prior)
    logits = DiscreteLogits(rng.normal(size=(1, b, k)), np.zeros(1), rng.normal(size=2))
    return d, hidden, X, y, terms, model, logits


def bound_of(terms, model, X, y, function=network_value_and_slope):
    products = network_products(terms)
    psi = terms.input_features(X)
    statistics = network_statistics(terms, products, len(y), y @ y, psi.T @ y, psi.T @ psi)
    tables = (terms.factors, terms.powers, products.factors, products.powers)
    tables = tuple(jnp.asarray(table) for table in tables)
    order = int(products.powers.max())
    return lambda logits: function(logits, model, statistics, tables, order=order)


def test_the_bound_is_the_sum_over_all_hypotheses(case):
    """Up to 4^5 and 3^8 hypotheses, one hidden layer and two, to 1e-10; and its slope by differences."""
    _, hidden, X, y, terms, model, logits = case
    b, k = model.values.shape
    assert k**b <= 3**8
    log_q, log_noise_q = log_softmax(logits.weights[0], axis=-1), log_softmax(logits.noise)
    right = np.exp(log_noise_q) @ (model.log_noise_prior - log_noise_q)
    for codes in product(range(k), repeat=b):
        chosen = (np.arange(b), np.array(codes))
        misfit = np.sum((y - forward(X, model.values[chosen], hidden)) ** 2)
        fit = -0.5 * misfit / model.noise - 0.5 * len(y) * np.log(2 * np.pi * model.noise)
        log_p, log_w = model.prior.log_mass[0][chosen].sum(), log_q[chosen].sum()
        right += np.exp(log_w) * (np.exp(log_noise_q) @ fit + log_p - log_w)
    with precision("float64"):
        ask = bound_of(terms, model, X, y)
        found, slope = ask(logits)
        assert float(found) == pytest.approx(right, rel=1e-11, abs=1e-10)
        rng = np.random.default_rng(2)
        direction = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), logits)
        move = lambda t: jax.tree.map(lambda x, d: x + t * d, logits, direction)  # noqa: E731
        measured = float(ask(move(1e-5))[0] - ask(move(-1e-5))[0]) / 2e-5
    along = sum(
        float(np.sum(np.asarray(g) * d))
        for g, d in zip(jax.tree.leaves(slope), jax.tree.leaves(direction), strict=True)
    )
    assert along == pytest.approx(measured, rel=1e-6)


def test_single_offers_gain_what_they_say_and_nothing_gains_more(case):
    """Of each weight, and of the noise: the bound with its offer, and with random other distributions."""
    *_, X, y, terms, model, logits = case
    rng = np.random.default_rng(3)
    # one weight is certain: no slope by its logits, yet more to gain than by any other
    logits.weights[0, 0] = np.where(np.arange(model.values.shape[1]) == 0, 0.0, -1000.0)

    def alone(j, weight, noise):
        if j == len(model.values):
            return logits._replace(noise=noise)
        weights = np.array(logits.weights)
        weights[0, j] = weight
        return logits._replace(weights=weights)

    with precision("float64"):
        bound = bound_of(terms, model, X, y)
        offers, gains = jax.tree.map(
            np.asarray, bound_of(terms, model, X, y, single_offers)(logits)
        )
        before, slope = bound(logits)
        for j, gain in enumerate(gains):
            own = offers.weights[0, min(j, len(model.values) - 1)]
            taken = float(bound(alone(j, own, offers.noise))[0])
            assert taken - float(before) == pytest.approx(gain, abs=1e-10)
            for _ in range(5):
                other = alone(
                    j, own + rng.normal(size=own.shape), offers.noise + rng.normal(size=2)
                )
                assert float(bound(other)[0]) <= taken + 1e-10
    assert gains[0] > 1e-3 and np.abs(slope.weights[0, 0]).max() < 1e-12


def test_predictive_moments_are_those_of_all_hypotheses(case):
    d, hidden, X, _, _, model, logits = case
    q = np.exp(log_softmax(logits.weights[0], axis=-1))
    posterior = DiscreteNetworkPosterior(d, hidden, model.values, q)
    b, k = q.shape
    mean, second = np.zeros(len(X)), np.zeros(len(X))
    for codes in product(range(k), repeat=b):
        chosen = (np.arange(b), np.array(codes))
        f, weight = forward(X, model.values[chosen], hidden), np.prod(q[chosen])
        mean, second = mean + weight * f, second + weight * f**2
    found, variance = posterior.mean_and_latent_variance(X)
    np.testing.assert_allclose(found, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(posterior.mean(X), mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(variance, second - mean**2, rtol=1e-8, atol=1e-9)
    codes = posterior.codes(3, seed=4)
    drawn = posterior.samples(X, 3, seed=4)
    for s in range(3):
        weights = model.values[np.arange(b), codes[s]]
        np.testing.assert_allclose(drawn[:, s], forward(X, weights, hidden), rtol=1e-9)


@pytest.mark.parametrize(("d", "hidden"), [(1, (2,)), (3, (4,)), (2, (2, 2)), (1, (3, 1))])
def test_the_cost_is_known_beforehand(d, hidden):
    cost, terms = network_cost(d, hidden), network_terms(d, hidden)
    assert cost.weights == terms.num_weights
    assert len(terms.inputs) <= cost.input_terms
    assert len(terms.factors) <= cost.terms
    if len(hidden) == 1:
        assert len(terms.factors) == cost.terms == hidden[0] * (d + 1) * (d + 2) // 2 + 1
    assert (
        len(network_products(terms).factors) <= cost.products == cost.terms * (cost.terms + 1) // 2
    )


def test_no_change_of_one_weight_improves_a_hypothesis(case):
    """``n / 2 log(RSS / n) - sum_j log p_j`` by a forward pass of every neighbour of each hypothesis that is found."""
    _, hidden, X, y, terms, model, _ = case
    values, log_mass = model.values, model.prior.log_mass[0]
    sums = SufficientStatistics.of(terms.input_features(X), y)
    codes, variances = descend(terms, sums, values, log_mass, 1e-9, seed=0)
    index = np.arange(len(values))

    def loss(code):
        rss = np.sum((y - forward(X, values[index, code], hidden)) ** 2)
        return 0.5 * len(y) * np.log(rss / len(y)) - np.sum(log_mass[index, code])

    losses = np.array([loss(code) for code in codes])
    assert np.all(np.diff(losses) > -1e-8)
    residual = y - np.array([forward(X, values[index, code], hidden) for code in codes])
    np.testing.assert_allclose(variances, np.mean(residual**2, axis=1), rtol=1e-8)
    for code, least in zip(codes[:10], losses[:10], strict=True):
        for j, k in product(index, range(values.shape[1])):
            other = code.copy()
            other[j] = k
            assert loss(other) > least - 1e-8
