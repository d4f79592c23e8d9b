"""`GriefRegressor` and `ReweightedBasisRegressor`: promises of every regressor, both kinds of inference, new rows."""

from __future__ import annotations

import pickle
import sys
import types
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import vastgp
from estimators.regressor_conformance import RegressorConformance
from estimators.sklearn_checks import checks_of_a_method
from vastgp import RBF, ExactGPRegressor, GriefRegressor, Matern32, ReweightedBasisRegressor
from vastgp._precision import precision
from vastgp.fitting import sufficient_statistics
from vastgp.fitting.sufficient_statistics import gather_statistics
from vastgp.methods.reweighted import base, diagnosis, inference, regressor
from vastgp.options import (
    MALA,
    NUTS,
    DiagonalWeights,
    KernelWeights,
    LaplaceBasis,
    SpectralWeights,
    Subset,
    TypeII,
)


# all of them: it opens its rows by itself
@parametrize_with_checks(
    [ReweightedBasisRegressor("rbf", 20, basis="interpolation", inference=TypeII(3, 1e3))]
)
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@checks_of_a_method([GriefRegressor("rbf", 5, inference=TypeII(3, 1e3))])
def test_scikit_learn_check_of_grief(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


class TestGrief(RegressorConformance):
    units_tolerance = 1e-4
    resumed_with = ({}, {"inference": NUTS(2, 50, 30)})

    def make(self, **params):
        return GriefRegressor(**({"kernel": "rbf", "num_eigenfunctions": 40} | params))

    def test_names_and_kernels_among_the_arguments_survive_a_file(self, data, tmp_path):
        kernel = RBF([1.0, 2.0]) * RBF(0.5)  # a sum does not factor over the inputs
        model = self.make(kernel=kernel).fit(*data)
        model.save(tmp_path / "model.vastgp")
        assert repr(vastgp.load(tmp_path / "model.vastgp").kernel) == repr(kernel)

    def test_pipelines_cross_validation_and_grid_search(self, data):
        X, y = data
        scores = cross_val_score(make_pipeline(StandardScaler(), self.make()), X, y, cv=2)
        assert np.all(scores > 0.6)


class TestReweighted(RegressorConformance):
    units_tolerance = 1e-4

    def make(self, **params):
        return ReweightedBasisRegressor(
            **({"kernel": "rbf", "num_basis": 40, "basis": "interpolation"} | params)
        )

    def test_pipelines_cross_validation_and_grid_search(self, data):
        X, y = data
        scores = cross_val_score(make_pipeline(StandardScaler(), self.make()), X, y, cv=2)
        assert np.all(scores > 0.6)


@pytest.fixture(scope="module")
def waves():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(150, 2))
    return X, 50.0 + 10.0 * (np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=150))


GRID = np.random.default_rng(1).uniform(-3.0, 3.0, size=(200, 2))
TRUTH = 50.0 + 10.0 * np.sin(GRID[:, 0]) * np.cos(GRID[:, 1])


def _error(model):
    return np.mean((model.predict(GRID) - TRUTH) ** 2) ** 0.5 / 10.0


# ---------------------------------------------------------------- type II


def test_all_eigenfunctions_of_a_fine_grid_are_the_exact_process(waves):
    exact = ExactGPRegressor("rbf").fit(*waves)
    grief = GriefRegressor("rbf", grid_size=14).fit(*waves)
    np.testing.assert_allclose(grief.predict(GRID), exact.predict(GRID), atol=0.3)
    np.testing.assert_allclose(
        grief.predict(GRID, return_std=True)[1], exact.predict(GRID, return_std=True)[1], rtol=0.05
    )
    assert grief.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1.0)
    assert grief.grid_shape_ == (14, 14) and grief.num_eigenfunctions_ <= 196


