"""Criteria of grids with gaps: derivatives against differences."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from grid_cases import CASES, NOISE
from vastgp._precision import precision
from vastgp.kernels import Coregionalisation, GridKernel, Matern32, Matern52
from vastgp.methods.grid.evidence import GridObjective, best_amplitude
from vastgp.methods.grid.probes import GridProbes
from vastgp.methods.grid.solver import GridSolver, GridSystem


def differences(function, params):
    """Central differences by every leaf."""
    leaves, structure = jax.tree.flatten(params)
    leaves = [np.array(leaf, dtype=float) for leaf in leaves]
    result = []
    for i, leaf in enumerate(leaves):
        for j in range(leaf.size):
            step, values = 1e-5 * max(1.0, abs(leaf.flat[j])), []
            for sign in (1, -1):
                moved = [entry.copy() for entry in leaves]
                moved[i].reshape(-1)[j] += sign * step
                values.append(function(*jax.tree.unflatten(structure, moved)))
            result.append((values[0] - values[1]) / (2 * step))
    return np.array(result)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize("criterion", ["evidence", "gcv"])
@pytest.mark.parametrize("spectrum", ["free-compression", "nystrom"])
def test_derivatives_are_those_of_the_value(criterion, spectrum):
    case = CASES["a group and outputs"]
    for gaps in (0.0, 0.3):
        solver = case.solver(case.observed(gaps))
        objective = GridObjective(case.axes, case.values, solver, criterion, None, spectrum)
        params = (case.kernel, np.array(NOISE))
        value, gradient = objective.objective(params)
        assert value == pytest.approx(objective(case.kernel, NOISE), abs=1e-9)
        numerical = differences(lambda k, noise, value=objective: value(k, noise), params)
        np.testing.assert_allclose(
            flat(gradient), numerical, rtol=1e-5, atol=1e-5 * np.abs(numerical).max()
        )


@pytest.mark.parametrize("gaps", [0.3, 0.9])
def test_derivatives_by_probes_are_unbiased(gaps):
    """Of the log-determinant: mean over seeds against the dense derivative, in standard errors."""
    case = CASES["two dimensions"]
    observed = case.observed(gaps)
    solver = case.solver(observed, "fill-gaps" if gaps < 0.5 else "ignore-gaps", tol=1e-9)
    draws = []
    for seed in range(12):
        probes = GridProbes(solver, 8, 10, seed)
        objective = GridObjective(case.axes, case.values, solver, "evidence", probes)
        draws.append(flat(objective.objective((case.kernel, np.array(NOISE)))[1]))
    mean, error = np.mean(draws, axis=0), np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))

    def dense(kernel, noise):
        other = replace(case, kernel=kernel)
        X, y = case.rows[observed], case.values[observed]
        A = other.covariance(X, X) + float(noise) * np.eye(len(X))
        return -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(A)[1])

    exact = differences(dense, (case.kernel, np.array(NOISE)))
    # parts are divided by their own variance, on which nothing depends: differences and draws are rounding there
    free = np.abs(exact) > 1e-6 * np.abs(exact).max()
    assert free.sum() == 4
    assert np.all(np.abs(mean - exact)[free] < 4.5 * error[free])
    assert np.all(np.abs(mean)[~free] < 1e-8 * np.abs(exact).max())


@pytest.mark.parametrize("gaps", [0.55, 0.7])
def test_probes_are_unbiased_with_more_gaps_than_values_and_little_noise(gaps):
    """Within standard errors: 60 steps of Lanczos' iteration on the observed points' matrix leave far more."""
    axes = tuple(np.arange(float(m))[:, None] for m in (9, 12, 10))
    kernel = GridKernel((Matern52(6.0), Matern52(5.0), Matern32(6.0)), (("t",), ("x",), ("y",)))
    observed = np.random.default_rng(0).uniform(size=1080) >= gaps
    solver = GridSolver(observed, "fill-gaps")
    system = GridObjective(axes, np.zeros(1080), solver).solve(kernel, 1e-4).system
    with precision("float64"):
        estimate = GridProbes(solver, 16, 60, 0).log_determinant(system)
    first, second, third = (np.asarray(factor) for factor in system.eigen.factors())
    K = np.kron(np.kron(first, second), third)[np.ix_(observed, observed)]
    exact = np.linalg.slogdet(K + 1e-4 * np.eye(len(K)))[1]
    assert abs(estimate.value - exact) < 4.5 * estimate.standard_error < 0.15 * len(K)


def test_cross_validation_does_not_see_the_amplitude_and_the_evidence_finds_it():
    case = CASES["two dimensions"]
    observed = case.observed(0.0)
    solver = case.solver(observed)
    gcv = GridObjective(case.axes, case.values, solver, "gcv")
    twice = case.kernel.in_units(1.0, 2.0**0.5)
    assert gcv(twice, 2.0 * NOISE) == pytest.approx(gcv(case.kernel, NOISE), abs=1e-9)
    factor = best_amplitude(gcv, case.kernel, NOISE)
    evidence = GridObjective(case.axes, case.values, solver)
    best, *others = (
        evidence(case.kernel.in_units(1.0, (factor * f) ** 0.5), NOISE * factor * f)
        for f in (1.0, 0.97, 1.03)
    )
    assert best > max(others)


def test_cross_validation_is_the_mean_of_leave_one_out_errors_rotated():
    """The square that print leaves out (docs/errata.md): GCV is Allen's PRESS with all leverages equal."""
    case = CASES["one dimension"]
    observed = case.observed(0.0)
    A, alpha, *_ = case.dense(observed)
    inverse, n = np.linalg.inv(A), observed.sum()
    press = np.mean((alpha / (np.trace(inverse) / n)) ** 2)
    value = GridObjective(case.axes, case.values, case.solver(observed), "gcv")(case.kernel, NOISE)
    assert np.exp(-2.0 * value / n) == pytest.approx(press, rel=1e-9)


