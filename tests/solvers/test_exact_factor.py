"""Factors of many rows in any precision, made in panels: the posterior is that of the dense one in float64."""

import numpy as np
import pytest

from vastgp.kernels import RBF, Matern32
from vastgp.kernels.matrices import covariance
from vastgp.linalg.cholesky import FactorizationError, factorize
from vastgp.solvers import exact_factor, large_factor
from vastgp.solvers.exact_factor import factor_exactly, precision_for
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.large_factor import affordable_rows
from vastgp.solvers.row_covariance import RowCovariance, refine

KERNEL = RBF([1.0, 2.0], 1.5) + Matern32([0.5, 0.5], 0.3)
PANEL = {"panel_rows": 32}


def rows(n=90, seed=0, own=False):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    if own:
        y = np.column_stack([y, rng.uniform(0.5, 2.0, n), rng.uniform(0.0, 0.3, n) ** 2])
    return X, y


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("own", [False, True])
def test_the_posterior_in_panels_is_the_dense_one(dtype, own):
    X, y = rows(own=own)
    new = np.random.default_rng(1).normal(size=(7, 2))
    dense, evidence = ExactPosterior.condition(KERNEL, 0.1, X, y)
    made, found = ExactPosterior.condition_many(KERNEL, 0.1, X, y, dtype, **PANEL)
    assert not found.refined and found.diagnosis["factor"] == dtype
    tight = dtype == "float64"
    off = np.max(np.abs(made.mean(new) - dense.mean(new)))
    least = 0.1 * y[:, 1] + y[:, 2] if own else np.array([0.1])
    # the bound holds
    assert off <= found.diagnosis["mean_error_bound"] * np.min(least) ** 0.5 + 1e-12
    assert found.diagnosis["mean_error_bound"] <= (1e-6 if tight else 1e-3)
    (_, mine), (_, theirs) = (each.mean_and_latent_variance(new) for each in (made, dense))
    np.testing.assert_allclose(mine, theirs, rtol=1e-9 if tight else 1e-3)
    np.testing.assert_allclose(
        made.covariance(new), dense.covariance(new), atol=1e-10 if tight else 1e-5
    )
    assert found.log_evidence == pytest.approx(evidence, abs=1e-8 if tight else 1e-3)


def test_noise_too_low_for_single_precision_is_refined_away():
    # eigenvalues of a smooth kernel fall below its rounding, which is above the noise
    X, y = np.linspace(0.0, 6.0, 200)[:, None], np.sin(np.linspace(0.0, 6.0, 200))
    kernel, noise = RBF(1.0, 1.0), 1e-7
    new = np.array([[0.5], [3.33], [6.5]])
    dense, exact_evidence = ExactPosterior.condition(kernel, noise, X, y)
    made, found = ExactPosterior.condition_many(kernel, noise, X, y, "float32", **PANEL)
    assert found.refined and made.refined
    exact, var = dense.mean_and_latent_variance(new)
    mean, variance = made.mean_and_latent_variance(new)
    # within a share of the noise, and of themselves with it; what is left makes them larger
    np.testing.assert_allclose(mean, exact, atol=1e-3 * noise**0.5)
    np.testing.assert_allclose(variance + noise, var + noise, rtol=0.011)
    assert np.all(variance > var * (1.0 - 1e-4))
    np.testing.assert_allclose(
        np.diag(made.covariance(new)), np.diag(dense.covariance(new)), rtol=0.03
    )
    evidence, doubt = found.log_evidence, found.diagnosis["log_evidence_se"]
    assert abs(evidence - exact_evidence) < 4.0 * doubt < 100.0
    # the factor alone is wrong, or there would be nothing to refine
    cross = covariance(kernel, X, new)
    alone = 1.0 - exact_factor.explained(made.factor, cross)
    assert np.max(np.abs(alone - var) / (var + noise)) > 0.01


