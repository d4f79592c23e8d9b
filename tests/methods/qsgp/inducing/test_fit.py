"""Steps with an inducing basis: what is recorded of them, kept running, and compiled."""

import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import count_programs
from vastgp._precision import precision
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.methods.qsgp.inducing.fit import _diagnostics, fit_inducing
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.setup import make_plan, rows_problem, weights_problem
from vastgp.methods.qsgp.inducing.state import InducingState, renewed

OPTIONS = Inducing(row_batch=20, basis_batch=30, control_rank=10, max_direct=0, max_steps=30)


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    rows = as_rows(X, np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(n))
    return rows, Standardizer().fit(rows), RBF([0.7, 0.7], 1.0)


def test_products_of_two_estimates_are_averaged_with_their_signs():
    """Clipped to zero, a chunk of noise was a best that no later one could beat."""
    records = {"objective": np.ones(4), "residual_square": np.array([-3.0, 1.0, 0.5, -0.5])}
    state = InducingState(jnp.zeros(2), jnp.zeros(2), jnp.zeros(1))
    found = _diagnostics(state, records, 4)
    assert found["residual_square"] == -0.5 and found["residual"] == 0.0
    with pytest.raises(FloatingPointError, match="diverged before step 4"):
        _diagnostics(state, records | {"residual_square": np.full(4, np.nan)}, 4)


@pytest.mark.parametrize("inputs", [None, 40])
def test_the_function_at_the_support_rows_is_made_anew(inputs):
    with precision("float64"):
        rows, standardizer, kernel = rows_of(60)
        Z = None if inputs is None else np.random.default_rng(1).normal(size=(inputs, 2))
        plan = make_plan(OPTIONS, rows.n, Z)
        given = (plan, OPTIONS, rows, standardizer, kernel, 0.01, 0, "float64")
        problem = rows_problem(*given) if Z is None else weights_problem(*given, Z)
        problem = problem._replace(renew=jnp.int32(7))
        mean = jnp.asarray(np.random.default_rng(2).standard_normal(plan.num_basis))
        drifted = InducingState(mean, mean, jnp.full(plan.support, 5.0))
        truth = kernel(problem.support_X, problem.basis.inputs) @ mean
        for number, expected in ((0, drifted.support), (6, drifted.support), (14, truth)):
            state = renewed(plan, problem, drifted, jnp.int32(number))
            np.testing.assert_allclose(state.support, expected, rtol=1e-10)


def test_a_set_of_one_basis_function_has_a_second_one_beside_the_support():
    """A set holds the support and others: of one function there were no others, and their share was no number."""
    means = [
        fit_inducing(*rows_of(30), None, 0.1, Inducing(basis_batch=size, max_steps=20)).mean
        for size in (1, 2)
    ]
    assert np.all(np.isfinite(means[0]))
    np.testing.assert_array_equal(*means)


def test_other_rows_seeds_and_noise_are_no_other_program():
    Z, made = np.random.default_rng(1).normal(size=(40, 2)), []
    for n, seed, noise in ((80, 0, 0.01), (110, 3, 0.02)):
        given = rows_of(n, seed)
        with count_programs() as programs:
            fit_inducing(*given, Z, noise, OPTIONS, Run(seed=seed))
            made.append(programs())
    assert 3 <= made[0] <= 12 and made[1] == 0
