"""An answer that predicts rows worse than a simple one is not kept."""

import dataclasses
import pickle

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import vastgp
from hard_tables import NAMED
from vastgp import (
    RBF,
    DirectRegressor,
    ExactGPRegressor,
    QSGPRegressor,
    RelevanceVectorRegressor,
    SVGPRegressor,
    TSVGPClassifier,
    TSVGPRegressor,
)
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import standardised_rows
from vastgp.estimators import race
from vastgp.estimators.race import Judge, Judged, _best, _surely_line
from vastgp.estimators.registry import METHODS
from vastgp.estimators.simple_answers import linear_answer, rows_of_subset, simple_answer
from vastgp.fitting.run import Answer, OutOfTime, Run
from vastgp.likelihoods import Bernoulli, Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.options import Fixed, Subset
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.linear_model import fit_linear

QUICK = Subset(rows=100)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(2600, 3))
    y = 5.0 + 2.0 * X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.normal(size=2600)
    return X[:2200], y[:2200], X[2200:], y[2200:]


@pytest.fixture(scope="module")
def classes(table):
    X, y, new, target = table
    return X, np.where(y > 5.0, "high", "low"), new, np.where(target > 5.0, "high", "low")


def linear_nlpd(X, y, new, target):
    A = np.column_stack([np.ones(len(X)), X])
    weights, rest = np.linalg.lstsq(A, y, rcond=None)[:2]
    noise = float(rest[0]) / len(y)
    error = target - np.column_stack([np.ones(len(new)), new]) @ weights
    return 0.5 * np.log(2 * np.pi * noise) + 0.5 * np.mean(error**2) / noise


def judged_model(X, y):
    """Return a model with the scaling of some rows, and what judges answers for it."""
    rows = Rows(X, y)
    model = SVGPRegressor()
    model.standardizer_ = Standardizer().fit(rows)
    return model, Judge(model, rows, Run())


def loss(off, variance):
    """Return the mean negative log density of distances from a normal mean, up to its constant."""
    return np.mean(0.5 * (np.log(variance) + off**2 / variance))


def spoiled(model, change):
    """Return an estimator whose own answers are changed."""
    kind = type(model)

    def answers(self, rows, run):
        for answer in kind._answers(self, rows, run):
            yield change(answer)

    name = kind.__name__
    return type(name, (kind,), {"_answers": answers})(**model.get_params(deep=False))


