"""`likelihood="heteroskedastic"` of the regressors that take noise of the rows' own."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from vastgp import (
    RBF,
    ExactGPRegressor,
    IterativeGPRegressor,
    QSGPRegressor,
    SWSGPRegressor,
    load,
)
from vastgp.estimators import varying_noise
from vastgp.likelihoods import Gaussian, HeteroskedasticGaussian
from vastgp.options import Fixed, Learn, Stochastic
from vastgp.solvers.varying_noise import alternate


def log_noise(X):
    return -2.0 + 1.5 * X[:, 0]


def function(X):
    return np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]


def table(n, seed, slope=1.0):
    """A target in units of seven around a hundred, the variance of its noise from 0.007 to 2.7 of these squared."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    noise = np.exp(0.5 * (-2.0 + slope * (log_noise(X) + 2.0)))
    return X, 100.0 + 7.0 * (function(X) + noise * rng.normal(size=n))


def make(cls, **more):
    return cls(**({"kernel": "rbf", "likelihood": "heteroskedastic"} | more))


@pytest.fixture(scope="module")
def exact():
    return make(ExactGPRegressor, restarts=1).fit(*table(400, 0))


@pytest.fixture(scope="module")
def plain():
    return ExactGPRegressor("rbf", restarts=1).fit(*table(400, 0))


def check_recovery(model, plain, noise_error):
    """The truth is found: the log of the noise, and densities of new rows within a few hundredths of its own."""
    X, y = table(2000, 1)
    mean, std = model.predict(X, return_std=True)
    latent = model.predict(X, return_std="latent")[1]
    truth = 100.0 + 7.0 * function(X)
    found = np.log(std**2 - latent**2) - 2.0 * np.log(7.0)
    assert np.mean((found - log_noise(X)) ** 2) ** 0.5 < noise_error
    assert np.mean((mean - truth) ** 2) < 1.2 * np.mean((plain.predict(X) - truth) ** 2)
    best = norm.logpdf(y, truth, 7.0 * np.exp(0.5 * log_noise(X))).mean()
    density = model.log_predictive_density(X, y)
    assert best - 0.05 < density.mean() < best
    assert density.mean() > plain.log_predictive_density(X, y).mean() + 0.3
    scores = model.distribution(X).normal_scores(y)
    assert 0.92 < np.mean(np.abs(scores) < 1.96) < 0.98
    low, high = model.predict_quantiles(X, [0.25, 0.75]).T
    assert 0.43 < np.mean((low < y) & (y < high)) < 0.57


def test_an_exact_process_finds_the_noise(exact, plain):
    assert isinstance(exact.likelihood_, HeteroskedasticGaussian)
    assert exact.diagnosis_["noise_varies"] and exact.diagnosis_["noise_gain"] > 100.0
    assert exact.converged_ and exact.answer_ == "own"
    check_recovery(exact, plain, 0.3)
    assert exact.log_evidence_ > plain.log_evidence_ + 100.0


def test_what_is_learned_is_kept_in_files_and_copies(exact, tmp_path):
    X, y = table(50, 2)
    exact.save(tmp_path / "model.vastgp")
    for again in (load(tmp_path / "model.vastgp"), pickle.loads(pickle.dumps(exact))):
        assert again.diagnosis_["noise_varies"]
        np.testing.assert_allclose(
            again.log_predictive_density(X, y), exact.log_predictive_density(X, y), rtol=1e-10
        )
        np.testing.assert_allclose(again.leave_one_out().std, exact.leave_one_out().std)
    assert clone(exact).likelihood == "heteroskedastic"
    drawn = exact.sample_y(X, n_samples=400, random_state=1)
    mean, latent = exact.predict(X, return_std="latent")
    assert np.max(np.abs(drawn.mean(axis=1) - mean) / latent) < 5.0 / 400**0.5


