"""Which models run for classes, in the order in which they are tried."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace

from vastgp.auto.candidates import MANY, ON_TREES, Candidate
from vastgp.auto.trees import columns_of, has_trees, rows_told
from vastgp.estimators.registry import METHODS, estimator_class

# Local methods lose their neighbours with many inputs.
_LOCAL_INPUTS = 60
# Rows times functions, from which on one model is as much as there is time for in some seconds.
_MANY_OF_ALL = 4000
# What a method needs of more rows than some hundred, start and compilation included. With less in all a line through
# what trees say is what can be had.
_SECONDS_OF_MANY = 10.0


def classifiers(
    n: int, d: int, inputs: int, *, classes: int = 2, seconds: float | None = None
) -> list[Candidate]:
    """Return the candidates for classes, those first that should run if time is short.

    Parameters
    ----------
    n, d : int
        Rows, and columns of the encoded inputs.
    inputs : int
        Columns that are one input count once.
    classes : int, default 2
    seconds : float, optional
        Of the whole fit. Trees are left out where they would take too much of it.

    Notes
    -----
    What is said of a row by its neighbourhood is best for many rows of two classes where there is time to compare, see
    `vastgp.auto.class_alone` for where there is not. NLPD of new rows, 15 s: protein above its median, 20,000 rows,
    neighbourhoods 0.32, trees 0.35, t-SVGP 0.43; the highest 2 % of bike, 6000 rows, 0.0045, 0.0029, 0.0029; fifths of
    kin40k 1.08, 0.90, 1.06.
    """
    plain = Candidate("tsvgp", "TSVGPClassifier")
    told = rows_told(n, d, seconds, classes)
    on_trees = [plain.with_trees(told)] if has_trees(n, d, seconds, classes) else []
    linear = Candidate("linear", "TSVGPClassifier", {"kernel": "linear"})
    functions = columns_of(classes)  # of a process as of trees
    if n <= MANY and n * functions <= _MANY_OF_ALL:
        return [plain, *on_trees, linear]
    local = [Candidate("swsgp", "SWSGPClassifier")] if inputs <= _LOCAL_INPUTS else []
    early = local if functions == 1 and (seconds is None or seconds >= _SECONDS_OF_MANY) else []
    found = [*early, *on_trees, plain, linear, *(one for one in local if one not in early)]
    if n > MANY:
        found += [Candidate("qsgp", "QSGPClassifier"), Candidate("direct", "DirectClassifier")]
    return [replace(one, needs=_SECONDS_OF_MANY) for one in found]


def that_take_weights(found: Sequence[Candidate]) -> list[Candidate]:
    """Return those candidates for classes whose fit takes weights of rows."""
    return [one for one in found if _takes_weights(one.estimator)]


def _takes_weights(estimator: str) -> bool:
    return "sample_weight" in inspect.signature(estimator_class(estimator).fit).parameters


def classifier_of(method: str, weighted: bool = False) -> str:
    """Return the method of classes that goes with one of numbers: the same where it has classes, t-SVGP otherwise.

    Where rows are ``weighted``, the same only if its fit of classes takes weights.
    """
    plain = method.removesuffix(ON_TREES)
    classes = METHODS.get(f"{plain}-classifier")
    if method == "auto" or (classes is not None and (not weighted or _takes_weights(classes))):
        return method
    return method.replace(plain, "tsvgp")
