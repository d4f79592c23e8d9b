"""Learning by slopes of conjugate gradients: repeated rows, ranks, and the climb itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.fitting.adam_ascent import Estimate, climb_evidence
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.run import Run
from vastgp.kernels import RBF, Matern32
from vastgp.likelihoods import Gaussian
from vastgp.methods.iterative import kernel_system
from vastgp.methods.iterative.kernel_system import (
    choose_rank,
    kernel_operator,
    kernel_preconditioner,
)
from vastgp.methods.iterative.learning import IterativeEvidence
from vastgp.options import CG, RouletteCG
from vastgp.solvers import plan
from vastgp.solvers.distinct_rows import known_rows, merge_repeated

KERNEL, NOISE = Matern32([0.8, 1.5], 1.3), 0.2


def repeated_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))[rng.integers(0, 40, 100)]
    return X, np.sin(2.0 * X[:, 0]) + 0.4 * rng.normal(size=100)


def rows_with_noise_of_their_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    inverse, error = rng.uniform(0.5, 2.0, 60), rng.choice([0.0, 0.3, 2.0], 60)
    noise = np.sqrt(0.16 * inverse + error**2) * rng.normal(size=60)
    return X, np.column_stack([np.sin(2.0 * X[:, 0]) + noise, inverse, error**2])


def flat(by_kernel, by_noise):
    return np.append(
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(by_kernel)]), by_noise
    )


@pytest.mark.parametrize("data", [repeated_rows, rows_with_noise_of_their_own])
@pytest.mark.parametrize("solver", ["cg", "rr-cg"])
def test_merged_and_weighted_rows_have_the_evidence_and_the_slope_of_all_rows(solver, data):
    X, y = data()
    value, (by_kernel, by_noise) = ExactEvidence(X, y).value_and_gradient(KERNEL, NOISE)
    params = (KERNEL, Gaussian(NOISE))
    with precision("float64"):
        observed = known_rows(X, y)
        assert len(observed.y) < 41 or y.ndim == 2
        # preconditioned by the matrix of another place, so that probes and iterations matter
        anchor = (Matern32([1.0, 1.2], 1.0), Gaussian(0.3))
        estimate = IterativeEvidence(
            observed, CG(60, 8) if solver == "cg" else RouletteCG(12, 8, temperature=0.3),
            rank=100, seed=0, dtype="float64",
        )  # fmt: skip
        found = [estimate(params, anchor, step) for step in range(60)]
        again = estimate(params, anchor, 7)
    slopes = np.stack([flat(one.by_kernel, one.by_noise) for one in found])
    errors = slopes.std(axis=0, ddof=1) / len(found) ** 0.5
    assert np.all(np.abs(slopes.mean(axis=0) - flat(by_kernel, by_noise)) < 4.0 * errors)
    values = np.array([one.diagnostics["objective"] for one in found])
    assert abs(values.mean() - value) < 4.0 * values.std(ddof=1) / len(values) ** 0.5
    # the standard error over probes is that of the values, where nothing else is random
    if solver == "cg":
        said = np.mean([one.diagnostics["objective_se"] for one in found])
        assert 0.7 < said / values.std(ddof=1) < 1.4
    assert again.diagnostics == found[7].diagnostics


def test_a_full_rank_solves_in_one_step_and_any_rank_helps():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.normal(size=300)
    with precision("float64"):
        observed = merge_repeated(X, y)
        A = np.asarray(kernel_operator(KERNEL, NOISE, observed).product(jnp.eye(300)))
        conditions = []
        for rank in (0, 10, 60, 300):
            P = kernel_preconditioner(KERNEL, NOISE, observed, rank, 0)
            values = np.linalg.eigvals(np.asarray(P(jnp.eye(300))) @ A).real
            conditions.append(values.max() / values.min())
    assert conditions[0] > 1.5 * conditions[1] > 2.0 * conditions[2]
    assert conditions[3] == pytest.approx(1.0, abs=1e-8)


def test_ranks_balance_time_and_stay_in_memory():
    assert choose_rank(2500, 65, 4) == 2500
    assert 1000 < choose_rank(20_000, 9, 4) < choose_rank(20_000, 65, 4) < 8000
    for n in (50_000, 200_000, 2_000_000):
        assert choose_rank(n, 65, 4) * n * 4 <= 500_000_000


def test_beside_an_accelerator_the_host_makes_a_smaller_preconditioner_of_more_bytes(monkeypatch):
    alone = choose_rank(20_000, 65, 4)
    monkeypatch.setattr("vastgp._accelerator.is_present", lambda: True)
    monkeypatch.setattr(plan, "product_rate", lambda dtype: {"float32": 4e13}[dtype])
    assert alone / 4 < choose_rank(20_000, 65, 4) < alone / 3
    assert 500_000_000 < choose_rank(400_000, 65, 4) * 400_000 * 4 <= 2_000_000_000
    # a quarter of the rate of products there
    operations = 3.0 * kernel_system.operations_of_product(20_000, 65)
    assert kernel_system.seconds_of_products(20_000, 65, 3.0) == pytest.approx(operations / 1e13)


def climb(estimate, **options):
    return climb_evidence(estimate, (RBF(1.0), Gaussian(1.0)), Run(), num_rows=100, **options)


def test_climbing_ends_at_the_top_and_averages_out_the_noise():
    target = np.log(np.array([0.5, 2.0, 0.1]))  # lengthscale, variance, noise

    def estimate(params, anchor, step, carried):
        logs = np.log([float(np.ravel(leaf)[0]) for leaf in jax.tree.leaves(params)])
        rng = np.random.default_rng(step)
        down = 100.0 * ((logs - target) + 0.3 * rng.normal(size=3))
        by = -down / np.exp(logs)
        return Estimate(_like(params[0], by), by[2], {"objective": 0.0}, carried + 1)

    kernel, noise, loop = climb(
        estimate, steps=120, rate=0.1, noise_floor=1e-3, carried=np.zeros(1)
    )
    found = np.log([float(kernel.lengthscales), float(kernel.variance), noise])
    assert np.max(np.abs(found - target)) < 0.1
    assert loop.converged and loop.num_iter == 120
    # bounds hold; what has not come to rest says so
    _, noise, loop = climb(estimate, steps=40, rate=0.3, noise_floor=0.5, carried=np.zeros(1))
    assert noise == pytest.approx(0.5, rel=1e-5)
    _, _, loop = climb(estimate, steps=10, rate=0.1, noise_floor=1e-3, carried=np.zeros(1))
    assert not loop.converged
    assert "10 steps of learning left about 0." in loop.reason


def test_a_slow_climb_along_a_ridge_says_what_is_left():
    # the last third of the steps gains next to nothing, and a long way is left
    target, curvature = (
        np.log(np.array([1.0, 1.0, 0.1])) + np.array([30.0, 0.0, 0.0]),
        np.array([1e-3, 1.0, 1.0]),
    )

    def estimate(params, anchor, step, carried):
        logs = np.log([float(np.ravel(leaf)[0]) for leaf in jax.tree.leaves(params)])
        by = -100.0 * curvature * (logs - target) / np.exp(logs)
        return Estimate(_like(params[0], by), by[2], {"objective": 0.0})

    _, _, loop = climb(estimate, steps=20, rate=0.01, noise_floor=1e-3, tol=5e-3)
    assert not loop.converged and "left about" in loop.reason


def test_what_a_climb_leaves_is_estimated_by_its_slopes():
    target = np.log(np.array([0.5, 2.0, 0.1]))
    curvature = np.array([0.3, 0.02, 1.0])
    reached = []

    def estimate(params, anchor, step, carried):
        logs = np.log([float(np.ravel(leaf)[0]) for leaf in jax.tree.leaves(params)])
        reached.append(logs)
        by = -100.0 * curvature * (logs - target) / np.exp(logs)
        return Estimate(_like(params[0], by), by[2], {"objective": 0.0})

    kernel, noise, loop = climb(estimate, steps=12, rate=0.05, noise_floor=1e-3)
    end = np.log([float(kernel.lengthscales), float(kernel.variance), noise])
    left = 0.5 * curvature @ (end - target) ** 2
    assert loop.history.last("left") == pytest.approx(left, rel=0.05)


def test_slopes_that_are_not_finite_end_it_where_it_was():
    def estimate(params, anchor, step, carried):
        nan = np.nan if step == 2 else 1.0
        return Estimate(_like(params[0], [nan, 0.0]), 0.0, {"objective": 0.0})

    kernel, _, loop = climb(estimate, steps=5, rate=0.1, noise_floor=1e-3)
    assert not loop.converged and "not finite" in loop.reason and loop.num_iter == 3
    assert 1.1 < float(kernel.lengthscales) < 1.3


def _like(kernel, values):
    leaves, tree = jax.tree.flatten(kernel)
    return jax.tree.unflatten(tree, [np.asarray(value) for value in values[: len(leaves)]])
