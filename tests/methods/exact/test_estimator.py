"""`ExactGPRegressor`: the promises of every regressor, and its own."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from compiled_programs import count_programs
from estimators.regressor_conformance import RegressorConformance, small_data
from vastgp import RBF, ExactGPRegressor, Matern32, load
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.run import Run
from vastgp.kernels.matrices import covariance
from vastgp.likelihoods import Gaussian
from vastgp.linalg.device_cholesky import DeviceCholesky
from vastgp.linalg.panels import PANEL_ROWS, PanelCholesky
from vastgp.methods.exact.learning import stages
from vastgp.methods.exact.pace import Pace
from vastgp.options import Fixed, Learn
from vastgp.solvers.plan import operations_of_exact


class TestExactGPRegressor(RegressorConformance):
    def make(self, **params):
        return ExactGPRegressor(**({"kernel": "rbf", "restarts": 1} | params))


def test_too_many_rows_name_the_method_for_them():
    X, y = small_data(n=50)
    with pytest.raises(
        ValueError, match=r"50 rows, more than max_rows=40.*Use QSGPRegressor.*or raise max_rows"
    ):
        ExactGPRegressor(max_rows=40).fit(X, y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"dtype": "half"},
            r"dtype must be one of \('float64', 'float32', 'auto'\), received 'half'",
        ),
        (
            {"hyperparameters": "fix"},
            r"hyperparameters must be one of \('learn', 'fixed'\) or Learn.*; received 'fix'",
        ),
        ({"hyperparameters": "fixed", "kernel": RBF()}, r"needs noise_std.*Fixed\(noise_std=...\)"),
        (
            {"hyperparameters": Fixed(1.0), "kernel": "rbf"},
            "kernel must be a Kernel with hyperparameters='fixed', received 'rbf'",
        ),
        (
            {"hyperparameters": Learn(steps=500)},
            r"Learn\(steps=500\) has no effect here: set max_iter instead",
        ),
        ({"restarts": 0}, "restarts must be a positive integer"),
        ({"max_rows": True}, "max_rows must be a positive integer"),
    ],
)
def test_bad_arguments_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        ExactGPRegressor(**params).fit(*small_data())


def test_arguments_that_have_moved_say_where_to():
    with pytest.raises(
        TypeError, match=r"no argument 'noise_std' any more: write hyperparam.*Fixed"
    ):
        ExactGPRegressor(noise_std=1.0)
    with pytest.raises(TypeError, match=r"'noise_floor' any more: .*Learn\(noise_floor=...\)"):
        ExactGPRegressor().set_params(noise_floor=1e-3)


def test_a_refit_that_fails_leaves_the_model_as_it_was(monkeypatch):
    X, y = small_data()
    model = ExactGPRegressor("rbf", restarts=1).fit(X, y)
    before, attributes = model.predict(X, return_std=True), dict(model.__dict__)

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("vastgp.methods.exact.learning.fit_best", stopped)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X * 100.0 + 50.0, y + 1000.0)
    assert model.__dict__ == attributes
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)


def test_stopping_at_max_iter_is_said_aloud():
    with pytest.warns(ConvergenceWarning, match=r"did not converge.*raise max_iter \(now 2\)"):
        model = ExactGPRegressor("rbf", max_iter=2, restarts=1).fit(*small_data())
    assert not model.converged_


def test_without_a_kernel_the_one_with_most_evidence_is_taken():
    # drawn from a Matern-3/2 process
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0.0, 10.0, size=(150, 1)), axis=0)
    away = 3.0**0.5 * np.abs(X - X.T)
    A = (1.0 + away) * np.exp(-away) + 1e-4 * np.eye(150)
    y = np.linalg.cholesky(A) @ rng.normal(size=150)
    chosen = ExactGPRegressor(restarts=1).fit(X, y)
    names = ("rbf", "matern52", "matern32")
    each = [ExactGPRegressor(name, restarts=1).fit(X, y).log_evidence_ for name in names]
    assert max(each) == each[2] > each[1] + 1.0
    assert chosen.log_evidence_ == pytest.approx(each[2], abs=1e-2)
    assert isinstance(chosen.kernel_, Matern32)


def test_restarts_find_the_better_of_two_explanations():
    # Twelve rows whose evidence has two maxima: noise, and a short lengthscale (Rasmussen & Williams, figure 5.5).
    rng = np.random.default_rng(17)
    X = rng.uniform(-4.0, 4.0, size=(12, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=12)
    once = ExactGPRegressor("rbf + constant", restarts=1).fit(X, y)
    often = ExactGPRegressor("rbf + constant", restarts=6).fit(X, y)
    assert often.log_evidence_ > once.log_evidence_ + 1.0
    # of one input a kernel of one part begins with a short lengthscale too
    short = ExactGPRegressor("rbf", restarts=1).fit(X, y)
    assert short.log_evidence_ > once.log_evidence_ + 1.0


def test_two_rows_are_enough_and_one_is_with_fixed_hyperparameters():
    model = ExactGPRegressor().fit([[0.0], [1.0]], [1.0, 3.0])
    assert np.all(np.isfinite(model.predict([[0.5]], return_std=True)))
    # one observation y of f(x): mean k / (k + s2) y about the training mean, which is y itself
    fixed = ExactGPRegressor(RBF(2.0, 9.0), hyperparameters=Fixed(noise_std=1.0))
    mean, std = fixed.fit([[1.0]], [5.0]).predict([[1.0], [100.0]], return_std="latent")
    np.testing.assert_allclose(mean, [5.0, 5.0], rtol=1e-12)
    np.testing.assert_allclose(std**2, [9.0 - 81.0 / 10.0, 9.0], rtol=1e-12)


def test_many_rows_start_on_a_subset_and_end_on_all(monkeypatch):
    X, y = small_data(n=250)
    whole = ExactGPRegressor("rbf", restarts=1).fit(X, y)
    monkeypatch.setattr("vastgp.methods.exact.learning.START_ROWS", 80)
    staged = ExactGPRegressor("rbf", restarts=1).fit(X, y)
    assert staged.converged_ and len(staged.posterior_.X) == 250
    assert staged.log_evidence_ == pytest.approx(whole.log_evidence_, abs=0.01)
    assert 2.7 < staged.likelihood_.noise_std < 3.3


def test_fit_and_prediction_compile_nothing():
    X, y = small_data(n=30)
    with count_programs() as programs:
        ExactGPRegressor().fit(X, y).predict(X, return_std=True)
        assert programs() == 0


@pytest.mark.parametrize(
    ("seconds", "answer", "reason"),
    [(8.0, "own", "no time to learn on all rows"), (1e3, "subset", "too little of max_seconds")],
)
def test_what_the_budget_does_not_hold_is_not_begun(monkeypatch, seconds, answer, reason):
    """An evaluation of all rows, or the posterior alone, as long as is said here."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(1100, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=1100)
    monkeypatch.setattr(
        "vastgp.methods.exact.learning.seconds_of_evaluation", lambda n, d, parts: seconds
    )
    asked = []
    evidence = ExactEvidence.value_and_gradient
    monkeypatch.setattr(
        ExactEvidence,
        "value_and_gradient",
        lambda self, *params: (asked.append(self.num_rows), evidence(self, *params))[1],
    )
    with pytest.warns(ConvergenceWarning, match=reason):
        model = ExactGPRegressor("rbf", max_seconds=20.0).fit(X, y)
    assert max(asked) <= 1000
    assert (model.answer_, model.converged_) == (answer, False)
    assert model.score(X, y) > 0.97


