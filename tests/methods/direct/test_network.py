"""`DirectNetworkRegressor`: exact bounds of small networks, and what every estimator promises."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import vastgp
from estimators.conformance import FitConformance
from estimators.sklearn_checks import checks_of_a_method
from hard_tables import random_table
from vastgp import DirectNetworkRegressor
from vastgp.methods.direct import network_training
from vastgp.methods.direct.network_posterior import DiscreteNetworkPosterior
from vastgp.options import Support

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@checks_of_a_method([DirectNetworkRegressor(1, support=9, restarts=1, max_iter=50)])
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


def bowl(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [3.0, 100.0] + [1.0, 50.0]
    a, b = (X[:, 0] - 1.0) / 3.0, (X[:, 1] - 50.0) / 100.0
    return X, 20.0 + 5.0 * (a * b - a**2) + 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def model():
    return DirectNetworkRegressor(2).fit(*bowl())


def test_a_quadratic_function_is_found(model):
    X, y = bowl(500, seed=1)
    mean, std = model.predict(X, return_std=True)
    # y scatters by 8.8 and has noise 0.5; the best of 200 searches over all 15^9 networks leaves 0.95 on its own rows
    assert np.mean((mean - y) ** 2) ** 0.5 < 1.2
    assert 0.85 < np.mean(np.abs(mean - y) < 1.96 * std) <= 1.0
    assert np.all(std > model.predict(X, return_std="latent")[1])
    assert model.kernel_ is None
    assert model.cost_ == (9, 13, 91, 6)
    assert 0.0 <= model.sparsity() <= 1.0


def test_samples_have_the_posterior_moments():
    X, _ = bowl(5, seed=2)
    model = DirectNetworkRegressor(2).fit(*bowl(20))  # few rows leave weights open
    drawn = model.sample_y(X, 4000, random_state=0)
    mean, std = model.predict(X, return_std="latent")
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 4.5 * std / 4000**0.5 + 1e-9)
    np.testing.assert_allclose(drawn.std(axis=1), std, rtol=0.1)


def test_samples_of_many_values_have_the_posterior_moments():
    # 200 values: their numbers are more than eight bits with a sign hold
    probabilities = np.random.default_rng(0).dirichlet(np.full(200, 0.1), 4)
    values = np.tile(np.linspace(-1.0, 1.0, 200), (4, 1))
    own = DiscreteNetworkPosterior(1, (1,), values, probabilities)
    X = np.array([[-1.0], [0.5], [2.0]])
    drawn = own.samples(X, 4000, seed=0)
    mean, variance = own.mean_and_latent_variance(X)
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 4.0 * (variance / 4000) ** 0.5)
    assert own.codes(50, seed=0).min() >= 0


class TestResumed:
    """As every estimator with a checkpoint."""

    # to the limit of iterations, and to the end: climbs and single weights in turn
    resumed_with = ({}, {"max_iter": 200})
    same = staticmethod(FitConformance.same)
    test_killed = (
        FitConformance.test_killed_at_a_record_and_resumed_it_is_the_fit_that_was_left_alone
    )

    def make(self, **params):
        return DirectNetworkRegressor(
            **{"hidden": 1, "restarts": 2, "max_iter": 5, "support": 5} | params
        )

    def answers(self, model, X):
        return model.predict(X, return_std=True)

    @pytest.fixture
    def data(self):
        return bowl(50)

    @pytest.fixture
    def new_X(self):
        return bowl(5, seed=1)[0]

    @pytest.fixture
    def model(self, data):
        return self.make().fit(*data)


def test_where_it_ends_no_single_weight_has_a_better_distribution(monkeypatch):
    """Integers with noise, where L-BFGS alone ended with 0.1 nats of 90 rows left in the noise's probabilities."""
    ends = []
    taken = network_training._take_offers

    def watched(bound, point, least, record):
        ends.append((bound, taken(bound, point, least, record)))
        return ends[-1][1]

    monkeypatch.setattr(network_training, "_take_offers", watched)
    model = DirectNetworkRegressor(1, restarts=2).fit(
        *replace(random_table(5), rows=90).draw(0)[:2]
    )
    assert model.converged_ and max(gained for _, (_, gained) in ends) > 0.1
    bound, (point, _) = ends[-1]
    assert bound.best_offer(point)[0] < model.tol * 90
    assert model.history_.objective == sorted(model.history_.objective)
    assert len(model.history_) == model.n_iter_


