"""Estimates of the expected log-likelihood from sampled basis functions against the whole expectation."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

from vastgp._precision import precision
from vastgp.likelihoods import Bernoulli, Gaussian, Laplace, Poisson, StudentT
from vastgp.methods.qsgp.stochastic.control_variates import interpolated_error
from vastgp.methods.qsgp.stochastic.sampled_elbo import mean_objective
from vastgp.methods.qsgp.stochastic.sampled_likelihood import (
    SampledBlock,
    plug_in,
    sampling_gap,
    strict_bound,
)

pytestmark = pytest.mark.little_work
CONCAVE = [Gaussian(0.1), Laplace(0.3), Bernoulli(points=48), Bernoulli("probit", 48), Poisson(2.0)]
EVERY = [*CONCAVE, StudentT(0.3, 4.0)]
NAMES = [likelihood.name for likelihood in EVERY]


@pytest.fixture(autouse=True)
def _double():
    with precision("float64"):
        yield


class Problem:
    """Random Fourier features, a mean near the best one, and a chevron factor with ``q`` dense columns."""

    def __init__(self, m, n, q=0, seed=0):
        rng = np.random.default_rng(seed)
        self.m, self.n, self.q = m, n, q
        self.X = rng.uniform(-1, 1, (n, 2))
        angles = self.X @ (2.0 * rng.standard_normal((2, m // 2)))
        self.phi = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(m / 2)
        self.f = np.sin(3 * self.X[:, 0]) + 0.5 * self.X[:, 1]
        # (Phi^T Phi + I / 2)^-1 Phi^T y, by the matrix of the rows, which are fewer
        gram = self.phi @ self.phi.T
        self.mu = self.phi.T @ np.linalg.solve(gram + 0.5 * np.eye(n), 1.5 * self.f)
        self.diagonal = 1 / np.sqrt(1 + 2 * np.sum(self.phi**2, axis=0))
        self.diagonal[:q] = 0.0
        self.dense = np.tril(0.3 * rng.standard_normal((m, q)))
        self.noise = rng.uniform(size=n)

    def targets(self, likelihood):
        if likelihood.name == "bernoulli":
            return np.where(self.noise < 1 / (1 + np.exp(-3 * self.f)), 1.0, -1.0)
        if likelihood.name == "poisson":
            return np.floor(2 * np.exp(self.f) + 2 * self.noise)
        return self.f + 0.5 * np.log(self.noise / (1 - self.noise)) / 2

    @property
    def latent(self):
        """Mean and variance by the whole of ``C``."""
        C = np.diag(self.diagonal)
        C[:, : self.q] += self.dense
        return self.phi @ self.mu, np.sum((self.phi @ C) ** 2, axis=1)

    def exact(self, likelihood):
        """By 101 Gauss-Hermite nodes at every row."""
        z, w = hermegauss(101)
        mean, variance = self.latent
        f = mean[:, None] + np.sqrt(variance)[:, None] * z
        values = np.asarray(likelihood.log_prob(self.targets(likelihood)[:, None], f))
        return float(np.sum(values @ (w / w.sum())))

    def block(self, index, factor=None):
        factor = self.m / len(index) if factor is None else factor
        return SampledBlock(
            jnp.asarray(self.phi)[:, index], jnp.asarray(self.mu)[index],
            jnp.asarray(self.dense)[index], jnp.asarray(self.diagonal)[index], factor,
        )  # fmt: skip

    def draws(self, evaluate, size, number, seed=1):
        """Values of ``evaluate(block, other block)`` over independent pairs of index sets."""

        def one(key):
            pair = [jax.random.permutation(k, self.m)[:size] for k in jax.random.split(key)]
            return evaluate(*map(self.block, pair))

        keys = jax.random.split(jax.random.key(seed), number)
        return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))


# ---------------------------------------------------------------- the strict bound
@pytest.mark.parametrize(
    ("likelihood", "q"),
    [(each, 3 * (number % 2)) for number, each in enumerate(CONCAVE)],
    ids=NAMES[:-1],
)
def test_the_strict_bound_lies_below(likelihood, q):
    """Mean of 1500 draws of 10 of 40 basis functions; the exact value is within 4 standard errors above, or farther."""
    problem = Problem(40, 30, q)
    y = jnp.asarray(problem.targets(likelihood))
    values = problem.draws(lambda i, _: strict_bound(likelihood, y, i, row_factor=1.0), 10, 1500)
    found = sampling_gap(values, problem.exact(likelihood))
    assert found.gap < 4 * found.standard_error
    assert found.gap < 0  # and here it is well below


def test_the_strict_bound_on_average_over_every_set():
    """No randomness: all 66 sets of 2 of 12 functions, bound and equality of the unbiased parts."""
    likelihood, problem = Bernoulli(points=48), Problem(12, 8, 2)
    y, mean = jnp.asarray(problem.targets(likelihood)), problem.latent[0]
    blocks = [problem.block(np.array(pair)) for pair in combinations(range(12), 2)]
    np.testing.assert_allclose(np.mean([b.latent_mean() for b in blocks], axis=0), mean, atol=1e-12)
    values = [strict_bound(likelihood, y, block, row_factor=1.0) for block in blocks]
    assert np.mean(values) < problem.exact(likelihood)


@pytest.mark.parametrize("likelihood", EVERY, ids=NAMES)
def test_both_are_exact_when_nothing_is_left_out(likelihood):
    problem = Problem(40, 30, 3)
    y, (mean, variance) = jnp.asarray(problem.targets(likelihood)), problem.latent
    whole = problem.block(np.arange(40))
    wanted = float(np.sum(likelihood.expected_log_prob(y, mean, variance)))
    if likelihood.name not in ("laplace", "student-t"):  # where 101 nodes are not exact themselves
        assert wanted == pytest.approx(problem.exact(likelihood), rel=1e-10)
    for correct in (False, True):
        found = plug_in(likelihood, y, whole, whole, row_factor=1.0, correct=correct)
        assert float(found) == pytest.approx(wanted, rel=1e-10)
    if likelihood.log_concave:
        found = strict_bound(likelihood, y, whole, row_factor=1.0)
        assert float(found) == pytest.approx(wanted, rel=1e-10)


def test_no_bound_without_concavity():
    problem = Problem(40, 30)
    with pytest.raises(ValueError, match=r"'student-t' is not log-concave.*Use plug_in"):
        strict_bound(StudentT(0.3), jnp.zeros(30), problem.block(np.arange(9)), row_factor=1.0)


# ---------------------------------------------------------------- plug-in
def test_the_variance_is_unbiased():
    """All pairs of sets of 2 of 8 functions with unequal probabilities: the exact variance on average."""
    problem = Problem(8, 5, 2)
    rng = np.random.default_rng(3)
    weight = rng.uniform(1, 2, 8)
    total = sum(weight[i] * weight[j] for i, j in combinations(range(8), 2))
    odds = {pair: weight[pair[0]] * weight[pair[1]] / total for pair in combinations(range(8), 2)}
    inclusion = np.array([sum(p for pair, p in odds.items() if k in pair) for k in range(8)])
    mean = diagonal = products = 0.0
    for pair, p in odds.items():
        index = np.array(pair)
        block = problem.block(index, jnp.asarray(1 / inclusion[index]))
        mean = mean + p * block.latent_mean()
        diagonal = diagonal + p * block.diagonal_variance()
        products = products + p * block.dense_products()
    wanted = problem.latent
    np.testing.assert_allclose(mean, wanted[0], rtol=1e-10)
    # independent sets: the mean of the product is the product of the means
    np.testing.assert_allclose(diagonal + np.sum(products**2, axis=1), wanted[1], rtol=1e-10)


@pytest.mark.parametrize("likelihood", EVERY, ids=NAMES)
def test_sampling_the_covariance_costs_little(likelihood):
    """2000 basis functions, 200 sampled, exact mean: below 1 % of the value."""
    problem = Problem(2000, 60)
    y, mean = jnp.asarray(problem.targets(likelihood)), jnp.asarray(problem.latent[0])
    values = problem.draws(
        lambda i, j: plug_in(likelihood, y, i, j, row_factor=1.0, means=(mean, mean)), 200, 60
    )
    full = np.sum(likelihood.expected_log_prob(y, *problem.latent))
    assert abs(sampling_gap(values, full).relative) < 0.01


def test_known_dense_columns():
    likelihood, problem = Bernoulli(), Problem(40, 30, 3)
    y, mean = jnp.asarray(problem.targets(likelihood)), jnp.asarray(problem.latent[0])
    exact = jnp.sum((problem.phi @ problem.dense) ** 2, axis=1)
    variance = exact + problem.phi**2 @ problem.diagonal**2
    blocks = [problem.block(np.arange(k, 40, 4)) for k in range(4)]
    estimates = [block.diagonal_variance() for block in blocks]
    np.testing.assert_allclose(exact + np.mean(estimates, axis=0), variance, rtol=1e-10)
    found = plug_in(
        likelihood, y, *blocks[:2], row_factor=2.0, means=(mean, mean), dense_variance=exact
    )
    wanted = likelihood.expected_log_prob(y, mean, exact + 0.5 * (estimates[0] + estimates[1]))
    assert float(found) == pytest.approx(2.0 * float(np.sum(wanted)))


# ---------------------------------------------------------------- the noise of the mean
@pytest.mark.parametrize("likelihood", EVERY, ids=NAMES)
def test_what_sampling_the_mean_costs_is_halved(likelihood):
    """By the second-order correction, by a control variate and by both: 3000 draws of 20 of 40."""
    problem = Problem(40, 30)
    y, (mean, variance) = jnp.asarray(problem.targets(likelihood)), problem.latent
    support = problem.X[:15]
    kernel = lambda A, B: np.exp(-2.0 * ((A[:, None] - B) ** 2).sum(-1))  # noqa: E731
    inverse = jnp.asarray(np.linalg.inv(kernel(support, support) + 1e-3 * np.eye(15)))
    cross = jnp.asarray(kernel(problem.X, support))

    def controlled(block):
        estimate = block.latent_mean()
        error = (estimate - mean)[:15, None]  # the first rows are the support
        return estimate - interpolated_error(cross, inverse, error)[:, 0]

    def evaluate(i, j):
        means = (controlled(i), controlled(j))
        return jnp.stack(
            [
                plug_in(likelihood, y, i, j, row_factor=1.0, means=given, correct=correct)
                for given in (None, means)
                for correct in (False, True)
            ]
        )

    values = problem.draws(evaluate, 20, 3000)
    full = np.sum(likelihood.expected_log_prob(y, mean, variance))
    plain, corrected, control, both = (sampling_gap(column, full) for column in values.T)
    assert plain.gap < -4 * plain.standard_error  # there is something to repair
    for better in (corrected, control, both):
        assert abs(better.gap) < 0.5 * abs(plain.gap) + 4 * better.standard_error
    assert abs(control.gap) < 0.5 * abs(plain.gap)
    assert abs(both.gap) < 0.5 * abs(plain.gap)


def test_corrected_gaussian_is_theorem_1():
    likelihood, problem = Gaussian(0.2), Problem(40, 30)
    y = jnp.asarray(problem.targets(likelihood))
    i, j = problem.block(np.arange(0, 40, 3)), problem.block(np.arange(1, 40, 3))
    found = plug_in(likelihood, y, i, j, row_factor=3.0, correct=True)
    variance = 0.5 * (i.diagonal_variance() + j.diagonal_variance())
    objective = mean_objective(
        y, i.latent_mean(), j.latent_mean(), 0.0, noise_variance=0.2, row_factor=3.0
    )
    constant = 3.0 * jnp.sum((y**2 + variance) / 0.2 + jnp.log(2 * jnp.pi * 0.2))
    assert float(found) == pytest.approx(float(-0.5 * (objective + constant)), rel=1e-12)


def test_a_corrected_mean_keeps_the_bound():
    """The strict bound with half of the noise removed is higher, and still below: 1500 draws."""
    likelihood, problem = Bernoulli(points=48), Problem(40, 30)
    y, mean = jnp.asarray(problem.targets(likelihood)), problem.latent[0]

    def evaluate(i, _):
        better = 0.5 * (i.latent_mean() + mean)
        return jnp.stack(
            [strict_bound(likelihood, y, i, row_factor=1.0, mean=given) for given in (None, better)]
        )

    values = problem.draws(evaluate, 10, 1500)
    plain, better = (sampling_gap(column, problem.exact(likelihood)) for column in values.T)
    assert plain.gap < better.gap < 0


# ---------------------------------------------------------------- gradients and the report
# every likelihood with the correction, which is the plug-in estimate and a term; each with closed forms and quadrature
@pytest.mark.parametrize(
    ("which", "likelihood"),
    [
        *(("corrected", each) for each in EVERY),
        *(
            (which, each)
            for which in ("strict", "plug-in")
            for each in (Gaussian(0.1), Laplace(0.3))
        ),
        ("strict", Bernoulli(points=48)),
        ("plug-in", StudentT(0.3, 4.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_gradients(likelihood, which):
    """By the mean, the dense columns, the diagonal and the features, index sets fixed, along random directions."""
    problem = Problem(40, 12, 2)
    y = jnp.asarray(problem.targets(likelihood))
    # a smooth point: the dense part's product of two estimates may be negative where it is larger
    problem.dense = 0.2 * problem.dense
    blocks = problem.block(np.arange(0, 40, 3)), problem.block(np.arange(1, 40, 3))

    def value(blocks):
        if which == "strict":
            return strict_bound(likelihood, y, blocks[0], row_factor=2.0)
        return plug_in(likelihood, y, *blocks, row_factor=2.0, correct=which == "corrected")

    value = jax.jit(value)
    gradient = jax.jit(jax.grad(value))(blocks)
    rng = np.random.default_rng(5)
    for _ in range(3):
        way = jax.tree.map(lambda leaf: rng.standard_normal(np.shape(leaf)), blocks)
        slope = sum(
            float(np.sum(a * b))
            for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(way), strict=True)
        )
        ends = [
            float(value(jax.tree.map(lambda a, b, h=h: a + h * b, blocks, way)))
            for h in (1e-5, -1e-5)
        ]
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-5)


def test_the_report():
    found = sampling_gap([-11.0, -13.0], -10.0)
    assert found == (-2.0, 1.0, -10.0, 2)
    assert found.relative == -0.2
    assert str(found) == "sampled minus full-batch -2 +- 1 nats (-20 % of -10, 2 draws)"
    for bad in ([1.0], 1.0, [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="vector of at least two draws, received shape"):
            sampling_gap(bad, 0.0)
