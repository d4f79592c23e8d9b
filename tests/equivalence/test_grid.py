"""Grids with gaps: every solver is the dense exact Gaussian process (thesis, Propositions 3.1 to 3.3)."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from grid_cases import CASES, GAPS, NOISE, rows_of
from vastgp._precision import precision
from vastgp.kernels import RBF, GridKernel, Matern32
from vastgp.linalg.kronecker import KroneckerEigen
from vastgp.methods.grid.evidence import GridObjective
from vastgp.methods.grid.options import VarianceSamples
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.probes import GridProbes, estimate_of
from vastgp.methods.grid.selected_spectrum import fill_preconditioner, ignore_preconditioner
from vastgp.methods.grid.solver import GridSolver, mostly_gaps
from vastgp.methods.grid.spectrum import (
    compressed_inverse_trace,
    compressed_log_determinant,
    nystrom_inverse_trace,
    nystrom_log_determinant,
)


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "-"))
def case(request):
    return CASES[request.param]


def posterior_of(case, observed, kind, rank=0):
    solver = case.solver(observed, kind, rank=rank)
    objective = GridObjective(case.axes, case.values, solver)
    found = objective.solve(case.kernel, NOISE)
    assert found.solution.converged
    return GridPosterior(case.kernel, NOISE, case.axes, found.filled(), solver)


@pytest.mark.parametrize("kind", ["fill-gaps", "ignore-gaps"])
def test_mean_and_variance_are_those_of_the_dense_gaussian_process(case, kind, monkeypatch):
    """By iterations (rank 0), and with the matrix factorised before any."""
    monkeypatch.setattr("vastgp.methods.grid.solver._LEAST_TRIED", 0)
    monkeypatch.setattr("vastgp.methods.grid.solver._TRIED_SHARE", 0.0)
    for gaps, rank in zip(GAPS, (0, 0, None), strict=True):
        observed = case.observed(gaps)
        A, alpha, *_ = case.dense(observed)
        cross = case.covariance(case.rows, case.rows[observed])
        explained = np.einsum("ij,ji->i", cross, np.linalg.solve(A, cross.T))
        prior = np.diagonal(case.covariance(case.rows, case.rows))
        posterior = posterior_of(case, observed, kind, rank)
        weights = posterior.weights
        assert np.all(weights[~observed] == 0.0)
        np.testing.assert_allclose(weights[observed], alpha, atol=1e-8)
        np.testing.assert_allclose(posterior.mean(case.axes), cross @ alpha, atol=1e-8)
        variance = posterior.variance(case.axes, "exact")
        np.testing.assert_allclose(variance, prior - explained, atol=1e-8)


def test_penalised_gaps_approach_it_with_the_penalty(case):
    observed = case.observed(0.3)
    _, alpha, *_ = case.dense(observed)
    errors = []
    for penalty in (1e2, 1e4, 1e8):
        solver = case.solver(observed, "penalize-gaps", penalty=penalty)
        found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
        errors.append(np.max(np.abs(np.asarray(found.solution.weights[0])[observed] - alpha)))
    scale = np.max(np.abs(alpha))
    assert errors[2] < 1e-5 * scale
    # the error falls as one over the penalty
    assert 30 < errors[0] / errors[1] < 300


def test_without_gaps_evidence_and_cross_validation_are_exact_and_nothing_iterates(case):
    observed = case.observed(0.0)
    _, _, evidence, gcv = case.dense(observed)
    for criterion, expected in (("evidence", evidence), ("gcv", gcv)):
        solver = case.solver(observed)
        value = GridObjective(case.axes, case.values, solver, criterion)(case.kernel, NOISE)
        assert value == pytest.approx(expected, abs=1e-8)
        assert solver.iterations == 0


def test_with_the_true_spectrum_evidence_and_cross_validation_are_those_of_the_dense_one(case):
    """What gaps approximate is the spectrum alone: with it given, both criteria are exact."""
    for gaps in GAPS[1:]:
        observed = case.observed(gaps)
        A, _, evidence, gcv = case.dense(observed)
        solver = case.solver(observed, "ignore-gaps" if mostly_gaps(observed) else "fill-gaps")
        true = (np.linalg.slogdet(A)[1], np.trace(np.linalg.inv(A)))
        for criterion, spectral, expected in zip(
            ("evidence", "gcv"), true, (evidence, gcv), strict=True
        ):
            objective = GridObjective(case.axes, case.values, solver, criterion)
            value = objective.value(objective.solve(case.kernel, NOISE), spectral)
            assert value == pytest.approx(expected, abs=1e-8)


def test_nystrom_is_near_for_random_gaps(case):
    """An approximation: its error is stated, not hidden. Here within a tenth of what the gaps change."""
    observed = case.observed(0.3)
    A = case.dense(observed)[0]
    eigen = GridObjective(case.axes, case.values, case.solver(observed)).eigen(case.kernel)
    got = nystrom_log_determinant(eigen, NOISE, int(observed.sum())).value
    whole = case.dense(case.observed(0.0))[0]
    exact = np.linalg.slogdet(A)[1]
    assert abs(got - exact) < 0.35 * abs(np.linalg.slogdet(whole)[1] - exact) + 5.0
    trace = nystrom_inverse_trace(eigen, NOISE, int(observed.sum())).value
    assert trace == pytest.approx(np.trace(np.linalg.inv(A)), rel=0.25)


def test_free_compression_is_exact_for_multiples_of_the_identity_and_without_gaps(case):
    observed = case.observed(0.3)
    count = int(observed.sum())
    identity = KroneckerEigen(
        tuple(np.eye(len(axis)) for axis in case.axes),
        tuple(np.ones(len(axis)) for axis in case.axes),
        np.float64(1.7),
    )
    got = compressed_log_determinant(identity, NOISE, count).value
    assert got == pytest.approx(count * np.log(1.7 + NOISE), rel=1e-12)
    got = compressed_inverse_trace(identity, NOISE, count).value
    assert got == pytest.approx(count / (1.7 + NOISE), rel=1e-10)
    eigen = GridObjective(case.axes, case.values, case.solver(observed)).eigen(case.kernel)
    A = case.dense(case.observed(0.0))[0]
    whole = compressed_log_determinant(eigen, NOISE, observed.size).value
    assert whole == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)
    # its derivative by the noise is the trace
    trace = compressed_inverse_trace(eigen, NOISE, count).value
    assert compressed_log_determinant(eigen, NOISE, count).by_noise == pytest.approx(trace)


def test_free_compression_is_what_random_gaps_come_near_to_as_grids_grow():
    """Mean over random gaps, per observed value: the error shrinks with the grid, and Nystrom's does not."""
    kernel = GridKernel((Matern32(4.0), Matern32(4.0)), (("t",), ("x",)))
    errors = {"free": [], "nystrom": []}
    for side in (8, 16, 32):
        axes = (np.arange(float(side))[:, None],) * 2
        rng = np.random.default_rng(side)
        draws = {name: [] for name in errors}
        for _ in range(5):
            observed = rng.uniform(size=side**2) > 0.3
            solver = GridSolver(observed, "fill-gaps")
            eigen = GridObjective(axes, np.zeros(side**2), solver).eigen(kernel)
            K = np.kron(*[np.asarray(factor) for factor in eigen.factors()])
            n = int(observed.sum())
            exact = np.linalg.slogdet(K[np.ix_(observed, observed)] + NOISE * np.eye(n))[1]
            draws["free"].append((compressed_log_determinant(eigen, NOISE, n).value - exact) / n)
            draws["nystrom"].append((nystrom_log_determinant(eigen, NOISE, n).value - exact) / n)
        for name, each in draws.items():
            errors[name].append(abs(np.mean(each)))
    assert errors["free"][2] < 0.01
    assert errors["nystrom"][2] > 5.0 * errors["free"][2]


