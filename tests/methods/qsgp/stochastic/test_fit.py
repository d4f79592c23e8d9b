"""Steps of the stochastic solver stay stable on rows that its support says little of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import batched_factorisations, count_programs
from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.bases.draws import purpose_key
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.candidates import BOUNDS
from vastgp.fitting.history import History
from vastgp.fitting.run import Run
from vastgp.kernels import RBF, Matern32
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.stochastic.fit import _ended, fit_stochastic
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.parts import function_order
from vastgp.methods.qsgp.stochastic.sample import draw_samples
from vastgp.methods.qsgp.stochastic.setup import make_plan, make_problem, start_state
from vastgp.methods.qsgp.stochastic.step import _precondition, _renewed, step, step_keys

pytestmark = pytest.mark.little_work


def few_rows(num_basis, noise=0.0):
    """400 rows with their scaling, and a basis."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    rows = as_rows(X, np.sin(3 * X[:, 0]) + noise * rng.standard_normal(400))
    kernel = RBF(np.full(2, 0.7), 1.0)
    return (
        rows,
        Standardizer().fit(rows),
        RandomFourierBasis(kernel, jnp.asarray(seed_key(0)), num_basis),
    )


def test_few_rows_far_from_all_others_do_not_make_it_diverge():
    """Nine rows of 3000, each alone: seldom in a batch, never in its probe, and their error is not interpolated.

    With a damping from the average row the residual grew from 0.21 to 0.28 in these steps.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    X[:9] *= 30.0
    rows = as_rows(X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(3000))
    standardizer = Standardizer().fit(rows)
    kernel = Matern32(3.0 / np.std(X, axis=0), 20.0)
    basis = RandomFourierBasis(kernel, jnp.asarray(seed_key(0)), 4000)
    options = Stochastic(row_batch=50, basis_batch=400, control_rank=100, max_steps=600)
    fit = fit_stochastic(rows, standardizer, basis, Gaussian(0.01), options)
    residual = np.array(fit.loop.history.values["residual"])
    assert residual[-4:].mean() < 1.02 * residual[2:].min() + 0.01


def test_few_functions_in_partial_sets_do_not_make_it_diverge():
    """Noise in directions that no row sees, which nothing takes back: the residual grew from 0.4 to 42 in 600 steps."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2000, 2))
    target = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])
    rows = as_rows(X, target + 0.1 * rng.standard_normal(2000))
    basis = RandomFourierBasis(RBF(np.full(2, 0.3), 1.0), jnp.asarray(seed_key(0)), 600)
    options = Stochastic(row_batch=100, basis_batch=200, control_rank=100, max_steps=500)
    fit = fit_stochastic(rows, Standardizer().fit(rows), basis, Gaussian(0.01), options)
    residual = np.array(fit.loop.history.values["residual"])
    assert residual[-4:].mean() < 1.1 * residual[2:].min()


@pytest.mark.parametrize(
    ("support", "basis_batch"),
    [(300, 300), (200, 300), (300, 200)],
    ids=["expected", "rows", "functions"],
)
def test_preconditioner_is_the_inverse_on_and_below_the_diagonal_of_every_dense_column(
    support, basis_batch
):
    """``(d I + G^T G / p)^-1`` over the functions that a column has; the deflator put to what it stands for."""
    rows, standardizer, basis = few_rows(600, noise=0.1)
    options = Stochastic(
        dense_columns=7, column_batch=3, row_batch=50, basis_batch=basis_batch, control_rank=support
    )
    plan = make_plan(options, rows.n, basis, Gaussian(0.01))
    chosen = jnp.array([0, 3, 6])
    with precision("float64"):
        problem = make_problem(
            plan, options, rows, standardizer, basis, Gaussian(0.01), 0, "float64"
        )
        state = start_state(plan, problem, 0.01, "float64")
        keys = jax.random.split(jax.random.key(1), 2)
        own, _ = draw_samples(
            plan, problem, state, problem.basis, keys, chosen, problem.support_X[:50]
        )
        G, p, d = np.asarray(own.phi_support), plan.support_rows, float(problem.damping)
        order = np.asarray(function_order(plan, own.pairs))
        if not plan.exact_curvature:
            M = np.linalg.inv(p * d * np.eye(p) + G @ G.T)
            H = G[:, [np.flatnonzero(order == r)[0] for r in range(2 * plan.head)]]
            L = np.linalg.cholesky(np.eye(H.shape[1]) - H.T @ M @ H)
            problem = problem._replace(
                deflator=jnp.asarray(M),
                head_solution=jnp.asarray(M @ H),
                head_inverse=jnp.asarray(np.linalg.inv(L)),
            )
        gradient = np.random.default_rng(1).standard_normal((4, G.shape[1]))
        gradient[1:] *= order >= np.asarray(chosen)[:, None]
        found = _precondition(plan, problem, own, jnp.asarray(gradient), chosen)
    for r, first in enumerate([0, 0, 3, 6]):
        mine = np.flatnonzero(order >= first)
        curvature = d * np.eye(len(mine)) + G[:, mine].T @ G[:, mine] / p
        expected = np.linalg.solve(curvature, gradient[r, mine])
        np.testing.assert_allclose(found[r, mine], expected, rtol=1e-6, atol=1e-8 / d)