class Nowhere:
    """A posterior that knows nothing, or not even numbers."""

    def __init__(self, value):
        self.value = value

    def mean_and_latent_variance(self, X):
        return np.full(len(X), self.value), np.full(len(X), 1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_budget_too_short_for_the_method_gives_an_answer_as_good_as_linear_regression(table):
    X, y, new, target = table
    model = QSGPRegressor("rbf", hyperparameters=QUICK, max_seconds=0.01).fit(X, y)
    found = -np.mean(model.log_predictive_density(new, target))
    assert found < linear_nlpd(*table) + 0.02
    assert not model.converged_ or model.answer_ == "own"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_programs_of_other_sizes_are_not_there_yet(table):
    """A method that compiles longer than there is time begins on rows and inputs of the sizes that it has seen."""

    class Slow(SVGPRegressor):
        _compiling_seconds = 1000.0

    X, y, _, _ = table
    quick = {"num_inducing": 10, "hyperparameters": QUICK}
    Slow("rbf", **quick).fit(X[:600], y[:600])
    again = Slow("rbf", max_seconds=100.0, **quick).fit(X[600:1200], y[600:1200])
    assert "too little of max_seconds" not in again.stop_reason_
    for rows, columns in ((600, 2), (1200, 3)):
        other = Slow("rbf", max_seconds=100.0, **quick).fit(X[:rows, :columns], y[:rows])
        assert "too little of max_seconds" in other.stop_reason_
        assert other.answer_ != "own"


@pytest.mark.parametrize("value", [3.0, np.nan])
def test_a_method_that_went_astray_hands_over(value, table):
    X, y, new, target = table
    model = spoiled(
        TSVGPRegressor("rbf", 5, hyperparameters=QUICK),
        lambda answer: dataclasses.replace(answer, posterior=lambda: Nowhere(value)),
    )
    with pytest.warns(ConvergenceWarning, match="predicts rows better"):
        model.fit(X, y)
    # the exact posterior of 2000 rows at good hyperparameters is far better than a line
    assert model.answer_ == "subset"
    assert not model.converged_
    assert model.scores_["subset"] == max(model.scores_.values())
    mean, std = model.predict(new, return_std=True)
    assert np.mean(np.abs(target - mean) < 1.96 * std) > 0.92
    assert -np.mean(model.log_predictive_density(new, target)) < linear_nlpd(*table) - 0.1


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.5])
@pytest.mark.parametrize("heavy", [False, True])
def test_the_exact_posterior_of_some_rows_has_the_scale_of_rows_kept_out(noise, heavy, table):
    X, y, new, target = table
    if heavy:  # where a few far rows leave the mean square as it is, and the middle is wide
        rng = np.random.default_rng(0)
        y, target = (part + 0.3 * rng.standard_t(1.5, len(part)) for part in (y, target))
    model, judge = judged_model(X, y)
    assert judge.spared
    unit = float(np.std(y))
    kernel, likelihood = (
        RBF([3.0, 0.6, 9.0], (5.0 * noise / unit) ** 2),
        Gaussian((noise / unit) ** 2),
    )

    def answer_of(likelihood):
        some = standardised_rows(judge.training, model.standardizer_, np.arange(800))
        made, _ = ExactPosterior.condition(kernel, float(likelihood.noise_variance), *some)
        return simple_answer(kernel, likelihood, made)

    before, found = answer_of(likelihood), judge.at_best_scale(answer_of(likelihood), model, Run())
    # one factor of all variances: means are as they were
    by = float(found.kernel.total_variance()) / float(kernel.total_variance())
    of_noise = float(found.likelihood.noise_variance) / float(likelihood.noise_variance)
    if heavy:  # and more noise, as rare rows of the others are farther than any that is kept out
        assert of_noise > by
    else:
        assert of_noise == pytest.approx(by)
    Z, t = model.standardizer_.transform_X(new), model.standardizer_.transform_y(target)
    mean, variance = found.posterior().mean_and_latent_variance(Z)
    plain = before.posterior().mean_and_latent_variance(Z)
    np.testing.assert_allclose(mean, plain[0], rtol=1e-9)
    np.testing.assert_allclose(variance, by * plain[1], rtol=1e-6)
    total = variance + float(found.likelihood.noise_variance)
    held = np.abs(t - mean) < 1.96 * np.sqrt(total)
    assert 0.9 < held.mean() <= 1.0
    if not heavy:
        assert (by > 2.0, by < 0.5) == (noise == 0.1, noise == 1.5)
        assert held.mean() < 0.98


def test_the_exact_posterior_of_some_rows_has_the_noise_of_a_place_that_many_rows_come_to():
    rng = np.random.default_rng(0)

    def rows_of(n):
        X = rng.uniform(-2.0, 2.0, (n, 2))
        scatter = np.full(n, 0.02)
        often = rng.uniform(size=n) < 0.4
        X[often], scatter[often] = 0.5, 0.4
        return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + scatter * rng.normal(size=n)

    X, y = rows_of(6000)
    model, judge = judged_model(X, y)
    # rows that are kept out count by their places, and the one that 2400 come to is none of them
    assert len(np.unique(judge.rows.X, axis=0)) == len(judge.rows.X)
    some = standardised_rows(
        judge.training, model.standardizer_, rows_of_subset(0, judge.training.n, 1500)
    )
    made, _ = ExactPosterior.condition(RBF([1.0, 2.0], 3.0), 1e-3, *some)
    answer = simple_answer(RBF([1.0, 2.0], 3.0), Gaussian(1e-3), made)
    found = judge.at_best_scale(answer, model, Run())
    Z, t = rows_of(20_000)
    Z, t = model.standardizer_.transform_X(Z), model.standardizer_.transform_y(t)
    mean, variance = found.posterior().mean_and_latent_variance(Z)
    noise = float(found.likelihood.noise_variance)
    off = t - mean
    assert noise == pytest.approx(np.mean(off**2), rel=0.15)

    assert loss(off, variance + noise) < loss(off, variance + 1e-3) - 1.0