@pytest.mark.parametrize("gaps", [0.3, 0.9])
def test_probes_are_unbiased_and_their_errors_honest(gaps):
    case = CASES["a group and outputs"]
    observed = case.observed(gaps)
    A = case.dense(observed)[0]
    solver = case.solver(observed, "ignore-gaps" if mostly_gaps(observed) else "fill-gaps")
    probes = GridProbes(solver, num_probes=200, num_steps=150, seed=0)
    eigen = GridObjective(case.axes, case.values, solver).eigen(case.kernel)
    with precision("float64"):
        system = solver.at(eigen, NOISE)
        determinant = probes.log_determinant(system)
        trace = estimate_of(np.concatenate([e.values for e in probes.inverse_trace(system)]))
    exact = np.linalg.slogdet(A)[1], np.trace(np.linalg.inv(A))
    for estimate, truth in zip((determinant, trace), exact, strict=True):
        assert 0 < estimate.standard_error < 0.1 * abs(truth) + 1.0
        assert abs(estimate.value - truth) < 4.0 * estimate.standard_error


def test_without_gaps_probes_have_nothing_to_estimate():
    case = CASES["two dimensions"]
    observed = case.observed(0.0)
    solver = case.solver(observed)
    eigen = GridObjective(case.axes, case.values, solver).eigen(case.kernel)
    with precision("float64"):
        estimate = GridProbes(solver, 4, 20, 0).log_determinant(solver.at(eigen, NOISE))
    assert estimate.standard_error == 0.0
    exact = np.linalg.slogdet(case.dense(observed)[0])[1]
    assert estimate.value == pytest.approx(exact, abs=1e-9)


