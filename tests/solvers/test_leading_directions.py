"""The directions that are left of many inputs, against lines of the inputs in those directions."""

import numpy as np
import pytest

from several_processes import in_threads
from vastgp.data import processes
from vastgp.estimators import simple_answers
from vastgp.fitting.run import Run
from vastgp.likelihoods import Bernoulli, Gaussian, Softmax
from vastgp.solvers import leading_directions as directions
from vastgp.solvers.leading_directions import leading_directions
from vastgp.solvers.linear_model import LinearPosterior, fit_linear


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.fixture
def spectra(rng):
    """Inputs that go together, 260 mixtures of 12 sources and noise of their own, and what a class follows."""
    sources = rng.normal(size=(1500, 12))
    X = standardised(sources @ rng.normal(size=(12, 260)) + 0.3 * rng.normal(size=(1500, 260)))
    return X, sources[:, 0] - 0.5 * sources[:, 1]


def signs(values, rng):
    return np.where(values + 0.3 * rng.normal(size=len(values)) > 0.0, 1.0, -1.0)


def test_of_inputs_that_go_together_few_are_left(spectra, rng):
    X, values = spectra
    basis = leading_directions(X, signs(values, rng)[:, None])
    assert basis.shape == (261, 51)
    np.testing.assert_allclose(basis.T @ basis, np.eye(51), atol=1e-10)
    # the constant is one of them, and the others are those of largest variance
    assert basis[0, 0] == 1.0
    assert not basis[0, 1:].any()
    kept = np.sum((X @ basis[1:, 1:]) ** 2) / np.sum(X**2)
    best = np.sort(np.linalg.eigvalsh(X.T @ X))[::-1]
    assert kept == pytest.approx(best[:50].sum() / best.sum(), rel=1e-8)


def test_more_inputs_than_rows_leave_directions_of_the_same_kind(spectra, rng):
    X, values = spectra
    some = X[:180]
    basis = leading_directions(some, signs(values[:180], rng)[:, None])
    best = np.sort(np.linalg.eigvalsh(some @ some.T))[::-1]
    k = basis.shape[1] - 1
    np.testing.assert_allclose(basis.T @ basis, np.eye(k + 1), atol=1e-8)
    assert np.sum((some @ basis[1:, 1:]) ** 2) == pytest.approx(best[:k].sum(), rel=1e-8)


def test_independent_inputs_stay_where_few_of_them_matter(rng):
    X = standardised(rng.normal(size=(2000, 400)))
    assert leading_directions(X, signs(X[:, 7] + X[:, 11], rng)[:, None]) is None


def test_what_lies_in_the_least_direction_is_kept(spectra, rng):
    X, _ = spectra
    least = np.linalg.eigh(X.T @ X)[1][:, 0]
    values = X @ least
    assert leading_directions(X, signs(values / values.std(), rng)[:, None]) is None


def test_of_few_inputs_there_is_nothing_to_leave_out(rng):
    X = rng.normal(size=(500, 200))
    assert leading_directions(X, X[:, :1]) is None


@pytest.mark.parametrize("likelihood", [Bernoulli(), Softmax(3)])
def test_a_line_in_them_is_that_of_rows_given_in_them(likelihood, spectra, rng):
    X, values = spectra
    y = signs(values, rng)
    if isinstance(likelihood, Softmax):
        y = np.digitize(values, [-0.5, 0.5]).astype(float)
    line, _ = fit_linear(likelihood, X[:1000], y[:1000])
    assert not line.others
    turned = X @ line.basis[1:, 1:]
    same, _ = fit_linear(likelihood, turned[:1000], y[:1000])
    assert line.variance == pytest.approx(same.variance, rel=1e-6)
    new, turned = X[1000:], turned[1000:]
    for found, expected in zip(
        line.mean_and_latent_variance(new), same.mean_and_latent_variance(turned), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        line.covariance(new[:5]), same.covariance(turned[:5]), rtol=1e-5, atol=1e-6
    )
    drawn = line.samples(new[:3], 4000, seed=1)
    mean, variance = line.mean_and_latent_variance(new[:3])
    error = np.sqrt(np.moveaxis(np.atleast_2d(variance), 0, -1).squeeze() / 4000)
    assert np.all(
        np.abs(drawn.mean(axis=-1) - np.moveaxis(np.atleast_2d(mean), 0, -1).squeeze())
        < 5.0 * error
    )


def test_its_kernel_has_the_variance_of_each_slope_and_a_file_all_of_it(spectra, rng):
    X, values = spectra
    line, _ = fit_linear(Bernoulli(), X, signs(values, rng))
    slopes = np.asarray(line.kernel.parts[1].slope_variances)
    expected = line.variance * np.sum(line.basis[1:] ** 2, axis=1)
    np.testing.assert_allclose(slopes, expected, rtol=1e-3, atol=2e-4 * line.variance)
    again = LinearPosterior.from_state(*line.to_state())
    for found, stored in zip(
        again.mean_and_latent_variance(X[:9]), line.mean_and_latent_variance(X[:9]), strict=True
    ):
        np.testing.assert_array_equal(found, stored)


def test_lines_of_numbers_have_all_directions(spectra):
    X, values = spectra
    assert fit_linear(Gaussian(1.0), X, values)[0].basis is None


@pytest.mark.parametrize(("rate", "rows"), [(1e15, 16_384), (5e10, 1098), (1e6, 500)])
def test_rows_of_many_weights_are_those_that_there_is_time_for(rate, rows, monkeypatch):
    monkeypatch.setattr(simple_answers, "operations_a_second", lambda: rate)
    run = Run(1e6)
    monkeypatch.setattr(run, "seconds_left", lambda share=1.0: 15.0 * share)
    # 30 updates of 8 C k^2 operations a row
    assert simple_answers._rows_of_sites(Bernoulli(), run, 20_000, 785) == pytest.approx(
        max(min(16_384, 0.15 * 15.0 * rate / (30 * 8 * 785**2)), 500), abs=1.0
    )
    assert simple_answers._rows_of_sites(Bernoulli(), run, 20_000, 785) == pytest.approx(
        rows, rel=0.5
    )


def test_without_a_budget_or_with_few_weights_nobody_looks_at_the_time(monkeypatch):
    monkeypatch.setattr(simple_answers, "operations_a_second", lambda: 1.0)
    assert simple_answers._rows_of_sites(Bernoulli(), Run(None), 20_000, 785) == 16_384
    # averages of several functions take long, unless rows are many for each weight
    assert simple_answers._rows_of_sites(Softmax(3), Run(10.0), 2000, 201) == 1000
    assert simple_answers._rows_of_sites(Softmax(3), Run(60.0), 2000, 201) == 8000
    assert simple_answers._rows_of_sites(Softmax(3), Run(10.0), 20_000, 201) == 16_384


def test_several_processes_use_as_many_as_the_first_finds(monkeypatch, spectra, rng):
    X, values = spectra
    codes = signs(values, rng)[:, None]
    # machines that round differently may find different numbers
    monkeypatch.setattr(directions, "_number", lambda *given: (50, 100, 0)[processes.number()])
    found = in_threads(monkeypatch, 3, lambda number: leading_directions(X, codes).shape)
    assert found == [(261, 51)] * 3