@pytest.mark.parametrize("basis", ["random-fourier", "laplace", "interpolation"])
def test_hyperparameters_move_and_functions_stay(waves, basis):
    X, y = waves
    model = ReweightedBasisRegressor("rbf", 200, basis=basis).fit(X, y)
    assert _error(model) < 0.1
    if basis == "random-fourier":
        return  # importance weights are random, and so is what they make of a lengthscale
    exact = ExactGPRegressor("rbf").fit(X, y)
    ratio = np.asarray(model.kernel_.lengthscales) / np.asarray(exact.kernel_.lengthscales)
    assert np.all(np.abs(np.log(ratio)) < 0.7)


@pytest.mark.parametrize("prior", ["diagonal", "orthogonal", "spectral"])
def test_a_variance_for_each_weight(waves, prior):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ReweightedBasisRegressor("rbf", 60, basis="grief", prior=prior).fit(*waves)
        relevance = ReweightedBasisRegressor("rbf", 60, basis="relevance", prior=prior).fit(*waves)
    assert _error(model) < 0.15
    assert _error(relevance) < 0.15


def test_a_product_of_rough_kernels(waves):
    model = GriefRegressor("matern32", 60).fit(*waves)
    assert _error(model) < 0.15
    assert len(model.kernel_.parts) == 2
    assert all(isinstance(part, Matern32) for part in model.kernel_.parts)


# ---------------------------------------------------------------- type I


@pytest.fixture(scope="module")
def averaged(waves):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GriefRegressor(
            "rbf", 30, inference=NUTS(2, num_warmup=100, num_steps=100, num_components=20)
        ).fit(*waves)  # fmt: skip


def test_predictions_are_the_mixtures(averaged):
    predictor = averaged._model.predictor
    assert predictor.num_components == 20
    X = averaged.standardizer_.transform_X(GRID[:30])
    with precision("float64"):
        phi = np.concatenate(list(predictor._features(X)))
    means, variances = [], []
    for number in range(20):
        mean, covariance = predictor.component(number)
        means.append(phi @ mean)
        variances.append(np.sum((phi @ covariance) * phi, axis=1))
    means, variances = np.stack(means), np.stack(variances)
    scaling, noise = averaged.standardizer_, predictor.noise_variances[:, None]
    mean, latent = averaged.predict(GRID[:30], return_std="latent")
    np.testing.assert_allclose(mean, scaling.inverse_mean(means.mean(axis=0)), rtol=1e-9)
    # the law of total variance
    total = variances.mean(axis=0) + means.var(axis=0)
    np.testing.assert_allclose(latent, scaling.inverse_std(np.sqrt(total)), rtol=1e-6)
    _, observed = averaged.predict(GRID[:30], return_std=True)
    np.testing.assert_allclose(
        observed, scaling.inverse_std(np.sqrt(total + noise.mean())), rtol=1e-6
    )
    y = mean + observed
    logs = norm.logpdf(scaling.transform_y(y), means, np.sqrt(variances + noise))
    expected = logsumexp(logs, axis=0) - np.log(20) - np.log(scaling.y_scale)
    np.testing.assert_allclose(averaged.log_predictive_density(GRID[:30], y), expected, rtol=1e-9)


def test_draws_are_for_arviz_in_units_of_the_data(averaged):
    posterior = averaged.posterior_.posterior
    assert dict(posterior.sizes)["chain"] == 2 and dict(posterior.sizes)["draw"] == 100
    noise = float(posterior["noise_variance"].mean())
    assert noise == pytest.approx(float(averaged.likelihood_.noise_variance), rel=0.2)
    assert 0.5 < noise < 2.0  # the truth is 1
    assert set(averaged.posterior_.sample_stats) == {"lp", "acceptance_rate", "diverging"}
    assert averaged.r_hat_ < 1.2 and averaged.ess_ > 10
    assert _error(averaged) < 0.1


def test_samples_come_from_all_components(averaged):
    drawn = averaged.sample_y(GRID[:5], 4000, random_state=0)
    mean, latent = averaged.predict(GRID[:5], return_std="latent")
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5.0 * latent / 4000**0.5)
    assert np.all(np.abs(drawn.std(axis=1) / latent - 1.0) < 0.1)


