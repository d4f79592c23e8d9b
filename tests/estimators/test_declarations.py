"""Constructors: few arguments, typed, each of one meaning wherever it stands, and declared where it is checked."""

import inspect
import re
import typing

import pytest

from vastgp import options
from vastgp._arguments import Options, declared
from vastgp.estimators.registry import ESTIMATORS, estimator_class

MOST = 12
# What these words mean stands in one place; another meaning needs another word.
ELSEWHERE = {
    "noise_std": "Fixed", "noise_floor": "Subset", "isotropic": "Subset", "start_rows": "Subset",
    "checkpoint_seconds": "SaveTo", "inducing": "inducing_inputs", "learning_steps": "Learn",
}  # fmt: skip


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_has_at_most_a_dozen_typed_arguments(name):
    constructor = estimator_class(name).__init__
    arguments = [each for each in inspect.signature(constructor).parameters if each != "self"]
    assert len(arguments) <= MOST, arguments
    hints = typing.get_type_hints(constructor)
    untyped = [each for each in arguments if hints.get(each, typing.Any) is typing.Any]
    assert not untyped
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


@pytest.mark.parametrize("name", sorted(options.__all__))
def test_options_are_documented_and_typed(name):
    cls = getattr(options, name)
    assert issubclass(cls, Options)
    text = inspect.getdoc(cls) or ""
    for argument in declared(cls):
        assert re.search(
            rf"^(?:\w+, )*{argument}(?:, \w+)* :|^(?:\w+, )*{argument}(?:, \w+)*$", text, re.M
        ), argument
    hints = typing.get_type_hints(cls.__init__)
    assert not [each for each in declared(cls) if hints.get(each, typing.Any) is typing.Any]