def test_variances_that_are_small_beside_the_noise_are_not_refined():
    """Off by a share of themselves that would count alone, and does not with the noise."""
    X, y = np.linspace(0.0, 6.0, 400)[:, None], np.sin(np.linspace(0.0, 6.0, 400))
    kernel, noise, new = RBF(1.0, 100.0), 0.02, np.linspace(0.1, 5.9, 40)[:, None]
    var = ExactPosterior.condition(kernel, noise, X, y)[0].mean_and_latent_variance(new)[1]
    made, found = ExactPosterior.condition_many(kernel, noise, X, y, "float32", **PANEL)
    assert not made.refined and found.diagnosis["variance_error"] < 0.01
    off = np.abs(made.mean_and_latent_variance(new)[1] - var)
    assert np.max(off / var) > 0.01
    assert np.max(off / (var + noise)) < 0.01


def test_leave_one_out_is_what_the_other_rows_say():
    X, y = rows(25, own=True)
    noise = 0.2 * y[:, 1] + y[:, 2]
    wanted = []
    for i in range(25):
        others = np.arange(25) != i
        posterior, _ = ExactPosterior.condition(KERNEL, 0.2, X[others], y[others])
        mean, variance = posterior.mean_and_latent_variance(X[i : i + 1])
        variance = variance + noise[i]
        density = -0.5 * (np.log(2 * np.pi * variance) + (y[i, 0] - mean) ** 2 / variance)
        wanted.append((mean[0], variance[0], density[0]))
    for dtype, rtol in ((None, 1e-9), ("float64", 1e-9), ("float32", 1e-3)):
        if dtype is None:
            made = ExactPosterior.condition(KERNEL, 0.2, X, y)[0]
        else:
            made = ExactPosterior.condition_many(KERNEL, 0.2, X, y, dtype, panel_rows=8)[0]
        found = np.stack(made.leave_one_out(), axis=1)
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


def test_leave_one_out_is_refined_where_the_factor_is_rough():
    X, y = np.linspace(0.0, 6.0, 80)[:, None], np.sin(np.linspace(0.0, 6.0, 80))
    dense, _ = ExactPosterior.condition(RBF(1.0, 1.0), 1e-6, X, y)
    made, _ = ExactPosterior.condition_many(RBF(1.0, 1.0), 1e-6, X, y, "float32", **PANEL)
    exact, found = dense.leave_one_out(), made.leave_one_out()
    np.testing.assert_allclose(found.variance, exact.variance, rtol=0.01)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-4)


def test_the_matrix_is_written_and_multiplied_as_it_is():
    X, _ = rows(70)
    noise = np.linspace(0.1, 0.4, 70)
    A = covariance(KERNEL, X, X) + np.diag(noise)
    matrix = RowCovariance(KERNEL, X, noise)
    out = np.empty((50, 20))
    matrix.write(slice(30, 50), out)
    np.testing.assert_allclose(out, A[:50, 30:50], rtol=1e-13)
    V = np.random.default_rng(0).normal(size=(3, 70))
    np.testing.assert_allclose(np.asarray(matrix.product(V)), V @ A, rtol=1e-10)


def test_columns_refined_together_take_the_steps_that_they_take_alone():
    X, _ = rows(60)
    matrix = RowCovariance(KERNEL, X, np.full(60, 0.05))
    factor = factorize(covariance(KERNEL, X, X) + 0.05 * np.eye(60), 0.2)
    right, goals = np.random.default_rng(3).normal(size=(5, 60)), np.repeat([1e-10, 1e-2], [2, 3])
    together = refine(matrix, factor, right, lambda value: goals)
    parts = [slice(0, 2), slice(2, 5)]
    mine = [together.of(columns) for columns in parts]
    theirs = [refine(matrix, factor, right[each], lambda value, g=goals[each]: g) for each in parts]
    assert together.reached and mine[1].steps < mine[0].steps == together.steps
    for one, other in zip(mine, theirs, strict=True):
        assert one.steps == other.steps and one.reached
        for name in ("solution", "value", "lengths", "ratios"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)
    short = refine(matrix, factor, right, lambda value: goals, most=mine[1].steps)
    assert not short.reached and short.of(parts[1]).reached and not short.of(parts[0]).reached


def test_a_rounded_factor_is_judged_by_one_refinement(monkeypatch):
    products = []
    product = RowCovariance.product
    monkeypatch.setattr(
        RowCovariance, "product", lambda self, V: (products.append(len(V)), product(self, V))[1]
    )
    _, found = ExactPosterior.condition_many(KERNEL, 0.1, *rows(), "float32", **PANEL)
    # targets, 24 rows and as many mixed inputs, eight draws
    assert set(products) == {1 + 24 + 24 + 8}
    assert found.diagnosis["refinement_steps"] <= len(products) <= 4