def test_preconditioners_change_the_work_and_not_the_solution():
    case = CASES["two dimensions"]
    observed = case.observed(0.5)
    _, alpha, *_ = case.dense(observed)
    eigen = GridObjective(case.axes, case.values, case.solver(observed)).eigen(case.kernel)
    steps = {}
    with precision("float64"):
        y = jnp.asarray(np.where(observed, case.values, 0.0)[None])
        for kind, rank in (("ignore", 0), ("ignore", 32), ("fill", 0), ("fill", 60)):
            solver = case.solver(observed, f"{kind}-gaps", rank=rank)
            solution = solver.at(eigen, NOISE).solve(y)
            np.testing.assert_allclose(np.asarray(solution.weights[0])[observed], alpha, atol=1e-9)
            steps[kind, rank] = solution.iterations
    assert steps["ignore", 32] < 0.5 * steps["ignore", 0]


def test_the_low_rank_inverse_is_that_of_its_matrix():
    """Equations (3.7) and (3.8), by the matrices formed; rough kernels, so that no eigenvalues tie at zero."""
    rough = GridKernel((Matern32(0.5), Matern32(0.8)), (("t",), ("x",)))
    case = replace(CASES["two dimensions"], kernel=rough)
    observed = case.observed(0.5)
    eigen = GridObjective(case.axes, case.values, case.solver(observed)).eigen(case.kernel)
    with precision("float64"):
        cast = eigen.astype("float64")
        Q = np.asarray(cast.rotate_back(jnp.eye(observed.size))).T
        t = np.asarray(cast.spectrum())
        for low, mask, order in (
            (False, observed, np.argsort(-t)),
            (True, ~observed, np.argsort(t)),
        ):
            make = fill_preconditioner if low else ignore_preconditioner
            pre = make(eigen, NOISE, mask, 20, "float64")
            U = Q[mask][:, order[:20]]
            shift = 0.5 / (t[order[19]] + NOISE) if low else NOISE
            values = 1.0 / (t[order[:20]] + NOISE) - shift if low else t[order[:20]]
            P = (U * values) @ U.T + shift * np.eye(mask.sum())
            v = np.random.default_rng(0).normal(size=mask.sum())
            on_grid = np.zeros((1, mask.size))
            on_grid[0, mask] = v
            got = np.asarray(pre.solve(jnp.asarray(on_grid)))[0]
            np.testing.assert_allclose(got[mask], np.linalg.solve(P, v), rtol=1e-8, atol=1e-9)
            assert np.all(got[~mask] == 0.0)


