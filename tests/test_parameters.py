"""Kernels, likelihoods and options are read, set and copied by name, as scikit-learn does with what estimators hold."""

import dataclasses
import types
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import vastgp
from vastgp import kernels, likelihoods
from vastgp._parameters import Parameters
from vastgp.kernels import (
    RBF,
    Constant,
    Coregionalisation,
    Cyclic,
    GridKernel,
    Matern32,
    OnSphere,
    Periodic,
)
from vastgp.options import Fixed


@dataclasses.dataclass(frozen=True)
class Options(Parameters):
    """As options of a solver."""

    rank: int = 3
    inner: Any = None

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank must be at least 1, received {self.rank}.")


def same(one, other):
    alike = jax.tree.map(np.array_equal, one, other)
    return type(one) is type(other) and all(jax.tree.leaves(alike))


EVERY = [
    *(kernels.from_name(name) for name in ("rbf", "matern32 + linear * constant")),
    kernels.RationalQuadratic([1.0, 2.0], 3.0, 0.5),
    Periodic(2.0, [0.5], 3.0),
    Cyclic(24.0, RBF(3.0)),
    OnSphere(Matern32(800.0, 2.0)),
    Coregionalisation(matrix=[[2.0, 0.3], [0.3, 1.0]]),
    GridKernel((RBF(), Matern32(2.0)), (("a",), ("b", "c")), 3.0),
    *map(likelihoods.from_name, likelihoods.spec.NAMES),
    likelihoods.Softmax(4, class_weights=[1.0, 2.0, 3.0, 4.0]),
    Options(2, Options(4)),
]


@pytest.mark.parametrize("thing", EVERY[:-1], ids=lambda thing: type(thing).__name__)
def test_methods_are_those_of_any_object(thing):
    """A pytree of each that is looked up would be a third of the time of a fit to some hundred rows."""
    assert type(thing.in_units) is types.MethodType and thing.in_units.__self__ is thing


@pytest.mark.parametrize("thing", EVERY, ids=lambda thing: type(thing).__name__)
def test_arguments_make_an_equal_object_and_copies_share_nothing(thing):
    assert same(type(thing)(**thing.get_params(deep=False)), thing)
    copy = clone(thing)
    assert same(copy, thing)
    assert not set(map(id, _arrays(copy))) & set(map(id, _arrays(thing)))
    # what can be read can be set
    assert copy.set_params(**thing.get_params(deep=True)) is copy
    assert same(copy, thing)


def _arrays(thing):
    return [leaf for leaf in jax.tree.leaves(thing) if isinstance(leaf, np.ndarray)]


def test_nested_names_and_that_nobody_else_is_changed():
    part = Matern32([1.0, 2.0])
    kernel = part + RBF() * Constant(4.0)
    assert kernel.get_params()["parts__1__parts__1__variance"] == 4.0
    kernel.set_params(parts__0__lengthscales=3, parts__1__parts__1__variance=5.0)
    assert kernel.parts[0].lengthscales == 3.0
    assert kernel.parts[0].lengthscales.dtype == np.float64  # converted as the constructor does
    assert kernel.parts[1].parts[1].variance == 5.0
    np.testing.assert_array_equal(part.lengthscales, [1.0, 2.0])
    assert kernel.set_params(parts__1=RBF(7.0)).parts[1].lengthscales == 7.0
    options = Options(2, Options(4)).set_params(rank=9, inner__rank=5)
    assert options == Options(9, Options(5))


def test_what_is_refused_changes_nothing():
    kernel = RBF(2.0) + RBF(3.0)
    with pytest.raises(
        ValueError, match=r"Invalid parameter 'scale' for RBF\. Its parameters are: "
    ):
        kernel.set_params(parts__0__lengthscales=5.0, parts__1__scale=2.0)
    with pytest.raises(ValueError, match="variance must be positive and finite, received -1"):
        kernel.set_params(parts__0__lengthscales=5.0, parts__1__variance=-1.0)
    with pytest.raises(ValueError, match=r"Invalid parameter 'x' for array\(2\.\)\. It has none\."):
        kernel.set_params(parts__0__lengthscales__x=1.0)
    with pytest.raises(ValueError, match="rank must be at least 1"):
        Options().set_params(rank=0)
    assert [part.lengthscales for part in kernel.parts] == [2.0, 3.0]


def test_a_grid_search_reaches_into_the_kernel():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 1))
    y = np.sin(12.0 * X[:, 0]) + 0.01 * rng.normal(size=60)
    kernel = RBF(5.0)
    model = vastgp.ExactGPRegressor(kernel, hyperparameters=Fixed(noise_std=0.1))
    search = GridSearchCV(model, {"kernel__lengthscales": [0.3, 30.0]}, cv=2).fit(X, y)
    assert search.best_estimator_.kernel.lengthscales == 0.3
    assert kernel.lengthscales == 5.0


def test_an_estimator_reaches_into_its_likelihood():
    model = vastgp.TSVGPRegressor(likelihood=likelihoods.StudentT(1.0, 4.0))
    copy = clone(model).set_params(likelihood__scale=2.0)
    assert (copy.likelihood.scale, model.likelihood.scale) == (2.0, 1.0)


def test_a_name_holds_nothing_to_set():
    model = vastgp.ExactGPRegressor("rbf")
    message = "kernel__variance cannot be set, as kernel is 'rbf': give kernel an object that has 'variance' first"
    with pytest.raises(ValueError, match=message):
        model.set_params(kernel__variance=2.0)
    assert model.set_params(kernel=RBF(), kernel__variance=2.0).kernel.variance == 2.0
    with pytest.raises(ValueError, match="Invalid parameter 'kernels'"):
        model.set_params(kernels__variance=2.0)