@pytest.mark.parametrize("times", [0.5, 1.0, 5.0])
def test_own_answers_have_the_noise_by_which_rows_kept_out_are_likeliest(times):
    """Outliers: intervals of 95 % hold 93, and yet a larger noise predicts better."""
    rng = np.random.default_rng(0)

    def rows_of(n):
        X = rng.uniform(-2.0, 2.0, (n, 2))
        scatter = np.where(rng.uniform(size=n) < 0.03, 2.0, 0.2)
        return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + scatter * rng.normal(size=n)

    X, y = rows_of(8000)
    model, judge = judged_model(X, y)
    some = standardised_rows(judge.training, model.standardizer_, np.arange(1500))
    unit = model.standardizer_.y_scale
    noise = times * (0.2 / unit) ** 2
    made, _ = ExactPosterior.condition(RBF([1.0, 2.0], 3.0), (0.3 / unit) ** 2, *some)
    answer = simple_answer(RBF([1.0, 2.0], 3.0), Gaussian(noise), made)
    model.num_inducing_ = 10
    own = judge("own", answer, model, Run())
    found = judge.widened(own, model, Run())
    wide = float(found.answer.likelihood.noise_variance)
    # what intervals say against it, too, may give way to whatever is better
    assert found.wider == (times == 0.5)
    Z, t = rows_of(20_000)
    Z, t = model.standardizer_.transform_X(Z), model.standardizer_.transform_y(t)
    mean, variance = made.mean_and_latent_variance(Z)
    off = t - mean
    if times == 5.0:  # enough as it is
        assert found is own
    else:
        assert wide > 1.3 * noise and found.score > own.score + 0.02
        assert loss(off, variance + wide) < loss(off, variance + noise) - 0.3


def test_known_errors_are_not_told_by_others(table):
    X, y, _, _ = table
    model, judge = judged_model(X, np.column_stack([y, np.full(len(y), 0.01), np.ones(len(y))]))
    made, _ = ExactPosterior.condition(RBF([1.0] * 3), 1e-4, X[:100], y[:100])
    answer = simple_answer(RBF([1.0] * 3), Gaussian(1e-4), made)
    assert judge.at_best_scale(answer, model, Run()) is answer


@pytest.mark.parametrize("error", [FactorizationError, np.linalg.LinAlgError])
def test_a_factorisation_that_fails_leaves_the_simple_answers(error, table):
    X, y, new, target = table

    class Failing(QSGPRegressor):
        def _answers(self, rows, run):
            raise error("the matrix cannot be factorised")
            yield

    with pytest.warns(ConvergenceWarning, match="cannot be factorised"):
        model = Failing().fit(X, y)
    assert model.answer_ == "linear"
    assert -np.mean(model.log_predictive_density(new, target)) == pytest.approx(
        linear_nlpd(*table), abs=0.01
    )


def test_a_good_answer_is_the_methods_own_and_rows_were_kept_out_of_it(table):
    X, y, _, _ = table
    seen = []
    model = TSVGPRegressor("rbf", 60, hyperparameters=QUICK)
    kind = type(model)

    def answers(self, rows, run):
        seen.append(rows.n)
        return kind._answers(self, rows, run)

    model = type(kind.__name__, (kind,), {"_answers": answers})(**model.get_params(deep=False)).fit(
        X, y
    )
    assert seen == [2200 - 110]
    assert model.answer_ == "own"
    assert model.scores_["own"] > model.scores_["linear"]


def test_rows_that_repeat_each_other_are_kept_out_together(table):
    """Each row stands five times: what only remembers rows says nothing of those that it is judged by."""
    X, y, _, _ = table
    X, y = np.repeat(X[:550], 5, axis=0), np.repeat(y[:550], 5)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    fitted = []

    class Remembering:
        """Knows the rows of the fit, and the mean elsewhere."""

        def mean_and_latent_variance(self, inputs):
            known, target = fitted
            near = np.linalg.norm(inputs[:, None] - known[None], axis=2)
            seen, nearest = near.min(axis=1) < 1e-3, near.argmin(axis=1)
            return np.where(seen, target[nearest], 0.0), np.where(seen, 1e-8, 1.0)

    class Astray(TSVGPRegressor):
        def _answers(self, rows, run):
            fitted[:] = standardised_rows(rows, self.standardizer_, np.arange(rows.n))
            for answer in super()._answers(rows, run):
                yield dataclasses.replace(
                    answer,
                    posterior=Remembering,
                    likelihood=vastgp.likelihoods.Gaussian(1e-4),
                )

    with pytest.warns(ConvergenceWarning, match="predicts rows better"):
        model = Astray("rbf", 5, hyperparameters=QUICK).fit(X, y)
    # a tenth of the distinct rows, as of a table of so many
    assert len(fitted[0]) == 2750 - 275
    assert len(np.unique(fitted[0], axis=0)) == 550 - 55
    assert model.answer_ == "subset"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_of_few_rows_that_repeat_each_other_some_are_kept_out_to_judge():
    """Evidence takes targets that come twice for a function without noise; of new rows it then knows nothing."""
    rng = np.random.default_rng(0)

    def draw(n):
        X = rng.normal(size=(n, 4))
        return X, np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.7 * rng.normal(size=n)

    X, y = draw(240)
    again = rng.integers(240, size=160)
    new, target = draw(1000)
    model = RelevanceVectorRegressor(max_seconds=20)
    model.fit(np.concatenate([X, X[again]]), np.concatenate([y, y[again]]))
    assert model.scores_["own"] < model.scores_["linear"]
    assert model.answer_ != "own"
    mean, std = model.predict(new, return_std=True)
    assert vastgp.metrics.coverage(target, mean, std) > 0.9


