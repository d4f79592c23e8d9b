"""A fitted model in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.auto.report.html import number
from vastgp.auto.stacking import leading, parts_of
from vastgp.auto.trees import OnTrees, process_of
from vastgp.auto.warps import Log, Own, YeoJohnson
from vastgp.kernels.base import Kernel, Product, Sum
from vastgp.kernels.metric import falls_with_distance

_KERNELS = {
    "RBF": "squared exponential (RBF)",
    "Matern12": "Matérn 1/2",
    "Matern32": "Matérn 3/2",
    "Matern52": "Matérn 5/2",
    "RationalQuadratic": "rational quadratic",
    "Linear": "linear",
    "Constant": "constant",
    "Periodic": "periodic",
    "Coregionalisation": "coregionalised",
}
_NOISE = {
    "StudentT": "Noise is Student's t: heavy tails, so that single rows far out do not bend the function.",
    "Laplace": "Noise is Laplace's: heavy tails, so that single rows far out do not bend the function.",
    "HeteroskedasticGaussian": "Noise is normal, and its deviation is a function of the inputs, too.",
    "LocallyScaled": "Function and noise have the scale that the nearest rows show, which is known up to a factor: "
    "tails are Student's.",
    "Poisson": "Targets are counts, and Poisson's around the function.",
    "NegativeBinomial": "Targets are counts, and scatter more than Poisson's around the function, by gamma rates.",
    "PoissonLogNormal": "Targets are counts, and scatter more than Poisson's around the function.",
    "Bernoulli": "The probability of a class is a function that a link keeps between 0 and 1.",
    "Softmax": "Each class has a function, and a softmax makes probabilities of them.",
    "OneVsRest": "Each class has a function of its own against the rest.",
    "MultinomialProbit": "Each class has a function, and the largest one with its noise wins.",
}


def model_in_words(model: Any, rows: int, rows_used: int) -> list[str]:
    """Return paragraphs that say what a fitted front door's answer is.

    Parameters
    ----------
    model : GPRegressor or GPClassifier
    rows, rows_used : int
        With a target, and those that the answer was fitted to.
    """
    parts = [(process_of(part), weight) for part, weight in parts_of(model.model_)]
    inner = parts[0][0]
    lines = [_what(inner)]
    if getattr(model, "heap_", None) is not None:
        of_which = parts_of(model.at_heap_.model_)[0][0]
        lines = [
            f"A model of two parts: {type(process_of(of_which)).__name__} says which rows are at a heap. What follows "
            "is of the other rows' values.",
            *lines,
        ]
    if len(parts) > 1:
        shares = ", ".join(f"{type(part).__name__} {weight:.0%}" for part, weight in parts)
        by_row = ""
        if model.model_.varying is not None:
            by_row = (
                "At a row of which a model knows less than of others it has less say than that. "
            )
        lines = [
            *lines[:-1],
            f"Several models, whose distributions are averaged: {shares}. With these weights rows that none of them "
            f"had seen were likelier than by any model alone. {by_row}What follows is of the first.",
            lines[-1],
        ]
    if getattr(inner, "answer_", "own") == "linear":
        lines.append("Within it a linear model predicted spare rows best, and is the answer.")
    if rows_used < rows:
        lines.append(f"It was fitted to {number(rows_used)} of the {number(rows)} rows.")
    lines.append(_inputs_and_kernel(model))
    lines += [_noise(model), *_scale(model.warp_, model.target_name_ or "the target")]
    lines.append(_ended(model))
    return [line for line in lines if line]


def heap_in_words(model: Any) -> list[str]:
    """Return what is known of the heaps of a target, a sentence; nothing of a target without."""
    heap = getattr(model, "heap_", None)
    return [] if heap is None else [heap.in_words(model.target_name_ or "the target")]


def left_out_in_words(model: Any) -> list[str]:
    """Return which rows had no part in a fit, a sentence each; nothing where all had one."""
    found = []
    if model.n_rows_dropped_:
        found.append(f"{model.n_rows_dropped_:,} rows without a target were left out of the fit.")
    if model.n_rows_left_out_:
        found.append(
            f"{model.kept_.rows:,} rows chosen at random stand for all: for the other {model.n_rows_left_out_:,} there "
            "was no time (max_seconds), or no memory."
        )
    return found


def _what(model: Any) -> str:
    what = (type(model).__doc__ or "").strip().splitlines()[:1]
    return f"{type(model).__name__}: {what[0].rstrip('.')}." if what else type(model).__name__


def _inputs_and_kernel(model: Any) -> str:
    kernel = model.kernel_
    d = model.model_.n_features_in_
    inputs = f"{d} encoded columns" if d > 1 else "one encoded column"
    first = leading(model.model_)
    if isinstance(first, OnTrees):
        inputs += (
            f", and what {number(len(first.trees.start))} boosted trees say of a row, which trees that had "
            "not seen it said of each training row"
        )
    if kernel is None:
        return f"It reads {inputs}."
    tied = getattr(model.encoder_, "tied_", ())
    one, several = ("one lengthscale", "lengthscales")
    if not falls_with_distance(kernel):  # linear functions have none
        one, several = "one variance of slopes", "variances of slopes"
    own = f"{one} for each input, whose columns share it" if tied else several
    return f"It reads {inputs}. Kernel: {kernel_in_words(kernel)}, with {own}."


def kernel_in_words(kernel: Kernel) -> str:
    """Return a kernel's family, such as "Matérn 5/2 plus linear"."""
    if isinstance(kernel, Sum):
        return " plus ".join(kernel_in_words(part) for part in kernel.parts)
    if isinstance(kernel, Product):
        return " times ".join(kernel_in_words(part) for part in kernel.parts)
    return _KERNELS.get(type(kernel).__name__, type(kernel).__name__)


def _noise(model: Any) -> str:
    likelihood = model.likelihood_
    kind = type(likelihood).__name__
    if kind != "Gaussian":
        return _NOISE.get(kind, f"Likelihood: {kind}.")
    deviation = np.sqrt(np.asarray(likelihood.noise_variance, np.float64))
    if deviation.ndim:
        return "Noise is normal around the function."
    unit = "" if type(model.warp_) is Own else " on that scale"
    return f"Noise is normal, with a deviation of {number(float(deviation), 3)}{unit} around the function."


def _scale(warp: Own, target: str) -> list[str]:
    if isinstance(warp, Log):
        half = (
            f" and {number(warp.shift, 3)}, half of the unit that it is rounded to"
            if warp.shift
            else ""
        )
        return [f"The scale is the logarithm of {target}{half}: errors are shares of it."]
    if isinstance(warp, YeoJohnson):
        return [
            f"The scale is a power of {target} (Yeo and Johnson's, {number(warp.power, 3)}), where it is nearer to "
            "normal."
        ]
    return []


def _ended(model: Any) -> str:
    reason = _sentence(ending_in_words(model.stop_reason_))
    steps = f" after {model.n_iter_:,} steps" if model.n_iter_ > 1 else ""
    if model.converged_:
        return (
            f"The fit converged{steps}."
            if "onverge" in reason
            else f"The fit converged{steps}. {reason}"
        )
    return f"The fit ended{steps} before it had converged. {reason}"


def ending_in_words(reason: str) -> str:
    """Return why a fit ended, without the letters of an optimiser in Fortran."""
    if reason.isupper() or reason.startswith("CONVERGENCE"):
        return "converged" if reason.startswith("CONVERGENCE") else reason.lower()
    return reason


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) or not text else ".")