def test_refinement_with_the_factor_of_another_matrix_solves_this_one():
    X, _ = rows(60)
    matrix = RowCovariance(KERNEL, X, np.full(60, 0.05))
    A = covariance(KERNEL, X, X) + 0.05 * np.eye(60)
    right = np.random.default_rng(3).normal(size=(4, 60))
    found = refine(matrix, factorize(A, 0.5), right, lambda value: 1e-12)
    assert found.reached and 1 < found.steps < 60
    np.testing.assert_allclose(found.solution, np.linalg.solve(A, right.T).T, atol=1e-5)
    exact = np.sum(right.T * np.linalg.solve(A, right.T), axis=0)
    np.testing.assert_allclose(found.value, exact, rtol=1e-10)
    stopped = refine(matrix, factorize(A, 0.5), right, lambda value: 0.0, most=2)
    assert not stopped.reached
    # what is missing is a square: never negative
    assert np.all(stopped.value < exact)


def test_precision_follows_rows_noise_and_memory(monkeypatch):
    X, _ = rows(60)
    quiet, loud = (RowCovariance(KERNEL, X, np.full(60, v)) for v in (1e-7, 0.1))
    assert precision_for(loud, "auto") == "float64"
    monkeypatch.setattr(exact_factor, "WIDE_ROWS", 50)
    assert precision_for(loud, "auto") == "float32"
    assert precision_for(quiet, "auto") == "float64"
    assert precision_for(quiet, "float32") == "float32"
    monkeypatch.setattr(large_factor, "available_bytes", lambda: 1000)
    assert precision_for(quiet, "auto") == "float32"


@pytest.mark.parametrize("itemsize", [4, 8])
def test_rows_that_fit_take_half_of_the_memory(itemsize):
    n = affordable_rows(itemsize, 10**9)
    panel = exact_factor.PANEL_ROWS
    assert n * (n + panel) / 2 * itemsize <= 0.5e9 < (n + 2) * (n + 2 + panel) / 2 * itemsize


def line(noise):
    """A smooth function of large variance on 200 rows of one input, and targets that are none of it."""
    X = np.linspace(0.0, 6.0, 200)[:, None]
    y = np.random.default_rng(0).normal(size=200)
    return RowCovariance(RBF(1.0, 1e4), X, np.full(200, noise)), y


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        ("float32", "Use dtype='float64', raise the noise"),
        ("auto", "Give fewer rows, raise the noise"),
    ],
)
def test_a_matrix_that_the_precision_does_not_hold_says_what_was_tried(dtype, advice):
    tried = "float64" if dtype == "auto" else dtype
    with pytest.raises(
        FactorizationError, match=r"200 x 200, condition number up to 2.0e\+18"
    ) as caught:
        factor_exactly(*line(1e-12), dtype, panel_rows=32)
    assert f"{tried}: refinement left an error of the mean of up to" in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize(("jitter", "told"), [(1.0, "rows 0 to 32"), (np.inf, "refinement left")])
def test_where_single_precision_fails_double_is_taken_and_told(monkeypatch, jitter, told):
    monkeypatch.setattr(exact_factor, "WIDE_ROWS", 50)
    monkeypatch.setattr(exact_factor, "_MOST_JITTER", jitter)
    monkeypatch.setattr(exact_factor, "_ROUNDINGS", 0.0)  # it is expected to do
    matrix, y = line(1e-6)
    found = factor_exactly(matrix, y, "auto", panel_rows=32)
    assert found.diagnosis["factor"] == "float64"
    (tried,) = found.diagnosis["tried"]
    assert tried.startswith(f"float32: {told}")
    A = covariance(matrix.kernel, matrix.X, matrix.X) + 1e-6 * np.eye(200)
    np.testing.assert_allclose(A @ found.weights, y, atol=1e-3)