def test_given_hyperparameters_are_the_model_and_all_rows_are_its_own(table):
    X, y, new, _ = table
    kernel = vastgp.RBF(100.0, 1e-4)  # poor, and as it was asked for
    model = TSVGPRegressor(kernel, 5, hyperparameters=Fixed(noise_std=1.0)).fit(X, y)
    assert model.answer_ == "own"
    assert model.scores_ == {}
    np.testing.assert_allclose(model.predict(new), np.mean(y), atol=0.1)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weight", [None, "balanced"])
def test_classes_have_a_simple_answer_too(classes, weight):
    X, y, new, target = classes
    likelihood = vastgp.options.Classes(class_weight=weight)
    model = spoiled(
        TSVGPClassifier("rbf", 5, likelihood=likelihood, hyperparameters=QUICK),
        lambda answer: dataclasses.replace(answer, posterior=lambda: Nowhere(9.0)),
    ).fit(X, y)
    assert model.answer_ in ("linear", "subset")
    assert model.score(new, target) > 0.85
    assert -np.mean(model.log_predictive_density(new, target)) < 0.35


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", sorted(METHODS.values()))
def test_simple_answers_are_saved_pickled_and_sampled(name, table, classes, tmp_path, monkeypatch):
    kind, of_classes = getattr(vastgp, name), name.endswith("Classifier")
    X, y, new, _ = classes if of_classes else table

    def fail(self, rows, run):
        raise FactorizationError("no")
        yield

    monkeypatch.setattr(kind, "_answers", fail)
    model = kind().fit(X, y)
    assert model.answer_ == "linear"
    model.save(tmp_path / "model.vastgp")
    predict = "predict_proba" if of_classes else "predict"
    wanted = getattr(model, predict)(new)
    for again in (vastgp.load(tmp_path / "model.vastgp"), pickle.loads(pickle.dumps(model))):
        assert again.answer_ == "linear"
        assert again.scores_ == model.scores_
        np.testing.assert_array_equal(getattr(again, predict)(new), wanted)
        np.testing.assert_array_equal(again.sample_y(new, 3), model.sample_y(new, 3))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_only_the_method_has_is_refused_by_name(table, monkeypatch):
    X, y, _, _ = table
    model = spoiled(
        DirectRegressor("rbf", 20, hyperparameters=QUICK),
        lambda answer: dataclasses.replace(
            answer, converged=False, likelihood=vastgp.likelihoods.Gaussian(1e-6)
        ),
    ).fit(X, y)
    assert model.answer_ == "subset"
    with pytest.raises(ValueError, match="the model in integers"):
        model.to_integer()

    def fail(self, rows, run):
        raise FactorizationError("no")
        yield

    monkeypatch.setattr(DirectRegressor, "_answers", fail)
    model = DirectRegressor("rbf", 20, hyperparameters=QUICK).fit(X, y)
    with pytest.raises(ValueError, match="partial_fit is of the method's own answer"):
        model.partial_fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("answer", ["own", "subset"])