@pytest.mark.parametrize("support", [300, 100], ids=["functions", "rows"])
def test_steps_with_dense_columns_hold_no_batch_of_factorisations(support):
    """With fewer functions in a set than support rows they did, and a fit on two cores hung."""
    rows, standardizer, basis = few_rows(600, noise=0.1)
    options = Stochastic(
        dense_columns=7, column_batch=3, row_batch=50, basis_batch=200, control_rank=support
    )
    plan = make_plan(options, rows.n, basis, Gaussian(0.01))
    with precision("float32"):
        problem = make_problem(
            plan, options, rows, standardizer, basis, Gaussian(0.01), 0, "float32"
        )
        state = start_state(plan, problem, 0.01, "float32")
        X, y = problem.support_X[:50], problem.support_X[:50, 0]
        assert (
            batched_factorisations(lambda s: step(plan, problem, s, (X, y), jnp.int32(1)), state)
            == []
        )
        batch = jnp.broadcast_to(jnp.eye(3), (2, 3, 3))
        assert batched_factorisations(jax.jit(jnp.linalg.cholesky), batch) != []


def test_expected_matrix_counts_the_functions_that_are_in_every_set():
    """Mean of ``G G^T`` over sets is what the deflator inverts."""
    rows, standardizer, basis = few_rows(20_000)
    options = Stochastic(dense_columns=1000, row_batch=50, basis_batch=4000, control_rank=300)
    plan = make_plan(options, rows.n, basis, Gaussian(0.01))
    with precision("float64"):
        problem = make_problem(
            plan, options, rows, standardizer, basis, Gaussian(0.01), 0, "float64"
        )
        pairs = jnp.arange(basis.num_pairs)
        phi = np.asarray(problem.basis.features(problem.support_X, pairs))
    share = np.where(np.arange(basis.num_pairs) < plan.head, 1.0, 1.0 / plan.tail_factor)
    mean = np.einsum("api,bpi,i->ab", phi, phi, share)
    p, d = plan.support_rows, float(problem.damping)
    # the kernel stands for the sum over all functions: equal to within sampling error
    whitened = np.asarray(problem.deflator) @ (mean + p * d * np.eye(p))
    assert np.abs(np.linalg.eigvals(whitened) - 1).max() < 0.1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_every_set_are_those_of_the_solvers_precision(dtype):
    """Random draws of the two precisions differ."""
    rows, standardizer, basis = few_rows(2000)
    options = Stochastic(dense_columns=4, row_batch=50, basis_batch=400, control_rank=300)
    plan = make_plan(options, 400, basis, Gaussian(0.01))
    with precision(dtype):
        problem = make_problem(plan, options, rows, standardizer, basis, Gaussian(0.01), 0, dtype)
        phi = np.asarray(problem.basis.features(problem.support_X, jnp.arange(2)))
    head = np.stack([phi[:, 0, 0], phi[:, 1, 0], phi[:, 0, 1], phi[:, 1, 1]], axis=1)
    np.testing.assert_allclose(problem.head_solution, problem.deflator @ head, rtol=1e-3, atol=1e-5)


def small_problem():
    """Plan and problem of 400 rows and 120 basis functions, in the precision at hand."""
    rows, standardizer, basis = few_rows(120, noise=0.1)
    options = Stochastic(row_batch=20, basis_batch=40, control_rank=30)
    plan = make_plan(options, rows.n, basis, Gaussian(0.01))
    given = (plan, options, rows, standardizer, basis, Gaussian(0.01), 0, "float64")
    return plan, make_problem(*given)