class Hurry:
    """A budget that has time for so many steps of refinement, and for less than these rows in float64, or more."""

    def __init__(self, steps=100, enough=True):
        self.steps, self.enough = steps, enough

    def go_on(self, done, itemsize):
        return True

    def is_enough(self, done):
        return self.enough

    def has_time(self, seconds):
        self.steps -= 1
        return self.steps > 0


@pytest.mark.parametrize("clock", [None, Hurry(enough=False), Hurry()])
def test_rows_that_rounding_spoils_are_left_to_double_precision_or_out(monkeypatch, clock):
    """Sixty-four rows and, again, the same: with a noise below rounding these have no pivot."""
    monkeypatch.setattr(exact_factor, "WIDE_ROWS", 50)
    monkeypatch.setattr(exact_factor, "_ROUNDINGS", 0.0)
    X = np.tile(np.linspace(0.0, 200.0, 64), 2)[:, None]
    y, noise = np.random.default_rng(0).normal(size=128), 1e-9
    made, found = ExactPosterior.condition_many(RBF(1.0), noise, X, y, **PANEL, clock=clock)
    kept = 64 if clock is not None and clock.enough else 128
    assert found.factor.size == len(made.X) == kept
    assert found.diagnosis["factor"] == ("float32" if kept == 64 else "float64")
    told = [] if kept == 64 else ["float32: rounding leaves rows after the first 64 without"]
    assert [each[: len(told[0])] for each in found.diagnosis["tried"]] == told
    dense, _ = ExactPosterior.condition(RBF(1.0), noise, X[:kept], y[:kept])
    np.testing.assert_allclose(made.mean(X[:9] + 0.3), dense.mean(X[:9] + 0.3), atol=1e-6)


def test_some_rows_tell_beforehand_that_single_precision_will_not_do(monkeypatch):
    monkeypatch.setattr(exact_factor, "WIDE_ROWS", 50)
    monkeypatch.setattr(exact_factor, "_ROUNDINGS", 0.0)
    monkeypatch.setattr(exact_factor, "_TRIED_ROWS", 60)
    monkeypatch.setattr(exact_factor, "_MOST_JITTER", np.inf)
    found = factor_exactly(*line(1e-6), "auto", panel_rows=32)
    (tried,) = found.diagnosis["tried"]
    assert found.diagnosis["factor"] == "float64"
    assert tried.startswith("float32: of 60 of the rows ")
    X, y = rows(200)
    easy = RowCovariance.observed(KERNEL, 0.1, X, y)
    assert factor_exactly(easy, y, "auto", panel_rows=32).diagnosis["factor"] == "float32"


def test_refinement_that_the_clock_ends_says_how_far_it_got():
    """The mean is off by no more than is told, and by less with every step."""
    X, y = np.linspace(0.0, 6.0, 200)[:, None], np.sin(np.linspace(0.0, 6.0, 200))
    kernel, noise, new = RBF(1.0, 1.0), 1e-7, np.array([[0.5], [3.33], [6.5]])
    exact = ExactPosterior.condition(kernel, noise, X, y)[0].mean(new)
    told = []
    for steps in (1, 4, 100):
        clock = Hurry(steps)
        made, found = ExactPosterior.condition_many(
            kernel, noise, X, y, "float32", **PANEL, clock=clock
        )
        told.append(found.diagnosis["mean_error_bound"])
        assert found.diagnosis["late"] == (steps < 100)
        assert found.diagnosis["refinement_steps"] == steps or steps == 100
        assert np.max(np.abs(made.mean(new) - exact)) < told[-1] * noise**0.5
    assert told[0] > told[1] > told[2]


def test_a_loaded_posterior_makes_its_factor_when_asked():
    X, y = rows()
    made, _ = ExactPosterior.condition_many(KERNEL, 0.1, X, y, "float32", **PANEL)
    state, arrays = made.to_state()
    assert sum(array.nbytes for array in arrays.values()) < 90 * 8 * 8  # no factor
    again = ExactPosterior.from_state(state, arrays)
    new = X[:5] + 0.1
    np.testing.assert_array_equal(again.mean(new), made.mean(new))
    assert "made" not in again.factor.__dict__
    np.testing.assert_array_equal(
        again.mean_and_latent_variance(new)[1], made.mean_and_latent_variance(new)[1]
    )