def test_parts_of_unit_variance_make_the_same_kernel():
    kernel = CASES["a group and outputs"].kernel
    rows = CASES["a group and outputs"].rows
    case = CASES["a group and outputs"]
    scales = np.array([2.0, 0.5, 3.0])
    in_units = kernel.normalised(scales)
    by_output = scales[rows[:, -1].astype(int)]
    expected = case.covariance(rows, rows) * np.outer(by_output, by_output)
    np.testing.assert_allclose(
        replace(case, kernel=in_units).covariance(rows, rows), expected, rtol=1e-10, atol=1e-12
    )
    assert isinstance(in_units, GridKernel)
    coregionalisation = in_units.parts[-1]
    assert isinstance(coregionalisation, Coregionalisation)
    assert float(coregionalisation.total_variance()) == pytest.approx(1.0)


def test_derivatives_by_the_noise_of_every_output_are_those_of_the_value():
    case = CASES["a group and outputs"]
    solver = case.solver(case.observed(0.3))
    objective = GridObjective(case.axes, case.values, solver, outputs=2)
    params = (case.kernel, np.array([0.02, 0.3, 0.005]))
    value, gradient = objective.objective(params)
    assert value == pytest.approx(objective(*params), abs=1e-9)
    numerical = differences(objective, params)
    np.testing.assert_allclose(
        flat(gradient), numerical, rtol=1e-5, atol=1e-5 * np.abs(numerical).max()
    )


def test_noise_of_every_output_is_that_of_the_dense_gaussian_process():
    """The log evidence in units of the noise, its Jacobian, and the solution, against a diagonal of three values."""
    case = CASES["a group and outputs"]
    noises = np.array([0.02, 0.3, 0.005])
    for gaps in (0.0, 0.3):
        observed = case.observed(gaps)
        objective = GridObjective(case.axes, case.values, case.solver(observed), outputs=2)
        fit = objective.solve(case.kernel, noises)
        X, y = case.rows[observed], case.values[observed]
        each = noises[X[:, -1].astype(int)]
        A = case.covariance(X, X) + np.diag(each)
        ratios = np.sqrt(each / fit.system.noise)
        alpha = np.linalg.solve(A, y)
        np.testing.assert_allclose(
            np.asarray(fit.solution.weights[0])[observed], alpha * ratios, atol=1e-8
        )
        exact = -0.5 * (y @ alpha + np.linalg.slogdet(A)[1] + len(y) * np.log(2 * np.pi))
        determinant = np.linalg.slogdet(A / np.outer(ratios, ratios))[1]
        assert objective.value(fit, determinant) == pytest.approx(exact, abs=1e-8)