class TestInSinglePrecision(RegressorConformance):
    """The factor in panels, refined: all promises hold, files do without it."""

    # a tenth of a per cent of a standard deviation
    units_tolerance = 1e-5

    def make(self, **params):
        return ExactGPRegressor(**({"kernel": "rbf", "restarts": 1, "dtype": "float32"} | params))


def test_single_precision_predicts_what_double_does():
    X, y = small_data(n=120)
    narrow, wide = (
        ExactGPRegressor("matern32", restarts=1, dtype=dtype).fit(X, y)
        for dtype in ("float32", "float64")
    )
    assert narrow.diagnosis_["factor"] == "float32"
    for mine, theirs in zip(
        narrow.predict(X, return_std="latent"), wide.predict(X, return_std="latent"), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3)
    assert narrow.log_evidence_ == pytest.approx(wide.log_evidence_, abs=1e-3)


def test_hyperparameters_of_some_rows_and_the_posterior_of_all(monkeypatch):
    monkeypatch.setattr("vastgp.methods.exact.learning.START_ROWS", 50)
    X, y = small_data(n=300)
    learned = []
    gradient = ExactEvidence.value_and_gradient
    monkeypatch.setattr(
        ExactEvidence,
        "value_and_gradient",
        lambda self, *params: (learned.append(self.num_rows), gradient(self, *params))[1],
    )
    model = ExactGPRegressor("rbf", restarts=1, hyperparameters=Learn(rows=200)).fit(X, y)
    assert sorted(set(learned)) == [50, 200]
    assert len(model.posterior_.X) == 300 and model.converged_
    given = ExactGPRegressor(
        model.kernel_, hyperparameters=Fixed(float(model.likelihood_.noise_std))
    ).fit(X, y)
    np.testing.assert_allclose(
        model.predict(X, return_std=True), given.predict(X, return_std=True), rtol=1e-9
    )


