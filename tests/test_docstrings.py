"""Examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import vastgp

MODULES = ["vastgp", *(info.name for info in pkgutil.walk_packages(vastgp.__path__, "vastgp."))]


@pytest.mark.little_work
@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    # normalised, so that an example may be wrapped where a person would wrap it
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert result.failed == 0