def test_sums_of_a_fit_have_the_rows_that_judged_it(table, answer, monkeypatch):
    """Whichever answer is kept: rows that are added make the sums of all."""
    X, y, new, target = table
    model = DirectRegressor("rbf", 200, hyperparameters=QUICK)
    if answer == "own":
        monkeypatch.setattr(
            "vastgp.estimators.race.SIMPLE", dict.fromkeys(("linear", "subset"), _nothing)
        )
    if answer != "own":
        model = spoiled(
            model,
            lambda found: dataclasses.replace(
                found, converged=False, likelihood=vastgp.likelihoods.Gaussian(1e-6)
            ),
        )
    model.fit(X, y)
    assert model.answer_ == answer
    alone = model.statistics(X, y)
    assert model.statistics_.num_rows == len(X)
    np.testing.assert_allclose(model.statistics_.gram, alone.gram, rtol=1e-5, atol=1e-3)
    sums = alone + model.statistics(new, target)
    model.partial_fit(new, target)
    assert model.answer_ == "own"
    np.testing.assert_allclose(model.statistics_.target, sums.target, rtol=1e-5, atol=1e-3)
    assert vastgp.metrics.coverage(target, *model.predict(new, return_std=True)) > 0.9


def test_a_model_that_the_budget_made_smaller_is_trusted_as_one_that_has_not_converged():
    """What a whole one is behind must be beyond doubt: two standard errors of it."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=500)
    # 0.06 +- 0.045 better
    better = 0.06 + noise - noise.mean()

    def judged(name, scores, cut):
        answer = Answer(None, Gaussian(1.0), lambda: None, 1, "", converged=True, cut=cut)
        return Judged(name, answer, {}, scores)

    for cut, wanted in ((False, "own"), (True, "subset")):
        found = [judged("own", np.zeros(500), cut), judged("subset", better, False)]
        assert _best(found, apart=True).name == wanted


def test_rows_of_the_fit_speak_for_nobody_but_who_is_given_each_by_the_others():
    """The method's own answer has seen the rows that judge, and says less of them than one that has not."""

    def judged(name, score, fair=False):
        answer = Answer(None, Gaussian(1.0), lambda: None, 1, "")
        return Judged(name, answer, {}, np.full(500, score), fair)

    own, line = judged("own", 0.1), judged("linear", -1.0)
    for fair, wanted in ((False, "own"), (True, "subset")):
        assert _best([own, line, judged("subset", 0.2, fair)], apart=False).name == wanted
    assert _best([own, line, judged("subset", 0.11, True)], apart=False).name == "own"
    assert _best([own, judged("linear", 0.2)], apart=False).name == "linear"
    # of simple answers the better is that which says more of rows that it has not seen
    flattered = judged("linear", 0.5)._replace(left_out=np.full(500, 0.1))
    for name, left_out in (("subset", 0.2), ("linear", 0.05)):
        others = [flattered, judged("subset", left_out, True)]
        assert _best(others, apart=False).name == name
        assert _best([own, *others], apart=False).name == name


def test_a_line_is_judged_by_what_it_says_of_each_row_given_the_others():
    rng = np.random.default_rng(3)
    rows = Rows(rng.normal(size=(600, 12)), rng.normal(size=600))
    model, run = ExactGPRegressor(), Run()
    model.standardizer_ = Standardizer().fit(rows)
    judge = Judge(model, rows, Run())
    answer = linear_answer(model, rows, run, None)
    judged = judge("linear", answer, model, run)
    line, noise = answer.posterior(), float(answer.likelihood.noise_variance)
    X, y = standardised_rows(rows, model.standardizer_, np.arange(600))
    expected = line.leave_one_out(X, y, noise).log_density
    # the rows that judge are some of them
    np.testing.assert_allclose(judged.left_out, expected[judge.chosen], rtol=1e-9)
    assert judged.of_others < judged.score


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_where_the_method_could_not_begin_the_rest_of_the_budget_is_for_more_rows(
    table, monkeypatch
):
    X, y, _, _ = table
    monkeypatch.setattr("vastgp.estimators.simple_answers.SUBSET_ROWS", 500)
    monkeypatch.setattr("vastgp.estimators.simple_answers.DENSE_ROWS", 1000)

    class Late(QSGPRegressor):
        def _answers(self, rows, run):
            run.first = vastgp.RBF([2.0, 0.5, 2.0], 1.0), Gaussian(0.05)
            raise OutOfTime("nothing is left")
            yield

    for rows in (200, 1500):
        monkeypatch.setattr(
            "vastgp.estimators.simple_answers.affordable_exact", lambda *_, itemsize, n=rows: n
        )
        model = Late(max_seconds=20).fit(X, y)
        assert model.answer_ == "subset"
        assert len(model.posterior_.X) == max(rows, 500)