def test_stages_grow_by_one_factor_and_end_where_they_should():
    assert stages(900) == []
    assert stages(1500) == [1500]
    assert stages(4999) == [4999]
    assert stages(5000) == [2000, 5000]
    assert stages(25_000) == [4000, 10_000, 25_000]


def test_rows_that_memory_does_not_hold_are_refused_with_how_many_it_does(monkeypatch):
    X, y = small_data(n=50)
    monkeypatch.setattr("vastgp.methods.exact.room.affordable_rows", lambda itemsize: 49)
    with pytest.raises(ValueError, match=r"X has 50 rows, and the memory .* posterior of 49"):
        ExactGPRegressor().fit(X, y)
    monkeypatch.undo()
    monkeypatch.setattr("vastgp.methods.exact.room.learnable_rows", lambda: 30)
    with pytest.raises(
        ValueError, match=r"evidence of 50 rows .* Set hyperparameters=Learn\(rows=30\)"
    ):
        ExactGPRegressor().fit(X, y)
    # what is given needs no evidence
    ExactGPRegressor(RBF(), hyperparameters=Fixed(1.0)).fit(X, y)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_leave_one_out_is_a_fit_without_the_row(dtype):
    X, y = small_data(n=20)
    error, weight = np.linspace(1.0, 4.0, 20), np.linspace(0.5, 2.0, 20)
    kernel = RBF([4.0, 300.0], 900.0)
    model = ExactGPRegressor(kernel, hyperparameters=Fixed(3.0), dtype=dtype)
    found = model.fit(X, y, noise_std=error, sample_weight=weight).leave_one_out()
    # by hand, with the scaling of all rows
    posterior, scaling = model.posterior_, model.standardizer_
    K = covariance(posterior.kernel, posterior.X, posterior.X) * scaling.y_scale**2
    noise = 9.0 / (weight / np.mean(weight)) + error**2
    centred = y - scaling.y_mean
    for i in range(20):
        others = np.arange(20) != i
        A = K[np.ix_(others, others)] + np.diag(noise[others])
        solved = np.linalg.solve(A, np.stack([centred[others], K[others, i]], axis=1))
        mean = scaling.y_mean + K[i, others] @ solved[:, 0]
        std = (K[i, i] - K[i, others] @ solved[:, 1] + noise[i]) ** 0.5
        assert found.mean[i] == pytest.approx(mean, rel=1e-5)
        assert found.std[i] == pytest.approx(std, rel=1e-3 if dtype == "float32" else 1e-8)
        assert found.log_density[i] == pytest.approx(norm.logpdf(y[i], mean, std), abs=1e-3)


def test_leave_one_out_survives_saving_and_is_refused_without_an_answer_of_its_own(tmp_path):
    X, y = small_data(n=30)
    model = ExactGPRegressor("rbf", restarts=1).fit(X, y)
    model.save(tmp_path / "model.vastgp")
    again = load(tmp_path / "model.vastgp")
    np.testing.assert_array_equal(again.leave_one_out(), model.leave_one_out())
    np.testing.assert_array_equal(again.conditioned_rows_, np.arange(30))
    model.answer_ = "linear"
    with pytest.raises(ValueError, match="leave_one_out is of the method's own answer"):
        model.leave_one_out()


