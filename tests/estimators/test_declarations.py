"""Constructors: few arguments, typed, each of one meaning wherever it stands, and declared where it is checked."""

import inspect
import re
import typing

import pytest

from vastgp import options
from vastgp._arguments import Options, declared
from vastgp.estimators.registry import ESTIMATORS, FRONT_DOOR, MAPS, estimator_class

MOST = 12
# What these words mean stands in one place; another meaning needs another word.
ELSEWHERE = {
    "noise_std": "Fixed", "noise_floor": "Subset", "isotropic": "Subset", "start_rows": "Subset",
    "checkpoint_seconds": "SaveTo", "inducing": "inducing_inputs", "learning_steps": "Learn",
}  # fmt: skip


# Numbers and arrays of any kind, whose shapes are checked beside the data.
ARRAYS = (
    "class_weight",
    "inducing_inputs",
    "inputs",
    "mean",
    "values",
    "prior",
    "prior_weights",
    "hidden",
)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_has_at_most_a_dozen_typed_arguments(name):
    constructor = estimator_class(name).__init__
    arguments = [each for each in inspect.signature(constructor).parameters if each != "self"]
    assert len(arguments) <= MOST, arguments
    assert not _untyped(estimator_class(name))
    if "hyperparameters" in arguments:
        assert not set(arguments) & set(ELSEWHERE)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_argument_that_has_moved_says_where_to(name):
    cls = estimator_class(name)
    for old, now in cls._moved.items():
        assert old not in inspect.signature(cls.__init__).parameters
        with pytest.raises(
            TypeError, match=re.escape(f"no argument {old!r} any more: write {now}")
        ):
            cls(**{old: 1})


@pytest.mark.parametrize("name", [*ESTIMATORS, *FRONT_DOOR])
def test_an_argument_that_never_was_is_told_with_the_class_and_the_nearest(name):
    with pytest.raises(
        TypeError, match=f"{name} has no argument 'random_stat'. Did you mean 'random_state'"
    ):
        estimator_class(name)(random_stat=1)


@pytest.mark.parametrize("name", [*ESTIMATORS, *FRONT_DOOR, *MAPS])
def test_what_an_estimator_has_can_be_listed_before_a_fit(name):
    """As a notebook does for completion: `dir` of scikit-learn's estimators asks for every attribute."""
    listed = dir(estimator_class(name)())
    assert {"fit", "get_params"} <= set(listed)


@pytest.mark.parametrize("name", sorted(options.__all__))
def test_options_are_documented_and_typed(name):
    cls = getattr(options, name)
    assert issubclass(cls, Options)
    text = inspect.getdoc(cls) or ""
    for argument in declared(cls):
        assert re.search(
            rf"^(?:\w+, )*{argument}(?:, \w+)* :|^(?:\w+, )*{argument}(?:, \w+)*$", text, re.M
        ), argument
    assert not _untyped(cls)


def _untyped(cls):
    """Return arguments of which neither a type nor a check says what they may be."""
    hints = typing.get_type_hints(cls.__init__)
    return [
        name
        for name, checks in declared(cls).items()
        if hints.get(name, typing.Any) is typing.Any and not checks and name not in ARRAYS
    ]