def test_a_solve_that_may_not_iterate_enough_says_so():
    case = CASES["two dimensions"]
    solver = GridSolver(case.observed(0.3), "fill-gaps", tol=1e-8, max_products=5, rank=0)
    found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
    assert not found.solution.converged and found.solution.residual > 1e-5


@pytest.mark.parametrize("kind", ["fill-gaps", "ignore-gaps"])
def test_few_unknowns_are_factorised_where_iterations_do_not_end_soon(kind):
    """A smooth rise with little noise and a long gap: the matrix is next to singular."""
    kernel = GridKernel((RBF(60.0) + Matern32(1.0, 1e-3),), (("t",),), 400.0)
    axes = (np.linspace(0.0, 50.0, 300)[:, None],)
    values = axes[0][:, 0] ** 1.3 / 10.0
    observed = np.ones(300, dtype=bool)
    observed[100:160] = False
    steps = {}
    for rank in (0, None):
        solver = GridSolver(observed, kind, tol=1e-8, max_products=1000, rank=rank)
        found = GridObjective(axes, values, solver).solve(kernel, 1e-5)
        assert found.solution.converged
        steps[rank], factorised = solver.iterations, solver.factorisations
    tried = max(50, (60 if kind == "fill-gaps" else 240) // 2)
    assert steps[0] > tried + 20
    assert steps[None] <= tried + 3 and factorised == 1
    # what was factorised is used again, and where iterations end soon nothing is
    with precision("float64"):
        found.system.solve(found.targets)
    GridObjective(axes, values, solver).solve(kernel, 1.0)
    assert solver.factorisations == 1


@pytest.mark.parametrize("rank", [0, None], ids=["iterated", "factorised"])
def test_single_precision_reaches_its_own_tolerance(rank):
    case = CASES["a group and outputs"]
    observed = case.observed(0.3)
    _, alpha, *_ = case.dense(observed)
    solver = case.solver(observed, dtype="float32", tol=1e-4, rank=rank)
    found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
    assert found.solution.weights.dtype == np.float32
    assert found.solution.converged
    np.testing.assert_allclose(
        np.asarray(found.solution.weights[0])[observed], alpha, atol=2e-3 * np.abs(alpha).max()
    )


def test_predictions_in_single_precision_bear_a_condition_that_its_weights_do_not():
    """Noise a billionth of the largest eigenvalue: K alpha is lost in rounding, the coefficients of filled gaps not."""
    kernel = GridKernel((RBF(8.0), RBF(8.0)), (("t",), ("x",)), 50.0)
    axes = (np.arange(40.0)[:, None],) * 2
    rng = np.random.default_rng(0)
    values = (np.sin(axes[0] / 6) * np.cos(axes[1].T / 7)).ravel()
    values += 1e-2 * rng.standard_normal(values.size)
    observed = rng.uniform(size=values.size) > 0.3
    answers = {}
    for dtype, tol in (("float64", 1e-7), ("float32", 1e-5)):
        solver = GridSolver(observed, "fill-gaps", dtype=dtype, tol=tol, max_products=2000, rank=0)
        found = GridObjective(axes, values, solver).solve(kernel, 1e-4)
        assert found.solution.converged
        posterior = GridPosterior(kernel, 1e-4, axes, found.filled(), solver)
        answers[dtype] = (
            posterior.mean(axes),
            posterior.mean([axes[0][::3] + 0.4, axes[1]]),
            posterior.variance(axes, "samples"),
            posterior.variance([axes[0][:3], axes[1][:4]], "exact"),
        )
    eigen = posterior.eigen()
    assert 50.0 * np.prod([np.max(values) for values in eigen.values]) > 1e8 * 1e-4
    weights = np.asarray(found.solution.weights, np.float64)
    by_weights = np.kron(*[np.asarray(factor) for factor in eigen.factors()]) @ weights[0]
    mean, *others = answers["float64"]
    single, *other_singles = answers["float32"]
    assert np.sqrt(np.mean((by_weights - mean) ** 2)) > 1e-3
    np.testing.assert_allclose(single, mean, atol=1e-4)
    np.testing.assert_allclose(other_singles[0], others[0], atol=1e-4)
    # variances are a prior variance of 50 less what the data explain: to some millionths of it
    for one, other in zip(other_singles[1:], others[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_new_grids_and_scattered_points_are_predicted_as_by_the_dense_one():
    case = CASES["a group and outputs"]
    rng = np.random.default_rng(5)
    observed = case.observed(0.3)
    A, alpha, *_ = case.dense(observed)
    X = case.rows[observed]
    new = (
        np.concatenate([case.axes[0][:2], rng.uniform(0, 6, size=(3, 1))]),
        np.concatenate([case.axes[1][2:4], rng.uniform(0, 3, size=(2, 2))]),
        case.axes[2],
    )
    points = [rng.uniform(0, 4, (6, 1)), rng.uniform(0, 3, (6, 2)), np.arange(6.0)[:, None] % 3]
    posterior = posterior_of(case, observed, "fill-gaps")
    for rows, mean, variance in (
        (rows_of(new), posterior.mean(new), lambda how: posterior.variance(new, how)),
        (
            np.concatenate(points, axis=1),
            posterior.mean(points, True),
            lambda how: posterior.variance(points, how, True),
        ),
    ):
        cross = case.covariance(rows, X)
        exact = np.diagonal(case.covariance(rows, rows) - cross @ np.linalg.solve(A, cross.T))
        np.testing.assert_allclose(mean, cross @ alpha, atol=1e-8)
        np.testing.assert_allclose(variance("exact"), exact, atol=1e-8)
        # all eigenvalues above a thousandth of the noise fit into the rank
        np.testing.assert_allclose(variance("low-rank"), exact, rtol=2e-3)
        # at most sqrt(2 / 400) = 7 % of the variance is the scatter of the share due to gaps
        off = variance(VarianceSamples(400)) / exact - 1.0
        assert np.max(np.abs(off)) < 4.5 * 0.071
        assert np.sqrt(np.mean(off**2)) < 0.071


def test_without_gaps_variances_are_exact_by_any_method():
    case = CASES["two dimensions"]
    observed = case.observed(0.0)
    A, *_ = case.dense(observed)
    K = case.covariance(case.rows, case.rows)
    exact = np.diagonal(K - K @ np.linalg.solve(A, K))
    posterior = posterior_of(case, observed, "fill-gaps")
    for how in ("auto", "samples", "exact", "low-rank"):
        np.testing.assert_allclose(posterior.variance(case.axes, how), exact, atol=1e-9)


def test_low_rank_variances_are_positive_where_the_printed_ones_are_not(monkeypatch):
    """Section 3.4 puts the low-rank matrix into equation (3.2) alone (docs/errata.md)."""
    case = CASES["two dimensions"]
    observed = case.observed(0.3)
    monkeypatch.setattr("vastgp.methods.grid.posterior._LOW_RANK", 10)
    posterior = posterior_of(case, observed, "fill-gaps")
    ours = posterior.variance(case.axes, "low-rank")
    K = case.covariance(case.rows, case.rows)
    values, vectors = np.linalg.eigh(K)
    low = (vectors[:, -10:] * values[-10:]) @ vectors[:, -10:].T
    inverse = np.linalg.inv(low[np.ix_(observed, observed)] + NOISE * np.eye(observed.sum()))
    printed = np.diagonal(K - K[:, observed] @ inverse @ K[observed])
    assert printed.min() < -0.1
    exact = posterior.variance(case.axes, "exact")
    assert ours.min() > 0.0
    # ten of 108 eigenvectors: what the others could have told is left open
    assert np.all(ours > exact)
