"""Slopes of the evidence by random truncations have the exact mean, where those of fixed ones are far from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import as_dtype, precision
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.truncation import Roulette, roulette
from vastgp.kernels import RBF
from vastgp.kernels.products import KernelMatrix
from vastgp.likelihoods import Gaussian
from vastgp.methods.iterative.evidence import (
    evidence_slope_by_cg,
    evidence_slope_of_run,
    log_determinants,
    plain_weights,
    quadratic_term,
    roulette_weights,
)
from vastgp.methods.random_feature.learning import FeatureEvidence
from vastgp.solvers.preconditioners import NoPreconditioner, low_rank_preconditioner

N, NOISE, DRAWS, EXPECTED = 100, 0.02, 5000, 20
# Terms of random features, each a call of its own. Features alone, a fifth as many, are found 66 standard errors off.
TERMS = 2000


def data(n=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


KERNEL = RBF(np.array([0.5, 0.6]), 1.3)


def exact_slope(X, y, noise):
    _, (by_kernel, by_noise) = ExactEvidence(X, y).value_and_gradient(KERNEL, noise)
    return np.append(
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(by_kernel)]), by_noise
    )


def preconditioner(A, rank=10):
    values, vectors = np.linalg.eigh(A - NOISE * np.eye(N))
    factor = np.asfortranarray((vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))).T)
    return low_rank_preconditioner(factor, 1.3, NOISE)


@pytest.fixture(scope="module")
def problem():
    X, y = data()
    with precision("float64"):
        system = KernelMatrix(
            as_dtype(KERNEL, "float64"), jnp.asarray(NOISE), jnp.asarray(X), jnp.ones(N)
        )
        A = np.asarray(system.product(jnp.eye(N)))
    return system, y, A


def slopes(problem, P, weights, seed):
    """Return one slope for each triple of weights, each with a probe of its own, and the iterations."""
    system, y, _ = problem
    with precision("float64"):
        probes = P.draw(jax.random.key(seed), DRAWS, jnp.asarray(y))[:, None]

        def one(drawn):
            z, w = drawn
            found = evidence_slope_of_run(system, jnp.asarray(y), z, P, w, 1e-11)
            flat = [jnp.ravel(leaf) for leaf in jax.tree.leaves(found.by_kernel)]
            return jnp.append(jnp.concatenate(flat), found.by_noise), found.run.iterations

        run = jax.jit(lambda given: jax.lax.map(one, given, batch_size=100))
        found, iterations = run((probes, jnp.asarray(weights)))
    return np.asarray(found), np.asarray(iterations)


def in_standard_errors(values, truth):
    return (values.mean(axis=0) - truth) / (values.std(axis=0, ddof=1) / len(values) ** 0.5)


def test_russian_roulette_has_the_slope_of_cholesky_where_conjugate_gradients_have_not(problem):
    system, y, _ = problem
    truth = exact_slope(np.asarray(system.X), y, NOISE)
    law = roulette(EXPECTED, 0.05, N)
    uniform = 1.0 - np.random.default_rng(1).random((DRAWS, 2))
    weights = np.stack([np.stack(roulette_weights(law, u), axis=1) for u in uniform])
    found, iterations = slopes(problem, NoPreconditioner(), weights, seed=2)
    assert abs(iterations.mean() - EXPECTED) < 1.5
    assert np.all(np.abs(in_standard_errors(found, truth)) < 4.0)
    fixed = np.broadcast_to(np.stack(plain_weights(EXPECTED, N), axis=1), weights.shape)
    plain, iterations = slopes(problem, NoPreconditioner(), fixed, seed=3)
    assert np.all(iterations == EXPECTED)
    assert np.all(np.abs(in_standard_errors(plain, truth)) > 10.0)


def test_preconditioned_probes_leave_the_mean_and_lower_the_variance(problem):
    system, y, A = problem
    truth = exact_slope(np.asarray(system.X), y, NOISE)
    law = Roulette(2, N, 0.3)
    uniform = 1.0 - np.random.default_rng(4).random((DRAWS, 2))
    weights = np.stack([np.stack(roulette_weights(law, u), axis=1) for u in uniform])
    with precision("float64"):
        P = preconditioner(A)
    found, _ = slopes(problem, P, weights, seed=5)
    assert np.all(np.abs(in_standard_errors(found, truth)) < 4.0)


def test_one_truncation_for_both_solutions_would_be_biased(problem):
    system, y, _ = problem
    truth = exact_slope(np.asarray(system.X), y, NOISE)
    law = roulette(EXPECTED, 0.05, N)
    uniform = np.repeat(1.0 - np.random.default_rng(1).random((DRAWS, 1)), 2, axis=1)
    weights = np.stack([np.stack(roulette_weights(law, u), axis=1) for u in uniform])
    # the probes' law is of the later of two: theirs is a single one here
    weights[:, :, 2] = weights[:, :, 0]
    found, _ = slopes(problem, NoPreconditioner(), weights, seed=2)
    assert np.any(np.abs(in_standard_errors(found, truth)) > 4.0)


def test_all_iterations_give_the_evidence_of_cholesky_and_the_values_telescope(problem):
    system, y, A = problem
    _, (by_kernel, by_noise) = ExactEvidence(np.asarray(system.X), y).value_and_gradient(
        KERNEL, NOISE
    )
    full = plain_weights(3 * N, 3 * N)
    with precision("float64"):
        basis_probes = jnp.sqrt(N) * jnp.eye(N)  # the trace of these is exact
        found = evidence_slope_by_cg(
            system, jnp.asarray(y), basis_probes, NoPreconditioner(),
            jnp.asarray(np.stack(full, axis=1)), 1e-13,
        )  # fmt: skip
    for mine, theirs in zip(
        [*jax.tree.leaves(found.by_kernel), found.by_noise],
        [*jax.tree.leaves(by_kernel), by_noise],
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8)
    fit = quadratic_term(found.run, full.first)
    assert fit == pytest.approx(y @ np.linalg.solve(A, y), rel=1e-8)
    logs = log_determinants(found.run, full.probes)
    assert np.mean(logs) == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-8)
    # stopped early, the first is too small and the second too large (theorem 1)
    few = plain_weights(10, 3 * N)
    assert quadratic_term(found.run, few.first) < fit
    # every truncation of the roulette by its probability: the exact values again, with no drawing at all
    law = Roulette(5, 3 * N, 0.1)
    j = np.arange(5, 3 * N + 1)
    masses = law.survival(j) - law.survival(j + 1)
    kept = masses > 1e-14
    mean = sum(
        p * quadratic_term(found.run, law.weights(int(J)))
        for p, J in zip(masses[kept], j[kept], strict=True)
    )
    assert mean == pytest.approx(fit, rel=1e-8)
    few_probes = found.run._replace(
        square=found.run.square[:3],
        lengths=found.run.lengths[:, :3],
        ratios=found.run.ratios[:, :3],
    )
    exact = log_determinants(few_probes, full.probes)
    mean = sum(
        p * log_determinants(few_probes, law.weights(int(J)))
        for p, J in zip(masses[kept][:120], j[kept][:120], strict=True)
    )
    np.testing.assert_allclose(mean, exact, rtol=1e-4)
    assert np.all(log_determinants(few_probes, few.probes) > exact)


def feature_evidence(debias):
    X, y = data(40)
    return FeatureEvidence(
        X,
        y,
        num_basis=32,
        debiased=debias is not None,
        first_basis=8,
        basis_step=8,
        exact=True,
        seed=0,
    )


@pytest.mark.slow
def test_a_single_term_of_random_features_has_the_slope_of_cholesky_where_features_have_not():
    noise = 0.2
    params = (KERNEL, Gaussian(noise))
    debiased, plain = feature_evidence("single-sample"), feature_evidence("single-sample")
    truth = exact_slope(*data(40), noise)
    assert debiased.law.mean() < 24.0

    def flat(found):
        leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(found.by_kernel)]
        return np.append(np.concatenate(leaves), found.by_noise)

    with precision("float64"):
        found = np.stack([flat(debiased(params, params, step)) for step in range(TERMS)])
        # as many features as the mean of the truncation, or more
        biased = np.stack(
            [
                flat(plain._of_sizes(KERNEL, noise, plain.key(step), [(24, 1.0)]))
                for step in range(TERMS // 5)
            ]
        )
    assert np.all(np.abs(in_standard_errors(found, truth)) < 4.0)
    assert np.any(np.abs(in_standard_errors(biased, truth)) > 10.0)


def test_the_terms_of_random_features_telescope_to_the_exact_evidence():
    estimate, noise = feature_evidence("single-sample"), 0.2
    with precision("float64"):
        key, p = estimate.key(3), estimate.law.probabilities()
        terms = [estimate.term(KERNEL, noise, term, key) for term in range(len(p))]
    mean = sum(q * term.diagnostics["objective"] for q, term in zip(p, terms, strict=True))
    value, (by_kernel, by_noise) = ExactEvidence(*data(40)).value_and_gradient(KERNEL, noise)
    assert mean == pytest.approx(value, rel=1e-9)
    assert sum(q * term.by_noise for q, term in zip(p, terms, strict=True)) == pytest.approx(
        by_noise
    )
    for place, leaf in enumerate(jax.tree.leaves(by_kernel)):
        found = sum(
            q * jax.tree.leaves(term.by_kernel)[place] for q, term in zip(p, terms, strict=True)
        )
        np.testing.assert_allclose(found, leaf, rtol=1e-8)
