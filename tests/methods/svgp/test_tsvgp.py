"""`TSVGPRegressor`, `TSVGPClassifier`, `SVGPRegressor`, `SVGPClassifier`: what they find, and what they refuse."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_circles

import vastgp
from vastgp import (
    ExactGPRegressor,
    SVGPClassifier,
    SVGPRegressor,
    TSVGPClassifier,
    TSVGPRegressor,
)
from vastgp.estimators import first_hyperparameters
from vastgp.fitting.inducing_points import greedy_variance, select_inducing
from vastgp.kernels import RBF
from vastgp.methods.svgp import estimator
from vastgp.methods.svgp.posterior import SVGPPosterior
from vastgp.options import Adam, Classes, Fixed, Learn, Natural

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
KERNEL = RBF([1.0, 1.5], 1.5)


def small(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 3.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def exact():
    X, y = small()
    return ExactGPRegressor(KERNEL, hyperparameters=Fixed(noise_std=0.4)).fit(X, y)


@pytest.fixture(scope="module")
def everywhere():
    """Inducing points at the rows, given kernel and noise."""
    X, y = small()
    return TSVGPRegressor(
        KERNEL,
        inducing_inputs=X,
        hyperparameters=Fixed(noise_std=0.4),
        solver=Natural(jitter=1e-13),
    ).fit(X, y)


def test_inducing_points_at_the_rows_give_the_exact_posterior(exact, everywhere):
    new, _ = small(30, seed=1)
    assert everywhere.converged_
    for kind in (True, "latent"):
        for mine, right in zip(
            everywhere.predict(new, return_std=kind),
            exact.predict(new, return_std=kind),
            strict=True,
        ):
            np.testing.assert_allclose(mine, right, atol=1e-5)
    y_scale = everywhere.standardizer_.y_scale
    evidence = everywhere.diagnosis_["bound"] - 60 * np.log(y_scale)
    assert evidence == pytest.approx(exact.log_evidence_, abs=1e-5)
    np.testing.assert_allclose(everywhere.inducing_points_, small()[0], atol=1e-12)


def test_covariance_and_both_kinds_of_samples_are_those_of_the_posterior(everywhere, monkeypatch):
    new, _ = small(8, seed=2)
    X = everywhere.standardizer_.transform_X(new)
    posterior = everywhere.posterior_
    mean, variance = posterior.mean_and_latent_variance(X)
    covariance = posterior.covariance(X)
    scale = everywhere.standardizer_.y_scale
    np.testing.assert_allclose(everywhere.covariance(new), covariance * scale**2, rtol=1e-12)
    np.testing.assert_allclose(np.diag(covariance), variance, atol=1e-10)
    for most in (2000, 1):  # dense, then pathwise
        monkeypatch.setattr("vastgp.methods.svgp.posterior._MOST_DENSE", most)
        drawn = posterior.samples(X, 2000, seed=3)
        error = 5.0 * np.sqrt(variance / 2000)
        assert np.all(np.abs(drawn.mean(axis=1) - mean) < error + 1e-6)
        spread = np.sqrt(np.outer(variance, variance) * 2.0 / 2000)
        slack = 0.0 if most > 1 else 0.05 * float(posterior.kernel.total_variance())
        assert np.all(np.abs(np.cov(drawn) - covariance) < 5.0 * spread + slack)


def test_arrays_of_inducing_points_survive_a_file(everywhere, tmp_path):
    everywhere.save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    np.testing.assert_array_equal(loaded.inducing_inputs, everywhere.inducing_inputs)
    new, _ = small(5, seed=1)
    np.testing.assert_array_equal(loaded.predict(new), everywhere.predict(new))
    assert isinstance(loaded.posterior_, SVGPPosterior)
    assert loaded.num_inducing_ == 60


def test_greedy_rows_are_those_of_largest_remaining_variance():
    X, _ = small(40)
    K = np.asarray(1.5 * np.exp(-0.5 * np.sum(((X[:, None] - X) / [1.0, 1.5]) ** 2, axis=2)))
    chosen = greedy_variance(KERNEL, X, 6)
    for j in range(1, 6):
        seen = chosen[:j]
        left = np.diag(K - K[:, seen] @ np.linalg.solve(K[np.ix_(seen, seen)], K[seen]))
        assert left[chosen[j]] == pytest.approx(left.max(), abs=1e-9)


@pytest.mark.parametrize("method", ["kmeans", "greedy", "random"])
def test_rows_that_repeat_are_chosen_without_harm(method):
    X = np.repeat(small(5)[0], 4, axis=0)
    Z = select_inducing(method, KERNEL, X, 8, seed=1)
    assert Z.shape == (8, 2) and np.all(np.isfinite(Z))


def test_of_few_places_each_has_an_inducing_input():
    """Rows at random had 293 of 400 places; the function at the others was that of their neighbours."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-3, 3, (30, 2)), 20, axis=0)[rng.permutation(600)]
    Z = select_inducing("kmeans", KERNEL, X, 40, seed=1)
    assert Z.shape == (40, 2) and len(np.unique(Z, axis=0)) == 30
    y = rng.normal(size=(600 // 20,))[np.unique(X, axis=0, return_inverse=True)[1].ravel()]
    model = TSVGPRegressor(RBF(0.1, 1.0), 40, hyperparameters=Fixed(noise_std=0.1)).fit(X, y)
    assert np.max(np.abs(model.predict(X) - y)) < 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_inducing": 61}, "num_inducing=61 is more than the 60 rows of X"),
        ({"num_inducing": 0}, "num_inducing must be a positive integer"),
        ({"likelihood": "gausian"}, "likelihood must be one of 'gaussian'"),
        ({"likelihood": "bernoulli"}, "For classes, use TSVGPClassifier"),
        ({"likelihood": "one-vs-rest"}, "For classes, use TSVGPClassifier"),
        ({"likelihood": "multinomial-probit"}, "For classes, use TSVGPClassifier"),
        ({"inducing_inputs": "middle"}, "inducing_inputs must be one of"),
        (
            {"inducing_inputs": [[np.nan, 1.0]]},
            "inducing_inputs hold NaN or infinity, first at row 0",
        ),
        ({"inducing_inputs": np.ones((3, 5))}, r"inducing_inputs must have shape \(m, 2\)"),
        (
            {"inducing_inputs": np.ones((3, 2)), "num_inducing": 4},
            "num_inducing=4, but inducing_inputs holds 3 rows",
        ),
        ({"solver": Natural(sites="full", row_batch=50)}, "sites='full' keeps a site for each row"),
        ({"solver": "adam"}, r"solver must be one of \('natural',\) or Natural"),
        (
            {"solver": Natural(whiten=True)},
            r"Natural\(whiten=True\) has no effect here: leave it out",
        ),
        ({"hyperparameters": Learn(steps=5)}, r"set solver=Natural\(max_steps=...\) instead"),
        (
            {"hyperparameters": "subset", "solver": Natural(row_batch=9)},
            r"solver=Natural\(row_batch=9\) has no effect here: set hyperparameters='learn' instead",
        ),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        TSVGPRegressor(**({"kernel": "rbf"} | change)).fit(*small())


def test_bad_arguments_of_svgp_and_of_classes_are_named():
    X, y = small()
    with pytest.raises(ValueError, match=r"solver must be one of \('natural', 'adam'\)"):
        SVGPRegressor(solver="sgd").fit(X, y)
    with pytest.raises(ValueError, match=r"set solver=Adam\(rate=...\) instead"):
        SVGPRegressor(solver="adam", hyperparameters=Learn(rate=0.1)).fit(X, y)
    with pytest.raises(ValueError, match=r"Natural\(sites='full'\) has no effect here"):
        SVGPRegressor(solver=Natural(sites="full")).fit(X, y)
    with pytest.raises(ValueError, match="likelihood='probit' is for two classes"):
        TSVGPClassifier(likelihood="probit").fit(X, np.digitize(y, [-1, 1]))
    with pytest.raises(ValueError, match=r"likelihood must be one of .* or Classes"):
        TSVGPClassifier(likelihood="gaussian").fit(X, y > 0)
    with pytest.raises(ValueError, match=r"Learn\(noise_floor=0.1\) has no effect here"):
        TSVGPClassifier(hyperparameters=Learn(noise_floor=0.1)).fit(X, y > 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Natural(rate=1.5), "rate must be a positive number of at most 1"),
        (lambda: Natural(sites="some"), "sites must be one of"),
        (lambda: Natural(learn_inducing=1), "learn_inducing must be True or False"),
        (lambda: Adam(whiten="yes"), "whiten must be True or False"),
        (lambda: Natural(jitter=0.0), "jitter must be a positive number"),
        (lambda: Natural(e_steps=0), "e_steps must be a positive integer"),
        (lambda: Classes("cauchit"), "link must be one of"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("inducing", "inducing_inputs="),
        ("num_e_steps", r"solver=Natural\(e_steps="),
        ("max_iter", r"solver=Natural\(max_steps="),
        ("noise_std", r"hyperparameters=Fixed\(noise_std="),
        ("class_weight", r"likelihood=Classes\(class_weight="),
    ],
)
def test_old_names_say_the_new_ones(old, new):
    with pytest.raises(TypeError, match=f"no argument '{old}' any more: write {new}"):
        TSVGPClassifier(**{old: 3})


def test_a_missing_value_in_a_minibatch_of_a_file_is_named(tmp_path):
    X, y = small()
    X[17, 1] = np.nan
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    with pytest.raises(ValueError, match="X contains NaN: at row 17"):
        TSVGPRegressor("rbf").fit(tmp_path / "rows.npz")


def test_noise_that_varies_with_the_inputs_is_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (400, 1))
    spread = np.exp(0.8 * X[:, 0] - 1.0)
    y = 5.0 * np.sin(2.0 * X[:, 0]) + spread * rng.normal(size=400) + 100.0
    options = {"solver": Natural(max_steps=60), "hyperparameters": Learn(rows=100)}
    model = TSVGPRegressor("rbf", 20, likelihood="heteroskedastic", **options).fit(X, y)
    new = np.linspace(-2.5, 2.5, 40)[:, None]
    mean, observed = model.predict(new, return_std=True)
    _, latent = model.predict(new, return_std="latent")
    found = (observed**2 - latent**2) ** 0.5
    # from 0.05 to 2.7, within a factor of 1.6 everywhere
    assert np.max(np.abs(np.log(found) - (0.8 * new[:, 0] - 1.0))) < np.log(1.6)
    assert np.all(np.abs(mean - 100.0 - 5.0 * np.sin(2.0 * new[:, 0])) < 5.0 * latent)
    drawn = model.sample_y(new, n_samples=300, random_state=1)
    assert drawn.shape == (40, 300)
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5.0 * latent / 300**0.5)
    density = model.log_predictive_density(X, y).mean()
    plain = TSVGPRegressor("rbf", 20, **options).fit(X, y)
    assert density > plain.log_predictive_density(X, y).mean() + 0.2
    np.testing.assert_allclose(np.diag(model.covariance(new)), latent**2, rtol=1e-8)