def _nothing(*_):
    return None


def test_without_any_answer_the_methods_error_is_raised(table, monkeypatch):
    X, y, _, _ = table
    monkeypatch.setattr(
        "vastgp.estimators.race.SIMPLE", dict.fromkeys(("linear", "subset"), _nothing)
    )

    class Failing(QSGPRegressor):
        def _answers(self, rows, run):
            raise FactorizationError("the matrix cannot be factorised")
            yield

    with pytest.raises(FactorizationError):
        Failing().fit(X, y)


@pytest.mark.parametrize("rows", [12, 120])
def test_few_rows_are_answered_by_what_they_leave_open(rows):
    """Of 12 rows the relevance vectors follow all and are sure of what is between them; of 120 they are as good."""
    X, y, X_test, y_test = dataclasses.replace(NAMED["few"], rows=rows).draw(0)
    model, exact = RelevanceVectorRegressor().fit(X, y), ExactGPRegressor().fit(X, y)
    assert exact.answer_ == model.answer_ == ("average" if rows == 12 else "own")
    assert ("leave open" in model.stop_reason_) == (rows == 12)
    density, best = (each.log_predictive_density(X_test, y_test).mean() for each in (model, exact))
    assert density > best - 0.25
    if rows == 12:
        np.testing.assert_allclose(model.predict(X_test), exact.predict(X_test), atol=0.05)


