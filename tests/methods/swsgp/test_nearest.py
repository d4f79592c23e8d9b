"""Predictions from the nearest rows: exact given these, learned by what rows are given their nearest others."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from vastgp import RBF, ExactGPRegressor, Matern32, SWSGPClassifier, SWSGPRegressor
from vastgp.data import observations
from vastgp.fitting.run import Run
from vastgp.kernels.matrices import covariance
from vastgp.likelihoods import Gaussian
from vastgp.methods.swsgp import near_rows, nearest_learning
from vastgp.methods.swsgp.near_rows import Judges, NearRows
from vastgp.methods.swsgp.neighbour_evidence import (
    NeighbourEvidence,
    nearest_of,
    nearest_others,
)
from vastgp.options import Fixed, Learn, Nearest, Subset

KERNEL = Matern32([1.0, 2.5], 1.5)


def table(n=60, seed=0, noise=0.2):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2.0, 2.0, size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + noise * generator.normal(size=n)
    return X, y, generator


def given(neighbors, **more):
    return SWSGPRegressor(
        KERNEL,
        num_neighbors=neighbors,
        hyperparameters=Fixed(noise_std=0.3),
        solver="nearest",
        **more,
    )


def by_hand(X, y, new, neighbors, variances):
    """Mean and variance of the function at each row from the nearest ones, in NumPy alone."""
    found = []
    scales = np.asarray(KERNEL.lengthscales)
    for x in new:
        near = np.argsort(np.sum(((X - x) / scales) ** 2, axis=1))[:neighbors]
        K = covariance(KERNEL, X[near], X[near]) + np.diag(variances[near])
        k = covariance(KERNEL, x[None], X[near])[0]
        a = np.linalg.solve(K, k)
        found.append((a @ y[near], 1.5 - k @ a))
    return np.array(found).T


# ---------------------------------------------------------------- predictions


def test_with_all_rows_it_is_the_exact_process():
    X, y, generator = table()
    new = generator.uniform(-3.0, 3.0, size=(9, 2))
    exact = ExactGPRegressor(KERNEL, hyperparameters=Fixed(noise_std=0.3)).fit(X, y)
    mean, std = given(60).fit(X, y).predict(new, return_std=True)
    expected = exact.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected[0], atol=1e-6)
    np.testing.assert_allclose(std, expected[1], rtol=1e-6)


def test_a_row_is_predicted_from_its_nearest_rows():
    X, y, generator = table()
    new = generator.uniform(-2.0, 2.0, size=(7, 2))
    mean, std = given(6).fit(X, y).predict(new, return_std=True)
    # targets are centred at their mean
    expected = by_hand(X, y - y.mean(), new, 6, np.full(60, 0.3**2))
    np.testing.assert_allclose(mean, y.mean() + expected[0], atol=1e-6)
    np.testing.assert_allclose(std**2, expected[1] + 0.3**2, atol=1e-6)


def test_noise_and_weights_of_the_rows_are_those_of_neighbours():
    X, y, generator = table()
    error, weight = generator.uniform(0.1, 1.0, size=60), generator.uniform(0.5, 3.0, size=60)
    model = given(5).fit(X, y, noise_std=error, sample_weight=weight)
    middle = model.standardizer_.y_mean
    mean = model.predict(X[:8])
    relative = weight / weight.mean()  # of the learned noise, which is that of a row of mean weight
    expected = by_hand(X, y - middle, X[:8], 5, 0.3**2 / relative + error**2)
    np.testing.assert_allclose(mean, middle + expected[0], atol=1e-6)


@pytest.mark.parametrize("rows", [40, 2100])
def test_joint_samples_have_the_moments_of_predictions(rows):
    """Of a covariance up to 2000 rows, beyond of waves, which miss variances by some two per cent."""
    X, y, _ = table()
    model = given(5).fit(X, y)
    new = np.random.default_rng(2).uniform(-2.0, 2.0, size=(rows, 2))
    drawn = model.sample_y(new, 3000 if rows < 2000 else 400, random_state=0)
    middle, scale = model.standardizer_.y_mean, model.standardizer_.y_scale
    mean, variance = model.posterior_.mean_and_latent_variance(model.standardizer_.transform_X(new))
    error = drawn.std(axis=1) / np.sqrt(drawn.shape[1])
    off = (drawn.mean(axis=1) - (middle + scale * mean)) / error
    assert np.abs(off).max() < 5.0
    ratio = drawn.var(axis=1) / (scale**2 * variance)
    # two per cent of the prior's variance is a larger share of the posterior's
    assert abs(ratio.mean() - 1.0) < (0.05 if rows < 2000 else 0.15)


# ---------------------------------------------------------------- what rows are given their nearest others


def test_nearest_others_are_the_nearest_and_never_the_row_itself():
    X, _, _ = table(40)
    X[7] = X[3]  # a row that another repeats
    chosen = np.array([3, 7, 20, 25])
    found = nearest_others(KERNEL, X, chosen, 5)
    distance = np.sum(((X[chosen][:, None] - X) / np.asarray(KERNEL.lengthscales)) ** 2, axis=2)
    distance[np.arange(4), chosen] = np.inf
    np.testing.assert_array_equal(found, np.argsort(distance, axis=1, kind="stable")[:, :5])
    assert found[0, 0] == 7 and found[1, 0] == 3
    # no more than there are
    assert nearest_others(KERNEL, X, chosen, 100).shape == (4, 39)
    other = RBF([5.0, 0.2])
    pool = nearest_others(KERNEL, X, chosen, 39)
    np.testing.assert_array_equal(
        nearest_of(other, X, chosen, pool, 6), nearest_others(other, X, chosen, 6)
    )


@pytest.mark.parametrize("own", [False, True])
def test_the_evidence_is_that_of_normal_laws_given_neighbours(own):
    X, y, generator = table(30)
    variances = np.full(30, 0.2)
    if own:
        y = np.column_stack([y, generator.uniform(0.5, 2.0, 30), generator.uniform(0.0, 0.3, 30)])
        variances = 0.2 * y[:, 1] + y[:, 2]
    targets, chosen = observations.targets(y), np.array([1, 4, 9, 16])
    near = nearest_others(KERNEL, X, chosen, 6)
    evidence = NeighbourEvidence(X, y, chosen, near, 1e-12)
    params = KERNEL, Gaussian(0.2)
    value, slope = evidence.objective(params)
    expected = 0.0
    for i, others in zip(chosen, near, strict=True):
        K = covariance(KERNEL, X[others], X[others]) + np.diag(variances[others])
        k = covariance(KERNEL, X[i][None], X[others])[0]
        a = np.linalg.solve(K, k)
        std = (1.5 - k @ a + variances[i]) ** 0.5
        expected += norm.logpdf(targets[i], a @ targets[others], std)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    # slopes by central differences
    step = 1e-5
    for j, name in enumerate(("first", "second")):
        moved = []
        for sign in (1.0, -1.0):
            scales = np.array(KERNEL.lengthscales, float)
            scales[j] += sign * step
            moved.append(evidence.objective((Matern32(scales, 1.5), params[1]))[0])
        found = np.asarray(slope[0].lengthscales)[j]
        np.testing.assert_allclose(
            found, (moved[0] - moved[1]) / (2 * step), rtol=1e-5, err_msg=name
        )
    moved = [evidence.objective((KERNEL, Gaussian(0.2 + sign * step)))[0] for sign in (1.0, -1.0)]
    np.testing.assert_allclose(slope[1], (moved[0] - moved[1]) / (2 * step), rtol=1e-5)


def test_kernel_and_noise_are_those_of_the_law_that_drew_the_rows():
    generator = np.random.default_rng(5)
    X = generator.uniform(0.0, 12.0, size=(1500, 1))
    truth = RBF(0.7, 2.0)
    K = covariance(truth, X, X) + 1e-8 * np.eye(1500)
    y = np.linalg.cholesky(K) @ generator.normal(size=1500) + 0.3 * generator.normal(size=1500)
    # from a start that is far off
    model = SWSGPRegressor(
        RBF(0.2), num_neighbors=64, solver="nearest", hyperparameters=Subset(rows=20)
    )
    model.fit(X, y)
    assert model.answer_ == "own"
    noise = float(model.likelihood_.noise_variance) ** 0.5
    assert abs(noise - 0.3) < 0.03
    # near rows tell a smooth function's slopes, v / l^2, and those a lengthscale away l itself
    assert 0.5 < float(np.squeeze(model.kernel_.lengthscales)) / 0.7 < 2.0
    # what it says of rows is as likely as what the truth says
    new = generator.uniform(0.0, 12.0, size=(400, 1))
    cross = covariance(truth, new, X)
    A = K + 0.09 * np.eye(1500)
    f = cross @ np.linalg.solve(A, y)
    rest = np.sqrt(2.0 - np.sum(cross * np.linalg.solve(A, cross.T).T, axis=1))
    of_new = f + rest * generator.normal(size=400) + 0.3 * generator.normal(size=400)
    best = norm.logpdf(of_new, f, np.sqrt(rest**2 + 0.09)).mean()
    assert model.log_predictive_density(new, of_new).mean() > best - 0.02


@pytest.mark.parametrize(("until", "rounds"), [(0.0, 1), (np.inf, 4)])
def test_rounds_of_learning_end_with_the_time_for_them(until, rounds, monkeypatch):
    # each finds neighbours and compares scales first: sixteen of them took a minute where half of one was left
    monkeypatch.setattr(nearest_learning, "_search", lambda *args: [4, 0.0, 0.0])
    monkeypatch.setattr(nearest_learning, "_until", lambda *args: until)
    monkeypatch.setattr(nearest_learning, "_TOL", 0.0)
    monkeypatch.setattr(nearest_learning, "STEPS", 1)
    begun, fit_evidence = [], nearest_learning.fit_evidence
    monkeypatch.setattr(
        nearest_learning,
        "fit_evidence",
        lambda *args, **more: begun.append(fit_evidence(*args, **more)) or begun[-1],
    )
    X, y, _ = table(40)
    with pytest.warns(ConvergenceWarning):
        SWSGPRegressor("rbf", solver="nearest", max_seconds=1000.0).fit(X, y)
    assert len(begun) == rounds


@pytest.mark.parametrize(
    ("values", "rounds", "ended"),
    [
        ([10.0, 9.0, 9.9], 3, True),  # two that are no likelier end it
        ([10.0, 9.0, 20.0, 19.0, 20.01], 5, True),  # one does not
        ([10.0, 20.0, 30.0, 40.0, 50.0, 60.0], 6, False),  # all are likelier: not to the end
    ],
)
def test_rounds_that_make_rows_no_likelier_end_learning(values, rounds, ended, monkeypatch):
    monkeypatch.setattr(nearest_learning, "_search", lambda *args: [6, 0.0, 0.0])
    monkeypatch.setattr(nearest_learning, "STEPS", 1)
    told, fit_evidence = [], nearest_learning.fit_evidence

    def tell(*args, **more):
        found = fit_evidence(*args, **more)
        told.append(replace(found, value=values[len(told)], converged=False, num_iter=1))
        return told[-1]

    monkeypatch.setattr(nearest_learning, "fit_evidence", tell)
    X, y, _ = table(40)
    near = NearRows(X, y, Nearest(), 0)
    first = RBF([1.0] * X.shape[1]), Gaussian(0.1)
    run = Run(seed=0)
    learned, _, steps, unfinished = nearest_learning._by_nearest_others(
        first, near, Judges(near, False), run, 1e-4, False
    )
    assert len(told) == steps == rounds
    np.testing.assert_array_equal(learned[0].lengthscales, told[-1].params[0].lengthscales)
    assert bool(unfinished) != ended


def test_all_rows_are_looked_through_again_when_others_may_be_nearest():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(3000, 2))
    near = NearRows(X, X[:, 0], Nearest(), 0)
    first = RBF([1.0, 1.0])
    near.search(first)
    for lengthscales, others in [([3.0, 3.0], False), ([1.0, 1.02], False), ([1.0, 3.0], True)]:
        assert near.may_be_others(RBF(lengthscales)) == others
    # of five hundred that were near in one metric, the nearest in another are not those of all
    moved = RBF([0.02, 1.0])
    true = nearest_others(moved, X, near.chosen, 64)
    assert not np.array_equal(near.of(moved, 64), true)
    near.search(moved)
    np.testing.assert_array_equal(near.of(moved, 64), true)
    assert not near.may_be_others(moved)
    # all others were found at first
    few = NearRows(X[:400], X[:400, 0], Nearest(), 0)
    few.search(first)
    assert not few.may_be_others(moved)


@pytest.mark.parametrize("seconds", [0.0, 2800.0])
def test_what_judges_has_the_neighbours_that_new_rows_have(seconds, monkeypatch):
    """Given what is nearest in the metric of the start a row is told less than new ones: intervals are too short."""
    generator = np.random.default_rng(1)
    X = generator.uniform(-1.0, 1.0, size=(3000, 4))
    y = np.sin(6.0 * X[:, 0]) + 0.05 * generator.normal(size=3000)
    looked, look = [], NearRows._look_through

    def watched(self, kernel):
        looked.append(np.asarray(kernel.lengthscales))
        look(self, kernel)
        # what is left of the budget is more than a search takes, or is not
        self.seconds = seconds

    def timed(self, kernel):
        watched(self, kernel)
        self._scales = self._searched_by = self._metric(kernel)

    monkeypatch.setattr(NearRows, "search", timed)
    model = SWSGPRegressor(Matern32([1.0] * 4), solver="nearest", max_seconds=3000.0)
    model.fit(X, y)
    assert (len(looked) > 1) == (seconds == 0.0)
    learned = model.kernel_.in_units(1.0 / model.standardizer_.x_scale, 1.0)
    moved = np.asarray(learned.lengthscales) / looked[-1]
    assert (moved.max() < 1.06 * moved.min()) == (seconds == 0.0)


@pytest.mark.parametrize(("noise", "wanted"), [(0.01, {256, 512}), (None, {64})])
def test_as_many_neighbours_as_rows_gain_by(noise, wanted):
    """Of a smooth function in four inputs far rows say much; of noise alone none say more."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1.0, 1.0, size=(700, 4))
    y = generator.normal(size=700)
    if noise is not None:
        y = np.sin(X @ np.array([1.5, -1.0, 0.5, 1.0])) + noise * y
    fixed = Fixed(noise_std=noise or 1.0)
    model = SWSGPRegressor(RBF([1.5] * 4), hyperparameters=fixed, solver="nearest").fit(X, y)
    assert model.diagnosis_["neighbors"] in wanted