def test_out_of_iterations_where_single_weights_gain_it_has_not_converged(monkeypatch):
    climbs, climb = [], network_training.maximise_real

    def watched(*given, **options):
        climbs.append(climb(*given, **options))
        return climbs[-1]

    monkeypatch.setattr(network_training, "maximise_real", watched)
    X, y = replace(random_table(5), rows=90).draw(0)[:2]
    DirectNetworkRegressor(1, restarts=1).fit(X, y)
    first = climbs[0]
    assert first.converged and len(climbs) > 1  # single weights gained, and it went on
    model = DirectNetworkRegressor(1, restarts=1, max_iter=first.num_iter).fit(X, y)
    assert not model.converged_ and "single weights have better" in model.stop_reason_


def test_more_restarts_have_no_lower_bound(model):
    assert DirectNetworkRegressor(2, restarts=1).fit(*bowl()).elbo_ <= model.elbo_ + 1e-6


def test_rounding_of_a_huge_value_overflows_nowhere():
    """A column and a target of 1e159, whose last bits are 1e143, beside columns of ordinary numbers."""
    rng = np.random.default_rng(0)
    huge = 1e159 * (1.0 + np.finfo(float).eps * rng.integers(0, 5, size=30))
    X, ordinary = np.column_stack([huge, rng.normal(size=30)]), rng.normal(size=30)
    for y, spread in ((ordinary, 1.0), (huge, 1e144)):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.filterwarnings("ignore", message="y is constant")
            warnings.filterwarnings("ignore", category=ConvergenceWarning)
            model = DirectNetworkRegressor(1, restarts=1, max_iter=5).fit(X, y)
            mean, std = model.predict(X, return_std=True)
        assert np.abs(mean - np.mean(y)).max() < 3.0 * spread and np.all(std < 3.0 * spread)


def test_two_hidden_layers():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.5, 1.5, (200, 1))
    y = x[:, 0] ** 4 - x[:, 0] ** 2 + 0.05 * rng.normal(size=200)
    one, two = (DirectNetworkRegressor(hidden).fit(x, y) for hidden in (2, (2, 1)))
    assert two.score(x, y) > one.score(x, y)


def test_files_and_pickle_keep_it(model, tmp_path):
    X, _ = bowl(20, seed=4)
    model.save(tmp_path / "network.vastgp")
    for again in (vastgp.load(tmp_path / "network.vastgp"), pickle.loads(pickle.dumps(model))):
        for mine, theirs in zip(
            model.predict(X, return_std=True), again.predict(X, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)
        assert again.cost_ == model.cost_ and again.elbo_ == model.elbo_
    with pytest.raises(NotFittedError):
        DirectNetworkRegressor().predict(X)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"hidden": (4, 3, 2)}, "hidden must be the number of units"),
        ({"hidden": 0}, "hidden must be the number of units"),
        ({"hidden": "deep"}, "hidden must be the number of units"),
        (
            {"hidden": (20, 20)},
            r"2 inputs and hidden=\(20, 20\) has 481 weights, 145,201 monomials and 10,541,737,801 pairs",
        ),
        ({"max_pairs": 10}, "more than max_pairs=10"),
        ({"support": 1}, "a weight needs at least two values"),
        ({"support": Support(2, prior=[[0.5, 0.5], [0.4, 0.6]])}, "prior of one part"),
        ({"support": Support(learn=True)}, "no learned spacings"),
        ({"dtype": "float32"}, "dtype must be one of"),
        ({"restarts": 0}, "restarts must be a positive integer"),
    ],
)
def test_bad_arguments_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        DirectNetworkRegressor(**params).fit(*bowl(20))