def test_a_million_rows_are_predicted_by_tiles(everywhere, monkeypatch):
    # what a tile holds at once: features of a tile, whatever the rows are
    sizes = []
    evaluate = SVGPPosterior._evaluate

    def watched(self, X, with_variance):
        sizes.append(len(X))
        return evaluate(self, X, with_variance)

    monkeypatch.setattr(SVGPPosterior, "_evaluate", watched)
    monkeypatch.setattr("vastgp.methods.svgp.estimator._TILE_ENTRIES", 60 * 256)
    mean = everywhere.predict(np.zeros((1000, 2)))
    assert sizes == [256, 256, 256, 256] and np.ptp(mean) < 1e-12


def test_rows_of_a_parquet_file_give_what_rows_in_memory_give(tmp_path):
    X, y = small(200)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=64)
    options = {"num_inducing": 10, "solver": Natural(row_batch=32, max_steps=20)}
    of_file = TSVGPRegressor("rbf", **options).fit(tmp_path / "rows.parquet", "y")
    of_array = TSVGPRegressor("rbf", **options).fit(X, y)
    named = pa.table({"a": X[:, 0], "b": X[:, 1]})
    np.testing.assert_allclose(of_file.predict(named), of_array.predict(X), rtol=1e-9)


@pytest.mark.parametrize("make", [TSVGPRegressor, SVGPRegressor])
def test_with_an_inducing_input_at_every_row_there_is_nothing_left_to_learn(make):
    """The bound is the evidence then, which the first hyperparameters maximise; steps that are asked for are taken."""
    X, y = small()
    model = make("rbf").fit(X, y)
    assert model.converged_ and model.n_iter_ <= 1
    assert "inducing inputs" not in model.history_.phases
    # the evidence has no slope left, but for that of the prior
    exact = ExactGPRegressor("rbf", hyperparameters=Learn(noise_floor=1e-3)).fit(X, y)
    np.testing.assert_allclose(model.kernel_.lengthscales, exact.kernel_.lengthscales, rtol=0.05)
    for found, expected in zip(
        model.predict(X + 0.1, return_std=True),
        exact.predict(X + 0.1, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=0.02)
    stepped = make("rbf", solver=Natural(max_steps=20)).fit(X, y)
    assert "inducing inputs" in stepped.history_.phases
    fewer = make("rbf", num_inducing=20, solver=Natural(max_steps=20)).fit(X, y)
    assert "inducing inputs" in fewer.history_.phases


@pytest.mark.parametrize("kind", [TSVGPRegressor, TSVGPClassifier])
def test_rows_that_the_start_has_seen_leave_nothing_to_learn(kind):
    """All rows as inducing inputs, of 560: steps with fewer took ten times as long, and ended no better."""
    X, y = small(760)
    X, new, y, target = X[:560], X[560:], y[:560], y[560:]
    if kind is TSVGPClassifier:
        model = kind("rbf").fit(X, y > 0.0)
        # the sign of a function of deviation 2.3 with noise 0.3 is told wrong in a twentieth of the rows
        assert np.mean(model.predict(new) == (target > 0.0)) > 0.9
    else:
        model = kind("rbf").fit(X, y)
        exact = ExactGPRegressor("rbf").fit(X, y)
        found, best = (each.log_predictive_density(new, target) for each in (model, exact))
        assert np.mean(found) > np.mean(best) - 0.02
    assert model.converged_ and model.num_inducing_ == len(X)
    assert "inducing inputs" not in model.history_.phases


def test_of_few_rows_nothing_is_learned_where_the_start_has_seen_half_of_them(monkeypatch):
    monkeypatch.setattr(first_hyperparameters, "_DUAL_ROWS", 30)
    X, y = small(61)

    def phases(n, **options):
        return TSVGPClassifier("rbf", tol=1.0, **options).fit(X[:n], y[:n] > 0.0).history_.phases

    assert "inducing inputs" not in phases(60)
    # more than twice as many, steps that are asked for, and a number of inducing inputs of the user's own
    for learned in (
        phases(61),
        phases(60, hyperparameters=Learn(rows=30)),
        phases(60, solver=Natural(max_steps=10)),
        phases(60, num_inducing=20),
    ):
        assert "inducing inputs" in learned


def test_steps_that_are_asked_for_have_no_more_inducing_inputs_than_steps_are_made_for(monkeypatch):
    monkeypatch.setattr(estimator, "_INDUCING", (60, 30))
    X, y = small(150)
    stepped = TSVGPRegressor("rbf", solver=Natural(max_steps=5)).fit(X, y)
    assert "inducing inputs" in stepped.history_.phases and stepped.num_inducing_ == 60
    assert TSVGPRegressor("rbf").fit(X, y).num_inducing_ == 150
    # nothing is learned, and the rows are many
    monkeypatch.setattr(estimator, "_FEW_ROWS", 100)
    assert TSVGPRegressor("rbf", hyperparameters="subset").fit(X, y).num_inducing_ == 60


@pytest.mark.parametrize("kind", [TSVGPClassifier, SVGPClassifier])
def test_classes_far_apart_are_told_apart_and_no_line_is_kept(kind):
    """Their first hyperparameters have a large variance, from which whole steps go to and fro."""
    X, y = make_circles(200, noise=0.05, factor=0.5, random_state=0)
    model = kind(num_inducing=25, random_state=0).fit(X[:150], y[:150])
    assert model.answer_ == "own" and model.converged_
    assert model.score(X[150:], y[150:]) == 1.0
    # a bound of 0.1 nats a row; after 2000 whole steps it was ten times that
    assert model.diagnosis_["bound"] > -0.1 * 150
