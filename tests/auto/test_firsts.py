"""First hyperparameters that the candidates of a race share."""

import numpy as np
import pytest

from vastgp import ExactGPRegressor, GriefRegressor, TSVGPRegressor
from vastgp.auto.candidates import Candidate
from vastgp.auto.firsts import Firsts, Shape
from vastgp.auto.warps import Log, Own
from vastgp.fitting import start
from vastgp.fitting.run import First
from vastgp.kernels import RBF, Matern32, Sum
from vastgp.likelihoods import Gaussian


def rows(n=80, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.2 * generator.normal(size=n)


@pytest.fixture
def searches(monkeypatch):
    """How often hyperparameters were looked for."""
    found = []
    search = start.fit_best

    def counting(*given, **options):
        found.append(len(given[0]))
        return search(*given, **options)

    monkeypatch.setattr(start, "fit_best", counting)
    return found


def test_what_is_known_is_not_looked_for(searches):
    X, y = rows()
    known = First(Matern32([0.4, 2.0], 0.7), Gaussian(0.05))
    model = TSVGPRegressor()
    model._known_firsts = (known,)
    model.fit(X, y)
    assert searches == []
    # of as many inducing inputs as rows nothing more is learned: the model is what was known, in units of the data
    scaling = model.standardizer_
    expected = known.kernel.in_units(scaling.x_scale, scaling.y_scale)
    np.testing.assert_allclose(model.kernel_.lengthscales, expected.lengthscales)
    np.testing.assert_allclose(model.likelihood_.noise_std, np.sqrt(0.05) * scaling.y_scale)
    assert model._known_firsts == ()  # the next fit is another one
    model.fit(X, y)
    assert len(searches) == 1


def test_a_search_that_was_cut_short_goes_on(searches):
    X, y = rows()
    whole = TSVGPRegressor("rbf").fit(X, y)
    model = TSVGPRegressor()
    model._known_firsts = (First(RBF([0.5, 9.0], 1.0), Gaussian(0.3), complete=False),)
    model.fit(X, y)
    # of its form alone, and to the same end
    assert searches[1:] == [1]
    np.testing.assert_allclose(model.likelihood_.noise_std, whole.likelihood_.noise_std, rtol=1e-2)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=0.02)


def test_candidates_share_what_they_begin_with():
    X, y = rows()
    firsts, found = Firsts(), {}
    exact, sparse = Candidate("exact", "ExactGPRegressor"), Candidate("tsvgp", "TSVGPRegressor")
    for candidate, number, warp in [
        (exact, 0, Own()), (sparse, 0, Own()), (sparse, 1, Own()), (sparse, 0, Log()),
        (sparse.with_trees(), 0, Own()),
        (Candidate("linear", "ExactGPRegressor", {"kernel": "linear"}), 0, Own()),
    ]:  # fmt: skip
        model = (ExactGPRegressor if candidate.estimator.startswith("Exact") else TSVGPRegressor)()
        with firsts.shared(model, candidate, number, Shape(*X.shape), warp):
            found[candidate.name, number, warp.name] = model._known_firsts
            model.fit(X, y)
    (first,) = found.pop(("tsvgp", 0, "own"))
    assert first.complete and isinstance(first.likelihood, Gaussian)
    # of another fold it is where a search begins
    (begins,) = found.pop(("tsvgp", 1, "own"))
    np.testing.assert_array_equal(begins.kernel.lengthscales, first.kernel.lengthscales)
    assert not begins.complete
    # another scale, other inputs, a kernel of its own: nothing is known
    assert all(known == () for known in found.values())


def test_a_fit_that_was_cut_short_says_so():
    X, y = rows(600)
    model = TSVGPRegressor(max_seconds=1e-6).fit(X, y)
    assert model._first_found is None or not model._first_found.complete
    model = ExactGPRegressor("rbf").fit(*rows())
    assert model._first_found.complete


def test_what_other_rows_began_with_is_where_a_search_begins():
    X, y = rows(120)
    firsts, exact = Firsts(), Candidate("exact", "ExactGPRegressor")
    with firsts.shared(model := ExactGPRegressor("rbf"), exact, 0, Shape(80, 2), Own()):
        model.fit(X[:80], y[:80])
    with firsts.shared(model := ExactGPRegressor("rbf"), exact, 0, Shape(80, 2), Own()):
        (same,) = model._known_firsts
        model.fit(X[:80], y[:80])
    with firsts.shared(model := ExactGPRegressor("rbf"), exact, 0, Shape(120, 2), Own()):
        (other,) = model._known_firsts
        model.fit(X, y)
    # their deviations are others, in which hyperparameters are told
    assert same.complete and not other.complete
    np.testing.assert_allclose(other.kernel.lengthscales, same.kernel.lengthscales, rtol=1e-3)


def test_rows_of_other_columns_begin_anew():
    """Other rows of a table hold other levels: a kernel of 37 columns ended the fit to those with 27."""
    X, y = rows(80)
    firsts, exact = Firsts(), Candidate("exact", "ExactGPRegressor")
    with firsts.shared(model := ExactGPRegressor("rbf"), exact, 0, Shape(80, 2), Own()):
        model.fit(X, y)
    for other in (Shape(80, 3), Shape(80, 2, ((0, 1),))):
        with firsts.shared(model := ExactGPRegressor("rbf"), exact, 1, other, Own()):
            assert model._known_firsts == ()


def test_a_method_whose_kernels_factor_does_not_begin_with_a_sum():
    X, y = rows(120)
    known = First(RBF([0.5, 3.0], 0.6) + Matern32([3.0, 0.5], 0.6), Gaussian(0.05))
    model = GriefRegressor()
    model._known_firsts = (known,)
    model.fit(X, y)
    assert model.answer_ == "own"
    sparse = TSVGPRegressor()
    sparse._known_firsts = (known,)
    assert isinstance(sparse.fit(X, y).kernel_, Sum)