def test_a_loaded_and_a_pickled_model_say_the_same(averaged, tmp_path):
    averaged.save(tmp_path / "model")
    for again in (vastgp.load(tmp_path / "model"), pickle.loads(pickle.dumps(averaged))):
        for mine, theirs in zip(
            averaged.predict(GRID, return_std=True),
            again.predict(GRID, return_std=True),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(
            averaged.log_predictive_density(GRID, TRUTH), again.log_predictive_density(GRID, TRUTH)
        )
        assert again.r_hat_ == averaged.r_hat_
        np.testing.assert_array_equal(
            again.posterior_.posterior["relative_variances"],
            averaged.posterior_.posterior["relative_variances"],
        )


def test_what_the_data_do_not_tell_keeps_its_prior_variance():
    """Ten rows, sixty sines: the fit knows ten directions, predictions have all of them."""
    X = np.linspace(-1.0, 1.0, 10)[:, None]
    model = ReweightedBasisRegressor(
        RBF(0.3), 60, basis=LaplaceBasis(6.0), prior="orthogonal", inference=TypeII(20)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, np.sin(3.0 * X[:, 0]))
    assert model._model.data.rank <= 10
    far = model.predict([[3.0]], return_std="latent")[1][0]
    prior = (
        float(model._model.features.kernel.total_variance()) ** 0.5 * model.standardizer_.y_scale
    )
    assert far == pytest.approx(prior, rel=0.1)


def test_arviz_of_both_kinds(monkeypatch):
    posterior = {"noise_variance": np.ones((2, 3))}
    stats = {"lp": np.zeros((2, 3))}
    old = types.SimpleNamespace(__version__="0.23.4", from_dict=lambda **groups: ("old", groups))
    new = types.SimpleNamespace(__version__="1.1.0", from_dict=lambda groups: ("new", groups))
    both = {"posterior": posterior, "sample_stats": stats}
    monkeypatch.setitem(sys.modules, "arviz", old)
    assert diagnosis.inference_data(posterior, stats) == ("old", both)
    monkeypatch.setitem(sys.modules, "arviz", new)
    assert diagnosis.inference_data(posterior, stats) == ("new", both)
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(
        ImportError, match=r"ArviZ, which is not installed: pip install vastgp\[mcmc\]"
    ):
        GriefRegressor(inference="type-i").fit(GRID, TRUTH)


# ---------------------------------------------------------------- new rows


def test_new_rows_update_a_model_wherever_they_were_summed(waves, tmp_path):
    X, y = waves
    model = ReweightedBasisRegressor("rbf", 80, basis="laplace").fit(X[:100], y[:100])
    few = _error(model)
    model.save(tmp_path / "model")
    elsewhere = vastgp.load(tmp_path / "model").statistics(X[100:], y[100:])
    basis, scaling = model._model.features.basis, model.standardizer_
    model.update(elsewhere)
    assert model.statistics_.num_rows == 150
    whole = gather_statistics(vastgp.data.as_rows(X, y), scaling, basis)
    np.testing.assert_allclose(model.statistics_.moments, whole.moments, rtol=1e-10, atol=1e-9)
    assert _error(model) < few
    again = vastgp.load(tmp_path / "model").partial_fit(X[100:], y[100:])
    np.testing.assert_array_equal(again.predict(GRID), model.predict(GRID))
    fresh = ReweightedBasisRegressor("rbf", 80, basis="laplace").partial_fit(X[:100], y[:100])
    assert _error(fresh) == few


def test_an_interrupted_update_counts_no_row(waves, monkeypatch):
    X, y = waves
    model = ReweightedBasisRegressor("rbf", 20, basis="laplace", max_seconds=60.0).fit(
        X[:90], y[:90]
    )
    whole = ReweightedBasisRegressor("rbf", 20, basis="laplace").fit(X[:90], y[:90])
    before = model.predict(GRID)

    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(inference, "maximise_hyperparameters", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[90:], y[90:])
    monkeypatch.undo()
    assert model.statistics_.num_rows == 90 and not hasattr(model, "_began")
    np.testing.assert_array_equal(model.predict(GRID), before)
    model.partial_fit(X[90:], y[90:])
    assert model.statistics_.num_rows == 150
    np.testing.assert_array_equal(
        model.predict(GRID), whole.partial_fit(X[90:], y[90:]).predict(GRID)
    )


def test_time_that_is_up_while_rows_are_read_is_said(waves, monkeypatch):
    monkeypatch.setattr(base, "_READING", 0.0)
    monkeypatch.setattr(sufficient_statistics, "_LEAST_ROWS", 64)
    monkeypatch.setattr(sufficient_statistics, "_MOST_ROWS", 64)
    model = ReweightedBasisRegressor("rbf", 40, basis="laplace", max_seconds=100.0)
    with pytest.warns(ConvergenceWarning, match=r"max_seconds was used up, by 64 of 150 rows"):
        model.fit(*waves)
    assert model.statistics_.num_rows == 64 and not model.converged_
    assert _error(model) < 0.3


def test_statistics_of_another_model_are_refused(waves):
    X, y = waves
    model = ReweightedBasisRegressor("rbf", 30, basis="laplace").fit(X[:60], y[:60])
    other = ReweightedBasisRegressor("rbf", 30, basis="laplace").fit(X[60:], y[60:])
    with pytest.raises(ValueError, match="different features cannot be added"):
        model.update(other.statistics_)


def test_a_prior_mean_of_the_weights(waves, tmp_path):
    X, y = waves
    first = ReweightedBasisRegressor("rbf", 40, basis="laplace").fit(X, y)
    prior = KernelWeights(mean=first.weights_)
    second = ReweightedBasisRegressor("rbf", 40, basis="laplace", prior=prior).fit(X, y)
    # a prior that says what the data say: they leave nothing to learn, and are the more probable for it
    assert second.log_evidence_ > first.log_evidence_ + 10.0
    np.testing.assert_allclose(second.predict(X), first.predict(X), atol=0.5)
    _, before = first.predict(GRID, return_std="latent")
    _, after = second.predict(GRID, return_std="latent")
    assert np.mean(after) < 0.5 * np.mean(before)
    second.save(tmp_path / "model")
    again = vastgp.load(tmp_path / "model")
    np.testing.assert_array_equal(again.prior.mean, first.weights_)
    np.testing.assert_array_equal(again.predict(X), second.predict(X))
    with pytest.raises(ValueError, match=r"mean of the prior has shape \(3,\). Expected \(40,\)"):
        ReweightedBasisRegressor("rbf", 40, basis="laplace", prior=KernelWeights(np.ones(3))).fit(
            X, y
        )


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (GriefRegressor(Matern32()), "does not factor over the inputs"),
        (GriefRegressor("rbf", 101), "num_eigenfunctions=101 is more than the 100 points"),
        (GriefRegressor("matern"), "kernel must be one of"),
        (GriefRegressor(grid_size=1), "grid_size must be an integer of at least 2"),
        (
            GriefRegressor(inference="type-iii"),
            r"inference must be one of \('type-ii', 'type-i', 'nuts'",
        ),
        (GriefRegressor(prior="flat"), "prior must be one of"),
        (GriefRegressor(prior="diagonal"), "has no effect with type-II inference"),
        (
            GriefRegressor(inference=NUTS(rows_per_step=5)),
            r"NUTS\(rows_per_step=5\) has no effect here",
        ),
        (
            GriefRegressor(hyperparameters=Subset(isotropic=True)),
            "isotropic=True. has no effect here",
        ),
        (GriefRegressor(grid_placement="random"), "grid_placement must be one of"),
        (ReweightedBasisRegressor(basis="wavelets"), "basis must be one of"),
        (
            ReweightedBasisRegressor(basis="grief", prior="kernel"),
            "other hyperparameters are other functions there",
        ),
        (ReweightedBasisRegressor("rational-quadratic"), "no spectral density in closed form"),
        (ReweightedBasisRegressor("rbf", 7), "num_basis must be an even number"),
    ],
)
def test_bad_arguments_are_named(waves, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*waves)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_basis": 7}, "num_basis must be an even number where basis='random-fourier'"),
        (
            {"kernel": "rational-quadratic"},
            "no spectral density in closed form.*Matern52, or another prior than 'kernel'",
        ),
        ({"kernel": RBF() + Matern32()}, "no spectral density in closed form.*or another prior"),
        (
            {"kernel": "rational-quadratic", "basis": "laplace", "prior": "diagonal"},
            "no spectral density in closed form.*Matern52, or another basis",
        ),
        (
            {"kernel": "rbf + matern32 + matern52", "num_basis": 4, "prior": "diagonal"},
            "num_basis must be at least 6 for a sum of 3 kernels",
        ),
        (
            {"num_basis": 40, "basis": LaplaceBasis(), "prior": KernelWeights(np.ones(3))},
            r"mean of the prior has shape \(3,\). Expected \(40,\)",
        ),
        ({"num_basis": 40, "prior": DiagonalWeights(np.ones(3))}, r"Expected \(40,\)"),
    ],
)
def test_what_cannot_be_is_refused_before_hyperparameters_are_looked_for(
    waves, monkeypatch, arguments, message
):
    monkeypatch.delattr(regressor, "find_first")
    with pytest.raises(ValueError, match=message):
        ReweightedBasisRegressor(**arguments).fit(*waves)