def test_fewer_rows_judge_many_neighbours_where_there_is_no_time_for_all(monkeypatch):
    """On a clock by which a row takes as long as the square of its neighbours."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1.0, 1.0, size=(600, 4))
    y = np.sin(X @ np.array([1.5, -1.0, 0.5, 1.0])) + 0.01 * generator.normal(size=600)
    clock, asked, rows_of = [0.0], [], Judges._rows

    def timed(self, posterior, start, stop, **more):
        asked.append((posterior.num_neighbors, stop - start))
        clock[0] += 1e-3 * (stop - start) * (posterior.num_neighbors / 64.0) ** 2
        return rows_of(self, posterior, start, stop, **more)

    monkeypatch.setattr(Judges, "_rows", timed)
    monkeypatch.setattr(near_rows, "now", lambda: clock[0])
    for name, rows in [("_JUDGES", 100), ("_FEW", 60), ("_FEWEST", 50)]:
        monkeypatch.setattr(near_rows, name, rows)
    near = NearRows(X, y, Nearest(), 0)
    first = near.posterior((RBF([1.5] * 4), Gaussian(1e-4)), 64)
    for seconds, chosen, judged in [(100.0, 512, 100), (8.0, 512, 60), (2.3, 256, 60)]:
        asked.clear()
        found = Judges(near, False).with_neighbors(first, SecondsLeft(seconds))
        assert found.num_neighbors == chosen
        assert asked[-1] == (chosen, judged)
    # scales: of all learners, of as many as judge, of half of these
    for seconds, rows in [(np.inf, 600), (1.0, 100), (0.0, 50)]:
        assert len(Judges(near, True).scattered(found, seconds).off) == rows


class SecondsLeft(Run):
    """A fit with so much of its budget left, whatever it does."""

    def __init__(self, seconds):
        super().__init__()
        self.left = seconds

    def seconds_left(self, share=1.0):
        return self.left


def test_of_places_seen_often_as_many_rows_are_neighbours_as_new_places_gain_by():
    """Sixty-four rows are those of five places: what they repeat is told by any of them, what is between is not."""
    generator = np.random.default_rng(0)
    places, new = (generator.uniform(-2.0, 2.0, size=(size, 2)) for size in (24, 500))

    def of(X):
        return np.sin(1.5 * X[:, 0]) + 0.5 * np.cos(X[:, 1])

    X = places[generator.integers(24, size=288)]
    y, of_new = (of(at) + 0.05 * generator.normal(size=len(at)) for at in (X, new))
    fixed = Fixed(noise_std=0.05)
    found, near = (
        SWSGPRegressor(RBF([2.0, 2.0]), num_neighbors=count, hyperparameters=fixed, solver="nearest").fit(X, y)
        for count in (None, 64)
    )  # fmt: skip
    assert found.diagnosis_["neighbors"] > 64
    gain = found.log_predictive_density(new, of_new) - near.log_predictive_density(new, of_new)
    assert gain.mean() > 4.0 * gain.std() / np.sqrt(len(gain))


def test_all_variances_have_the_factor_that_rows_are_likeliest_with():
    X, y, _ = table(300)
    model = SWSGPRegressor("rbf", num_neighbors=20, solver="nearest").fit(X, y)
    assert model.answer_ == "own"
    diagnosis = model.diagnosis_
    # log density is largest where the mean square of scores is one: then it is -1/2 (mean log variance + log 2 pi + 1)
    scaling = model.standardizer_
    Z, t = scaling.transform_X(X), scaling.transform_y(y)
    chosen = np.arange(300)
    kernel = model.kernel_.in_units(1.0 / scaling.x_scale, 1.0 / scaling.y_scale)
    noise = float(model.likelihood_.noise_variance) / scaling.y_scale**2
    near = nearest_others(kernel, Z, chosen, 20)
    squares = []
    for i in chosen:
        K = covariance(kernel, Z[near[i]], Z[near[i]]) + noise * np.eye(20)
        k = covariance(kernel, Z[i][None], Z[near[i]])[0]
        a = np.linalg.solve(K, k)
        squares.append(
            (t[i] - a @ t[near[i]]) ** 2 / (float(kernel.total_variance()) - k @ a + noise)
        )
    np.testing.assert_allclose(np.mean(squares), 1.0, rtol=1e-6)
    assert diagnosis["factor"] > 0.0 and diagnosis["neighbors"] == 20


def test_random_rows_are_kept_where_fewer_are_asked_for():
    X, y, _ = table(200)
    model = SWSGPRegressor("rbf", 50, 10, solver="nearest").fit(X, y)
    assert model.num_inducing_ == 50
    kept = {tuple(row) for row in np.round(model.inducing_points_, 9)}
    assert len(kept) == 50 and kept <= {tuple(row) for row in np.round(X, 9)}


def test_columns_that_are_one_input_stay_so_in_another_form_of_kernel():
    X, y, generator = table(150)
    X = np.column_stack([X, generator.uniform(size=150)])
    model = SWSGPRegressor(
        solver="nearest", num_neighbors=10, hyperparameters=Subset(tied=[(0, 2)])
    )
    kernel = model.fit(X, y).kernel_
    assert model.answer_ != "own" or kernel.inputs == (0, 1, 0)
    assert np.isfinite(model.predict(X)).all()


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (SWSGPRegressor(solver="nearest", likelihood="student-t"), "likelihood"),
        (SWSGPRegressor(solver="nearest", likelihood="laplace"), "likelihood"),
        (SWSGPRegressor(solver="nearest", hyperparameters=Learn(steps=10)), "hyperparameters"),
        (SWSGPRegressor(solver="nearest", inducing_inputs="kmeans"), "inducing_inputs"),
        (SWSGPRegressor(solver="nearest", dtype="float32"), "dtype"),
        (SWSGPRegressor(solver="nearest", num_neighbors=61), "num_neighbors"),
        (SWSGPRegressor(solver="nearest", num_inducing=61), "num_inducing"),
        (SWSGPClassifier(solver="nearest"), "likelihood"),
    ],
)
def test_what_it_is_not_for_is_refused_by_name(model, word):
    X, y, _ = table()
    with pytest.raises(ValueError, match=word):
        model.fit(X, y if isinstance(model, SWSGPRegressor) else y > 0.0)


@pytest.mark.parametrize(("d", "learners"), [(64, 4096), (128, 2048), (784, 1000)])
def test_of_many_inputs_fewer_rows_are_learned_by_as_each_pair_takes_longer(d, learners):
    near = NearRows(np.zeros((5000, d)), np.zeros(5000), Nearest(), 0)
    assert near.num_chosen == learners


# ---------------------------------------------------------------- learning that goes astray


def test_learning_that_moves_rows_away_from_their_neighbours_begins_again_with_one_scale(
    monkeypatch,
):
    """Rows of equal targets are ever likelier on scales of their own; the others pay, which squares tell."""
    squares = iter([1.0, 9.0])
    monkeypatch.setattr(Judges, "mean_square", lambda self, posterior: next(squares))
    seen, plain = [], nearest_learning._likeliest_of

    def likeliest_of(near, params, varies):
        seen.append((params, varies))
        return plain(near, params, varies)

    monkeypatch.setattr(nearest_learning, "_likeliest_of", likeliest_of)
    X, y, _ = table(600)
    model = SWSGPRegressor("rbf", likelihood="heteroskedastic", solver="nearest", max_seconds=60)
    model.fit(X, y)
    (start, first), (again, second), *_ = seen
    assert first and not any(varies for _, varies in seen[1:]) and not second
    assert start is again  # from where it began
    with pytest.raises(StopIteration):
        next(squares)  # with one scale nobody asks


def test_their_mean_square_is_that_of_what_rows_are_off_by():
    X, y, _ = table(80)
    near = NearRows(X, y, Nearest(), 0)
    posterior = near.posterior((KERNEL, Gaussian(0.09)), 20)
    found = Judges(near, True).mean_square(posterior)
    off = []
    for row in range(80):
        others = np.arange(80) != row
        mean, _ = by_hand(X[others], y[others], X[row][None], 20, np.full(79, 0.09))
        off.append(y[row] - mean[0])
    assert found == pytest.approx(np.mean(np.square(off)), rel=1e-6)