def test_one_noise_for_each_output_that_is_the_same_for_all_is_one_noise():
    case = CASES["a group and outputs"]
    solver = case.solver(case.observed(0.3))
    one = GridObjective(case.axes, case.values, solver)
    each = GridObjective(case.axes, case.values, solver, outputs=2)
    assert each(case.kernel, np.full(3, NOISE)) == pytest.approx(one(case.kernel, NOISE), abs=1e-8)


@pytest.mark.parametrize("kind", ["fill-gaps", "ignore-gaps"])
def test_the_evidence_has_the_square_of_the_error_of_its_solve(kind):
    case = CASES["two dimensions"]
    observed = case.observed(0.5)
    _, alpha, *_ = case.dense(observed)
    exact = case.values[observed] @ alpha
    errors, of_weights = [], []
    for tol in (1e-1, 1e-4):
        solver = case.solver(observed, kind, tol=tol)
        fit = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
        errors.append(abs(fit.misfit - exact) / exact)
        of_weights.append(np.linalg.norm(np.asarray(fit.solution.weights[0])[observed] - alpha))
    fall = of_weights[0] / of_weights[1]
    assert errors[0] / errors[1] > 0.1 * fall**2 > 100.0


@pytest.mark.parametrize("criterion", ["evidence", "gcv"])
@pytest.mark.parametrize("gaps", [0.3, 0.9])
def test_probes_one_by_one_are_those_of_all_at_once(criterion, gaps, monkeypatch):
    """Memory for two probes: no more go through a product together, and nothing else changes."""
    case = CASES["two dimensions"]
    solver = case.solver(case.observed(gaps), "fill-gaps" if gaps < 0.5 else "ignore-gaps")
    widest, solve, fill = [], GridSystem.solve, GridSystem.fill

    def counted(method):
        def wrapped(self, rows, *rest):
            widest[-1] = max(widest[-1], len(rows))
            return method(self, rows, *rest)

        return wrapped

    monkeypatch.setattr(GridSystem, "solve", counted(solve))
    monkeypatch.setattr(GridSystem, "fill", counted(fill))
    found = []
    for entries in (1 << 25, 2 * solver.observed.size):
        monkeypatch.setattr("vastgp.methods.grid.probes._BATCH_ENTRIES", entries)
        probes = GridProbes(solver, 5, 10, 0)
        widest.append(0)
        objective = GridObjective(case.axes, case.values, solver, criterion, probes)
        found.append(flat(objective.objective((case.kernel, np.array(NOISE)))))
    assert widest == [5, 2]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-7, atol=1e-7)


def test_another_noise_and_other_lengthscales_compile_nothing(caplog):
    case = CASES["two dimensions"]
    observed = case.observed(0.5)
    for kind, rank in (("fill-gaps", None), ("ignore-gaps", 32)):
        solver = case.solver(observed, kind, rank=rank, tol=1e-6)
        objective = GridObjective(case.axes, case.values, solver)
        objective.objective((case.kernel.in_units(1.0, 1.0), np.array(NOISE)))
        caplog.clear()
        with jax.log_compiles():
            objective.objective((case.kernel.in_units(1.3, 1.1), np.array(3 * NOISE)))
            assert [each for each in caplog.messages if each.startswith("Compiling")] == [], kind
            jax.jit(lambda x: x + NOISE)(1.0)
        assert any(each.startswith("Compiling") for each in caplog.messages)  # it is logged


def test_one_group_without_gaps_by_a_cholesky_factor_is_the_dense_evidence_and_that_of_eigenvectors(
    monkeypatch,
):
    case = CASES["one dimension"]
    observed, params = case.observed(0.0), (case.kernel, np.array(NOISE))
    objective = GridObjective(case.axes, case.values, case.solver(observed))
    assert objective.is_one_matrix
    value, gradient = objective.objective(params)
    assert value == pytest.approx(case.dense(observed)[2], abs=1e-9)
    assert not GridObjective(case.axes, case.values, case.solver(case.observed(0.3))).is_one_matrix
    monkeypatch.setattr(GridObjective, "is_one_matrix", False)
    other, others = objective.objective(params)
    assert value == pytest.approx(other, abs=1e-9)
    np.testing.assert_allclose(flat(gradient), flat(others), rtol=1e-8, atol=1e-9)