@pytest.mark.parametrize(("own_prior", "answer"), [(False, "average"), (True, "own")])
def test_who_approximates_the_process_gives_way_sooner(own_prior, answer, monkeypatch):
    """What lacks 0.15 nats a row between the rows is wrong there, or has another view of them than the kernel's."""

    class Some(QSGPRegressor):
        _has_own_prior = own_prior

    monkeypatch.setattr(race, "expected", lambda each, *_: -0.15 if each.name == "own" else 0.0)
    X, y, _, _ = dataclasses.replace(NAMED["few"], rows=60).draw(0)
    # the line is no better than the method there
    monkeypatch.setattr(race, "CLEARLY", 1.0)
    assert Some().fit(X, y).answer_ == answer


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_rows_of_an_exact_posterior_do_not_speak_for_it():
    """A process of short lengthscales and little noise says most of its own rows, and least of others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2))
    y = X[:, 0] + rng.normal(size=800)

    class Close(QSGPRegressor):
        def _answers(self, rows, run):
            run.first = vastgp.RBF([0.05, 0.05], 1.0), Gaussian(0.05)
            raise FactorizationError("none")

    model = Close().fit(X[:600], y[:600])
    assert model.scores_["subset"] < model.scores_["linear"] - 0.02
    assert model.answer_ == "linear"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_intervals_too_narrow_for_rows_kept_out_have_more_noise(table, monkeypatch, tmp_path):
    """A method that takes its noise for next to none is told by rows that it has not seen; one that is right stays."""
    monkeypatch.setattr(
        "vastgp.estimators.race.SIMPLE", dict.fromkeys(("linear", "subset"), _nothing)
    )
    X, y, new, target = table
    right = TSVGPRegressor("rbf", 60, hyperparameters=QUICK)
    sure = spoiled(
        right,
        lambda answer: dataclasses.replace(
            answer, likelihood=Gaussian(0.01 * float(answer.likelihood.noise_variance))
        ),
    ).fit(X, y)
    right.fit(X, y)
    assert "rows kept out" in sure.stop_reason_ and "rows kept out" not in right.stop_reason_
    # 110 rows tell it to a tenth
    assert sure.likelihood_.noise_std == pytest.approx(right.likelihood_.noise_std, rel=0.2)
    assert vastgp.metrics.coverage(target, *sure.predict(new, return_std=True)) > 0.9
    np.testing.assert_array_equal(sure.predict(new), right.predict(new))
    told = sure.predict(new, return_std=True)
    sure.save(tmp_path / "model")
    again = vastgp.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(new, return_std=True), told)


@pytest.mark.parametrize("n", [80, 600])
def test_classes_have_a_line_where_the_evidence_is_surely_for_it(n):
    """Labels that are a small difference of inputs that go together: a stationary kernel finds nothing in so few."""
    rng = np.random.default_rng(5)
    label = rng.integers(0, 2, n + 40)
    parts = rng.normal(size=(n + 40, 3)) * np.array([7.0, 3.0, 2.0])
    X = np.column_stack([parts, parts.sum(axis=1) + label])
    model = TSVGPClassifier(max_seconds=40, random_state=0).fit(X[:n], label[:n])
    assert model.answer_ == "linear" and "evidence of these rows" in model.stop_reason_
    assert model.score(X[n:], label[n:]) > 0.95
    # what varies is the method's
    curved = (np.linalg.norm(parts / np.array([7.0, 3.0, 2.0]), axis=1) > 1.5).astype(int)
    model = TSVGPClassifier(max_seconds=40, random_state=0).fit(X[:n], curved[:n])
    assert model.answer_ == "own"


def test_the_bound_of_a_fit_that_has_not_ended_is_no_evidence_for_a_line():
    def answer(evidence: float, converged: bool) -> Answer:
        law = Bernoulli()
        return Answer(None, law, lambda: None, 1, "", converged=converged, evidence=evidence)

    line = [Judged("linear", answer(-190.0, True), {}, np.zeros(3))]
    assert [_surely_line(answer(-400.0, ended), line) for ended in (False, True)] == [False, True]


def test_a_line_of_some_of_the_rows_has_no_evidence_of_all():
    X = np.random.default_rng(0).normal(size=(90, 2))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    assert fit_linear(Bernoulli(), X, y)[0].evidence is not None
    assert fit_linear(Bernoulli(), X, y, lambda num_rows, size: 89)[0].evidence is None


def _close(X: np.ndarray, y: np.ndarray) -> ExactPosterior:
    """The exact posterior with short lengthscales and next to no noise."""
    return ExactPosterior.condition(vastgp.RBF([0.05, 0.05], 1.0), 1e-6, X, y)[0]


@pytest.mark.parametrize("converged", [False, True])
def test_hyperparameters_that_were_not_learned_to_the_end_are_judged_by_each_row_left_out(
    converged,
):
    """An exact answer of all rows follows them however wrong its kernel is."""
    rng = np.random.default_rng(4)
    rows = Rows(rng.normal(size=(600, 2)), rng.normal(size=600))
    model, run = ExactGPRegressor(), Run()
    model.standardizer_ = Standardizer().fit(rows)
    X, y = standardised_rows(rows, model.standardizer_, np.arange(600))
    close = _close(X, y)
    answer = dataclasses.replace(
        simple_answer(close.kernel, Gaussian(1e-6), close), converged=converged
    )
    judge = Judge(model, rows, run)
    judged = judge("own", answer, model, run)
    left_out = close.leave_one_out().log_density[judge.chosen]
    assert judged.fair is not converged
    if converged:  # nothing is compared with it
        assert judged.score > np.mean(left_out) + 5.0
        return
    np.testing.assert_allclose(judged.scores, left_out, rtol=1e-9)
    line = judge("linear", linear_answer(model, rows, run, None), model, run)
    assert _best([judged, line], judge.apart).name == "linear"


def test_some_rows_do_not_speak_for_their_own_posterior():
    """Of the rows that judge those that an exact posterior has seen are given by its others."""
    rng = np.random.default_rng(4)
    rows = Rows(rng.normal(size=(600, 2)), rng.normal(size=600))
    model, run = ExactGPRegressor(), Run()
    model.standardizer_ = Standardizer().fit(rows)
    seen = rows_of_subset(run.seed, 600, 250)
    X, y = standardised_rows(rows, model.standardizer_, seen)
    close = _close(X, y)
    judge = Judge(model, rows, run)
    judged = judge("subset", simple_answer(close.kernel, Gaussian(1e-6), close), model, run)
    inside = np.isin(judge.chosen, seen)
    left_out = close.leave_one_out().log_density[np.searchsorted(seen, judge.chosen[inside])]
    np.testing.assert_allclose(judged.scores[inside], left_out, rtol=1e-9)
    X, y = standardised_rows(rows, model.standardizer_, judge.chosen[~inside])
    mean, variance = close.mean_and_latent_variance(X)
    expected = -0.5 * (np.log(2 * np.pi * (variance + 1e-6)) + (y - mean) ** 2 / (variance + 1e-6))
    np.testing.assert_allclose(judged.scores[~inside], expected, rtol=1e-6)
    assert judged.fair