def test_a_row_left_out_has_its_own_noise(exact):
    left, (X, y) = exact.leave_one_out(), table(400, 0)
    ratio = np.log(left.std / 7.0) - 0.5 * log_noise(X)
    assert np.abs(np.mean(ratio)) < 0.2
    assert left.log_density == pytest.approx(norm.logpdf(y, left.mean, left.std))


METHODS = {
    "qsgp": (QSGPRegressor, {"num_basis": 500, "hyperparameters": Learn(rows=250)}),
    "iterative": (IterativeGPRegressor, {"hyperparameters": "subset", "num_samples": 16}),
    "swsgp": (SWSGPRegressor, {"kernel": "matern52", "num_inducing": 100, "num_neighbors": 24}),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_a_method_for_many_rows_finds_the_noise(name, plain, monkeypatch, tmp_path):
    cls, params = METHODS[name]
    # as where rows are too many for turns on all of them
    monkeypatch.setattr(varying_noise, "_FEW", 250)
    X, y = table(400, 0)
    model = make(cls, **params).fit(X, y)
    assert model.converged_, model.stop_reason_
    assert model.diagnosis_["noise_varies"]
    check_recovery(model, plain, 0.35)
    model.save(tmp_path / "model.vastgp")
    np.testing.assert_allclose(
        load(tmp_path / "model.vastgp").predict(X[:9], return_std=True),
        model.predict(X[:9], return_std=True),
        rtol=1e-6,
    )


def test_one_noise_is_the_answer_where_there_is_one():
    X, y = table(300, 3, slope=0.0)
    model = make(ExactGPRegressor, restarts=1).fit(X, y)
    assert isinstance(model.likelihood_, Gaussian)
    assert not model.diagnosis_["noise_varies"] and model.diagnosis_["noise_gain"] < 0.0
    plain = ExactGPRegressor("rbf", restarts=1).fit(X, y)
    for mine, theirs in zip(
        model.predict(X, return_std=True), plain.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)
    assert model.converged_


def test_a_budget_that_is_gone_says_that_nobody_looked():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make(ExactGPRegressor, max_seconds=1e-6).fit(*table(300, 3))
    assert not model.converged_ and "max_seconds" in model.stop_reason_
    assert isinstance(model.likelihood_, Gaussian)


def test_what_does_not_go_together_is_refused():
    X, y = table(50, 0)
    with pytest.raises(
        ValueError, match=r"noise_std says what the rows' noise is.*Set likelihood='gaussian'"
    ):
        make(ExactGPRegressor).fit(X, y, noise_std=np.ones(50))
    with pytest.raises(
        ValueError, match=r"learns how the noise varies.*hyperparameters='fixed' rules out"
    ):
        ExactGPRegressor(
            RBF(), likelihood="heteroskedastic", hyperparameters=Fixed(noise_std=1.0)
        ).fit(X, y)
    with pytest.raises(ValueError, match=r"likelihood must be one of .*received 'laplace'"):
        ExactGPRegressor(likelihood="laplace").fit(X, y)
    with pytest.raises(
        ValueError, match=r"not available with solver='stochastic'.*Set solver='block'"
    ):
        make(QSGPRegressor, solver=Stochastic()).fit(X, y)
    with pytest.raises(
        ValueError, match=r"not available with basis='inducing'.*Set basis='fourier'"
    ):
        make(QSGPRegressor, basis="inducing").fit(X, y)


def test_turns_that_time_ended_before_they_were_compared_say_so(monkeypatch):
    """The first turn has nothing to compare with: it had been taken for noise that does not vary, and converged."""

    def ended(*rows, **given):
        return alternate(*rows, **(given | {"deadline": -np.inf}))

    monkeypatch.setattr(varying_noise, "alternate", ended)
    with pytest.warns(ConvergenceWarning, match="no time to see whether the noise varies"):
        model = make(ExactGPRegressor, restarts=1).fit(*table(100, 0))
    assert isinstance(model.likelihood_, Gaussian) and not model.converged_
    assert "noise_varies" not in model.diagnosis_