def test_a_budget_that_is_too_small_gives_the_posterior_of_random_rows(monkeypatch):
    """Two panels of four are all that the clock allows: the posterior is exact, of 2048 rows, and says so."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, size=(3500, 1)), axis=0)
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=3500)
    monkeypatch.setattr(
        "vastgp.methods.exact.pace.Pace.go_on", lambda self, done, itemsize: done < 2048
    )
    monkeypatch.setattr(ExactGPRegressor, "_seconds", lambda self, n: 1e6)
    model = ExactGPRegressor(
        RBF(0.5), hyperparameters=Fixed(0.1), dtype="float32", max_seconds=100.0
    )
    with pytest.warns(ConvergenceWarning, match="the posterior of 2048 random rows of 3500"):
        model.fit(X, y)
    seen = model.conditioned_rows_
    assert len(seen) == len(set(seen)) == 2048 and not model.converged_
    # sorted inputs: they come from everywhere
    assert np.all(np.histogram(seen, 7, (0, 3500))[0] > 200)
    other = ExactGPRegressor(RBF(0.5), hyperparameters=Fixed(0.1)).fit(X[seen], y[seen])
    new = np.linspace(-2.0, 2.0, 5)[:, None]
    np.testing.assert_allclose(model.predict(new), other.predict(new), atol=1e-4)
    left_out = model.leave_one_out()
    np.testing.assert_allclose(left_out.mean, other.leave_one_out().mean, atol=1e-3)


def test_means_that_the_clock_left_rough_are_told(monkeypatch):
    X, y = small_data(n=60)
    monkeypatch.setattr("vastgp.methods.exact.pace.Pace.has_time", lambda self, seconds: False)
    model = ExactGPRegressor(
        RBF(1.0), hyperparameters=Fixed(1e-3), dtype="float32", max_seconds=100.0
    )
    with pytest.warns(ConvergenceWarning, match="means off by up to .* deviations of the noise"):
        model.fit(X, y)
    assert not model.converged_ and model.diagnosis_["refinement_steps"] == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_where_there_is_no_time_for_all_rows_some_judge(monkeypatch):
    """Those of the posterior are still told by their numbers in the table."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(2600, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=2600)
    monkeypatch.setattr(
        "vastgp.methods.exact.pace.Pace.go_on", lambda self, done, itemsize: done < 1024
    )
    monkeypatch.setattr(ExactGPRegressor, "_seconds", lambda self, n: 1e6)
    given = {"max_seconds": 100.0, "hyperparameters": Learn(rows=300)}
    model = ExactGPRegressor("rbf", dtype="float32", **given).fit(X, y)
    assert set(model.scores_) == {"own", "linear", "subset"} and model.answer_ == "own"
    assert "1024 random rows of 2470" in model.stop_reason_  # a twentieth is kept out
    known = model.posterior_.X * model.standardizer_.x_scale + model.standardizer_.x_mean
    seen = model.conditioned_rows_
    np.testing.assert_allclose(np.sort(known[:, 0]), np.sort(X[seen, 0]), rtol=1e-9, atol=1e-12)
    left_out = model.leave_one_out()
    assert np.corrcoef(left_out.mean, y[seen])[0, 1] > 0.95
    monkeypatch.undo()
    in_time = ExactGPRegressor("rbf", **given).fit(X[:2100], y[:2100])
    assert in_time.scores_.keys() == {"own"}


def test_a_fit_in_stages_that_is_killed_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("vastgp.methods.exact.learning.START_ROWS", 15)
    monkeypatch.setattr("vastgp.methods.exact.learning._GROWTH", 2)
    assert stages(60) == [30, 60]
    data, promises = small_data(), TestExactGPRegressor()
    model = promises.make().fit(*data)
    assert set(model.history_.phases) | {"exact GP"} == {"exact GP", "exact GP, 30 rows"}
    promises.test_killed_at_a_record_and_resumed_it_is_the_fit_that_was_left_alone(
        model, data, data[0][:5] + 0.5, tmp_path, monkeypatch
    )


def test_the_clock_stops_a_factor_before_the_panel_that_does_not_fit(monkeypatch):
    """Panels at a steady rate: what follows the factor is left its time, and a second factor has a clock of its own."""
    clock, rate = [0.0], 1e9
    monkeypatch.setattr("vastgp.methods.exact.pace.now", lambda: clock[0])
    monkeypatch.setattr("vastgp.methods.exact.pace.operations_a_second", lambda: 1e15)

    run = Run(max_seconds=4000.0)
    monkeypatch.setattr(run, "seconds_left", lambda: 4000.0 - clock[0])
    pace = Pace(run, PANEL_ROWS, 100_000)
    for began in (0.0, 1500.0):
        clock[0], done = began, 1024
        while pace.go_on(done, 4):
            done += 1024
            clock[0] = began + (done**3 - 1024**3) / 3 / rate
        # the rest of the posterior still fits, and with another panel it would not, or hardly
        rest, more = (
            (operations_of_exact(rows, 4) - done**3 / 3) / rate for rows in (done, done + 1024)
        )
        assert done > 5 * 1024
        assert rest <= 4000.0 - clock[0] < 1.2 * more


