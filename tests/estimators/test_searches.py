"""Options that all estimators share: what they refuse, and how they are reached."""

import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from estimators.regressor_conformance import small_data
from vastgp import ExactGPRegressor
from vastgp.estimators.searches import save_to
from vastgp.options import Fixed, Learn, SaveTo, Subset


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Subset(rows=0), "rows must be a positive integer, or None .*; received 0"),
        (lambda: Learn(noise_floor=float("nan")), "noise_floor must be a positive number"),
        (lambda: Learn(isotropic=1), "isotropic must be True or False, received 1"),
        (lambda: Fixed(noise_std=-1.0), "noise_std must be a positive number; received -1.0"),
        (lambda: SaveTo("fit", 0), "every_seconds must be a positive number; received 0"),
        (lambda: save_to(5), "checkpoint must be a path, received 5"),
    ],
)
def test_bad_values_are_named_when_the_object_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_searches_of_scikit_learn_reach_into_the_objects():
    X, y = small_data(n=40)
    model = ExactGPRegressor("rbf", restarts=1, hyperparameters=Learn(noise_floor=1e-6))
    assert clone(model).get_params()["hyperparameters__noise_floor"] == 1e-6
    grid = {"hyperparameters__noise_floor": [1e-6, 100.0]}
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_params_ == {"hyperparameters__noise_floor": 1e-6}
    assert model.hyperparameters.noise_floor == 1e-6


def test_the_methods_own_values_fill_what_is_left_open():
    assert Learn(rows=7).given(rows=2000, noise_floor=1e-3) == Learn(7, 1e-3)
    assert Learn(rows=7).without_limits() == Learn(rows=7)