def test_running_products_are_made_anew_and_the_control_variate_has_mean_zero_again():
    """500 index sets at a state whose running products have drifted: a bias of 60 standard errors, then none."""
    with precision("float64"):
        plan, problem = small_problem()
        problem = problem._replace(numbers=problem.numbers._replace(renew=jnp.int32(7)))
        state = start_state(plan, problem, 0.01, "float64")
        rng = np.random.default_rng(0)
        drifted = state._replace(
            mean=jnp.asarray(rng.standard_normal(state.mean.shape)), support=state.support + 5.0
        )
        phi = np.asarray(problem.basis.features(problem.support_X, jnp.arange(60)))
        truth = np.einsum("pcj,fcj->pf", phi, drifted.mean)

        def largest(number):
            state = _renewed(plan, problem, drifted, jnp.int32(number))
            none = jnp.arange(0)

            def error(key):
                keys = jax.random.split(key)
                X = problem.support_X[:1]
                sets = draw_samples(plan, problem, state, problem.basis, keys, none, X)
                return sets[0].support_error[:, 0]

            found = np.asarray(jax.lax.map(error, jax.random.split(jax.random.key(1), 500)))
            return state, np.abs(found.mean(0) / (found.std(0, ddof=1) / 500**0.5)).max()

        assert largest(6)[1] > 20.0 and largest(0)[1] > 20.0
        state, bias = largest(14)
        assert bias < 4.0
        np.testing.assert_allclose(state.support, truth, atol=1e-10)


def test_keys_of_steps_are_those_of_no_feature_and_of_no_other_purpose():
    """Of a sum of kernels: its terms, their factors, and all that the features of a term draw."""
    data = seed_key(7)
    root = jax.random.wrap_key_data(jnp.asarray(data), impl="threefry2x32")
    features = [root]
    for _ in range(3):
        features += [jax.random.fold_in(key, k) for key in features for k in range(4)]
    steps = [key for t in range(6) for key in step_keys(data, t)]
    steps += [purpose_key(data, name) for name in ("sampling report", "sampled functions")]
    known = [jax.random.key_data(key).tobytes() for key in (*set_of(features), *steps)]
    assert len(set(known)) == len(known)


def set_of(keys):
    """Keys without repetitions."""
    return {jax.random.key_data(key).tobytes(): key for key in keys}.values()


def test_learned_hyperparameters_stay_inside_their_bounds():
    """Of a target without noise the likeliest noise is none: 0.0001 after these steps where nothing holds it."""
    rows, standardizer, basis = few_rows(200)
    options = Stochastic(
        row_batch=50, basis_batch=200, control_rank=50, max_steps=600, freeze_steps=100
    )
    fit = fit_stochastic(
        rows, standardizer, basis, Gaussian(0.02), options, rate=0.2, noise_floor=0.01
    )
    assert fit.likelihood.noise_variance == pytest.approx(0.01, rel=1e-4)
    least, most = BOUNDS["lengthscales"]
    assert np.all(np.asarray(fit.basis.kernel.lengthscales) >= least * (1 - 1e-5))
    assert np.all(np.asarray(fit.basis.kernel.lengthscales) <= most * (1 + 1e-5))


def test_other_rows_seeds_rates_and_noise_are_no_other_program():
    rng, made = np.random.default_rng(0), []
    for n, seed, noise, rate in ((300, 0, 0.01, 0.5), (410, 3, 0.02, 0.3)):
        X = rng.uniform(-1, 1, (n, 2))
        rows = as_rows(X, np.sin(3 * X[:, 0]))
        basis = RandomFourierBasis(RBF(np.full(2, 0.7), 1.0), seed_key(seed), 120)
        options = Stochastic(
            row_batch=20, basis_batch=40, control_rank=30, learning_rate=rate, decay=rate / 100,
            averaging=4 * rate, max_steps=60 + seed,
        )  # fmt: skip
        given = (rows, Standardizer().fit(rows), basis, Gaussian(noise), options)
        with count_programs() as programs:
            fit_stochastic(*given, Run(seed=seed))
            made.append(programs())
    assert 3 <= made[0] <= 10 and made[1] == 0


def test_a_fit_whose_bound_falls_has_not_converged():
    rule = _ended("support_residual", 0.1, 0.1, False, 20, 200)
    assert rule is not None
    for fall, ends in ((0.0, True), (0.5, False)):
        history = History()
        for number in range(40):
            record = {"support_residual": 0.36, "objective": -600.0 - fall * number}
            history.append(50 * (number + 1), 0.0, record)
        stop = rule({}, history)
        assert (stop is not None and stop.converged) is ends