@pytest.fixture
def pretended_accelerator(monkeypatch):
    """The host's processor as an accelerator of a few megabytes, with small tiles."""
    from vastgp import _accelerator
    from vastgp.fitting import device_evidence
    from vastgp.linalg import device_cholesky

    monkeypatch.setattr(_accelerator, "is_present", lambda: True)
    monkeypatch.setattr(_accelerator, "free_bytes", lambda: 4_000_000)
    monkeypatch.setattr(device_cholesky, "TILE_ROWS", 32)
    for module in (device_cholesky, device_evidence):
        monkeypatch.setattr(module, "is_faster", lambda: True)
    monkeypatch.setattr(device_evidence, "LEAST_ROWS", 50)
    monkeypatch.setattr("vastgp.methods.exact.estimator.DENSE_ROWS", 20)
    monkeypatch.setattr("vastgp.methods.exact.learning.START_ROWS", 30)
    monkeypatch.setattr("vastgp.solvers.exact_posterior._ON_HOST", 0)


def test_on_an_accelerator_it_is_the_same_process(tmp_path, pretended_accelerator, monkeypatch):
    """Evidence, factor, predictions, left-out rows and samples in tiles; a file of it opens where there is none."""
    X, y = small_data(n=150)
    model = ExactGPRegressor(Matern32(), random_state=3).fit(X, y)
    assert isinstance(model.posterior_.factor, DeviceCholesky)
    assert model.posterior_.factor.tile == 32
    model.save(tmp_path / "model.vastgp")
    found = [*model.predict(X, return_std=True), *model.leave_one_out(), model.sample_y(X, 2)]
    monkeypatch.undo()
    host = ExactGPRegressor(Matern32(), random_state=3).fit(X, y)
    assert host.log_evidence_ == pytest.approx(model.log_evidence_, abs=0.01)
    for here in (host, load(tmp_path / "model.vastgp")):
        expected = [*here.predict(X, return_std=True), *here.leave_one_out(), here.sample_y(X, 2)]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-3)


def test_more_rows_than_an_accelerator_holds_are_the_hosts(pretended_accelerator, monkeypatch):
    monkeypatch.setattr("vastgp._accelerator.free_bytes", lambda: 40_000)
    X, y = small_data(n=150)
    model = ExactGPRegressor(Matern32(), random_state=3).fit(X, y)
    assert isinstance(model.posterior_.factor, PanelCholesky)


def test_an_accelerator_that_is_slow_in_float64_has_what_is_asked_for_in_float32(
    pretended_accelerator, monkeypatch
):
    for module in ("linalg.device_cholesky", "fitting.device_evidence"):
        monkeypatch.setattr(f"vastgp.{module}.is_faster", lambda: False)
    X, y = small_data(n=150)
    fixed = Fixed(noise_std=0.3)
    wide = ExactGPRegressor(Matern32(), hyperparameters=fixed).fit(X, y)
    narrow = ExactGPRegressor(Matern32(), hyperparameters=fixed, dtype="float32").fit(X, y)
    assert isinstance(wide.posterior_.factor, PanelCholesky)
    assert isinstance(narrow.posterior_.factor, DeviceCholesky)
    assert narrow.diagnosis_["factor"] == "float32"
    np.testing.assert_allclose(narrow.predict(X), wide.predict(X), atol=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_noise_that_few_rows_left_too_small_makes_no_prior_of_the_posterior(monkeypatch):
    """Near rows contradict it, and a factor of all variances would be hundreds."""
    generator = np.random.default_rng(0)

    def rows(n):
        X = generator.uniform(-2.0, 2.0, (n, 2))
        return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * generator.normal(size=n)

    found = LbfgsResult.unneeded((RBF([0.8, 1.0], 2.0), Gaussian(1e-5)), "of few rows")
    monkeypatch.setattr(
        "vastgp.methods.exact.estimator.learn_by_stages", lambda *given: (found, 100)
    )
    monkeypatch.setattr(ExactGPRegressor, "_seconds", lambda self, n: 200.0)
    (X, y), (new, target) = rows(2400), rows(1000)
    model = ExactGPRegressor("rbf", random_state=0, max_seconds=100.0).fit(X, y)
    assert "times what was learned, as rows kept out" in model.stop_reason_
    assert model.scores_["own"] > model.scores_["linear"] + 0.5
    mean, std = model.predict(new, return_std=True)
    held = np.mean(np.abs(target - mean) < 1.96 * std)
    assert 0.9 < held < 0.99 and np.median(std) < 1.0
    assert np.mean(0.5 * ((target - mean) / std) ** 2 + np.log(std)) < np.log(np.std(y))
    # where no rows are kept out nothing else says how wide it is to be
    whole = ExactGPRegressor("rbf", random_state=0).fit(X, y)
    assert whole.diagnosis_["scale"] > 10.0
    mean, std = whole.predict(new, return_std=True)
    assert np.mean(np.abs(target - mean) < 1.96 * std) > 0.95