def test_options_refuse_what_cannot_work_when_they_are_made():
    for make, message in (
        (lambda: NUTS(num_chains=0), "num_chains must be a positive integer"),
        (lambda: MALA(num_steps=-5), "num_steps must be a positive integer"),
        (lambda: MALA(num_steps=40), "thin=50 is more than num_steps=40"),
        (lambda: TypeII(max_iter=2.5), "max_iter must be a positive integer"),
        (lambda: LaplaceBasis(0.0), "box_margin must be a positive number"),
        (lambda: SpectralWeights(num_reflections=0), "num_reflections must be a positive integer"),
        (lambda: DiagonalWeights(mean=[1.0, np.nan]), "a finite number for each basis function"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("sampler", r"inference=NUTS\(\.\.\.\) or MALA"),
        ("num_chains", r"inference=NUTS\(num_chains=\.\.\.\)"),
        ("max_iter", r"inference=TypeII\(max_iter=\.\.\.\)"),
        ("start_rows", r"hyperparameters=Subset\(rows=\.\.\.\)"),
        ("evidence_rows", r"hyperparameters=Subset\(rows=\.\.\.\)"),
        ("prior_mean", r"prior=OrthogonalWeights\(mean=\.\.\.\)"),
        ("box_margin", r"basis=LaplaceBasis\(box_margin=\.\.\.\)"),
    ],
)
def test_arguments_that_moved_say_where_to(name, instead):
    cls = GriefRegressor if name == "evidence_rows" else ReweightedBasisRegressor
    with pytest.raises(TypeError, match=f"no argument '{name}' any more: write {instead}"):
        cls(**{name: 1})


def test_a_constant_column_is_one_point_of_the_grid(waves):
    X, y = waves
    model = GriefRegressor("rbf", 40).fit(np.column_stack([X, np.full(len(X), 3.0)]), y)
    assert model.grid_shape_ == (10, 10, 1)
    assert _error_with_column(model) < 0.15


def _error_with_column(model):
    wide = np.column_stack([GRID, np.full(len(GRID), 3.0)])
    return np.mean((model.predict(wide) - TRUTH) ** 2) ** 0.5 / 10.0


def test_float32_features_give_nearly_the_same_model(waves):
    wide = GriefRegressor("rbf", 40).fit(*waves)
    narrow = GriefRegressor("rbf", 40, dtype="float32").fit(*waves)
    np.testing.assert_allclose(narrow.predict(GRID), wide.predict(GRID), atol=0.1)
