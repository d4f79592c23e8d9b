"""Objects that constructors take: a name stands for one, and no other object is taken for it."""

import re

import pytest

from vastgp import QSGPRegressor, options
from vastgp._arguments import Named
from vastgp.estimators.registry import option_class


def test_every_public_options_object_can_be_loaded():
    for name in options.__all__:
        assert option_class(name) is getattr(options, name)


def test_an_object_with_fields_that_nobody_reads_is_refused():
    searches = Named({"subset": options.Subset, "fixed": options.Fixed})
    assert searches.resolve("hyperparameters", "subset") == options.Subset()
    with pytest.raises(ValueError, match=r"must be one of .* or Subset\(...\), Fixed\(...\) of"):
        searches.resolve("hyperparameters", options.Learn(steps=3))


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"solver": options.Inducing()}, "write basis=Inducing(...)"),
        ({"basis": options.Block()}, "write solver=Block(...)"),
        ({"num_basis": options.Subset()}, "write hyperparameters=Subset(...)"),
        ({"solver": options.Sparse()}, "No argument of QSGPRegressor takes Sparse(...)"),
        ({"solver": options.Block}, "It is a class: write Block(...)"),
    ],
)
def test_an_object_for_the_wrong_argument_is_told_its_own(given, advice):
    (name,) = given
    with pytest.raises(ValueError, match=rf"^{name} must be .*received .*{re.escape(advice)}"):
        QSGPRegressor(**given).fit([[0.0], [1.0]], [0.0, 1.0])
