"""Classes by discrete weights: bounds of the logistic likelihood that are renewed between fits of the weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer, processes
from vastgp.data.devices import rows_over_devices
from vastgp.data.tiles import row_tiles
from vastgp.fitting.accumulate import Moments
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import maximise_real
from vastgp.fitting.loop import Stop
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import block_rows_of, feature_matrix
from vastgp.methods.direct.fit import (
    FittedWeights,
    Recipe,
    as_fitted,
    begin,
    improve,
    last_in_time,
)
from vastgp.methods.direct.logistic_bound import (
    best_sites,
    exponential_value_and_slope,
)
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    QuadraticLikelihood,
    Weights,
    values_and_prior,
    weights_moments,
)
from vastgp.methods.direct.start import normal_weights
from vastgp.methods.direct.training import (
    DiscreteFit,
    at_rest,
    left_by_gains,
    softmax,
)

# Features are kept between passes up to this many numbers, made again beyond.
_KEPT_ENTRIES = 20_000_000
# What is left to gain when passes end, as a part of what may be: predictions of five tables moved by up to 5.4 times
# `tol` where that was all of it. At each bound weights come as near to their best as that part of it again.
_OF_LEAST = 0.1
# Parts of the means of a start, and squared deviations relative to the squared step between values, that are tried.
_PARTS, _SHARES = (1.0, 0.5, 0.0), (1.0 / 4.0, 1.0 / 16.0)
_ROUNDING = 1e-6  # of bounds that are the same
# How much farther each bound is taken than the one before, beside those that bounds lead to, and how far at most; and
# how far the logarithm of a variance.
_FARTHER, _FARTHEST, _MOST_WIDENED, _TINY = 1.3, 30.0, 50.0, 1e-300
# Passes in a row that must leave little to gain.
_AGREE = 5
# Of ``max_iter`` steps each pass over the rows, which renews the quadratic bound, counts so many.
_STEPS_A_PASS = 10


class LabelledFeatures:
    """Features of the labelled rows that this process has, block after block, as often as asked for.

    Parameters
    ----------
    rows : Rows
        Targets -1 and 1 of two classes, else the numbers of classes.
    standardizer : Standardizer
    basis : basis
    dtype : {"float32", "float64"}
    """

    def __init__(self, rows: Rows, standardizer: Standardizer, basis: Any, dtype: str) -> None:
        self.num_rows = rows.n
        self.num_basis = int(basis.num_basis)
        self._rows, self._standardizer = rows.local, standardizer
        self._basis, self._dtype = basis, dtype
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield features (s, b) in float64 and targets (s,)."""
        if self._kept is not None:
            yield from self._kept
            return
        keep = self._rows.n * self.num_basis <= _KEPT_ENTRIES
        kept = []
        size = min(block_rows_of(self.num_basis), self.num_rows)
        for tile in row_tiles(self._rows, self._standardizer, size, self._dtype):
            with precision(self._dtype):
                X = rows_over_devices(tile.X, float(self.num_basis))
                made = np.asarray(feature_matrix(self._basis, X), np.float64)
            block = (made[: tile.num_rows], tile.y[: tile.num_rows])
            if keep:
                kept.append(block)
            yield block
        if keep:
            self._kept = kept

    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """Return features and targets of all rows that this process has."""
        blocks = [(np.zeros((0, self.num_basis)), np.zeros(0)), *self.blocks()]
        phi, y = zip(*blocks, strict=True)
        return np.concatenate(phi), np.concatenate(y)


def labels_of(targets: np.ndarray, which: int | None) -> np.ndarray:
    """Return -1 and 1: the targets themselves, or whether they are class ``which``."""
    return targets if which is None else np.where(targets == which, 1.0, -1.0)


def quadratic_likelihood(
    features: LabelledFeatures, which: int | None, weights: Weights
) -> tuple[QuadraticLikelihood, float]:
    """Return the quadratic bound of all rows that is best at a posterior of the weights, and its constant."""
    sums, constant = Moments(features.num_basis), 0.0
    for phi, y in features.blocks():
        # E[f^2] = (phi^T s)^2 + sum_j phi_j^2 Var[w_j]
        moments = phi @ weights.mean, phi**2 @ weights.variance
        linear, bend, constants = map(np.asarray, best_sites(labels_of(y, which), *moments))
        sums.add(phi, linear / bend, bend)
        constant += float(np.sum(constants))
    sums, constant = sums.of_all(), float(processes.added(constant))
    return QuadraticLikelihood(0.0, 0.0, sums.target, sums.gram), constant


def bounds_under_prior(
    features: LabelledFeatures, classes: Sequence[int | None]
) -> list[tuple[QuadraticLikelihood, float]]:
    """Return what `quadratic_likelihood` does under the prior, for each function: one pass over the rows for all.

    There every function has mean zero and variance ``phi^T phi``, so that the bounds touch at the same points, and a
    label enters the linear part alone.
    """
    sums, constant = Moments(features.num_basis), 0.0
    targets = np.zeros((len(classes), features.num_basis))
    for phi, y in features.blocks():
        labels = np.stack([labels_of(y, which) for which in classes])
        variance = np.sum(phi**2, axis=1)
        sites = best_sites(labels, np.zeros_like(variance), variance)
        linear, bend, constants = map(np.asarray, sites)
        sums.add(phi, np.zeros(len(y)), bend)
        targets += linear @ phi
        constant += float(np.sum(constants))
    sums, targets = sums.of_all(), processes.added(targets)
    constant = float(processes.added(constant))
    return [(QuadraticLikelihood(0.0, 0.0, target, sums.gram), constant) for target in targets]


class _Passes:
    """Passes over the rows of one function: the bound that is best at some moments of the weights, then weights at it.

    Each shrinks what is left to gain by a few per cent where classes are all but separated. A bound that is best
    farther on than where the last one led is a bound, too: it is taken more and more times as far, as long as bounds
    rise (Salakhutdinov and Roweis 2003).

    Attributes
    ----------
    model : DiscreteModel
        By the last bound.
    constant : float
        Of it.
    """

    def __init__(
        self,
        features: LabelledFeatures,
        which: int | None,
        recipe: Recipe,
        first: tuple[DiscreteModel, float],
    ) -> None:
        self.model, self.constant = first
        self._features, self._which, self._recipe = features, which, recipe
        self._values = recipe.values(features.num_basis)
        self._touching: Weights | None = None  # the bound under the prior touches at none

    def moments(self, logits: DiscreteLogits) -> Weights:
        """Return mean and variance of weights."""
        return weights_moments(logits, self._values)

    def touch(self, moments: Weights) -> None:
        """Take the bound that is best at some moments."""
        if self._touching is not moments:
            likelihood, self.constant = quadratic_likelihood(self._features, self._which, moments)
            self.model, self._touching = self._recipe.model(likelihood), moments

    def __call__(self, state: Any, number: int, count: int) -> tuple[Any, dict[str, float]]:
        """Make passes: logits, the moments that their bound is best at, how far the next ones go, and the bound."""
        logits, touched, way, bound = state
        for _ in range(count):
            own = self.moments(logits)
            at = _beyond(touched, own, float(way))
            moved, highest = self._rested(logits, at)
            if way > 1.0 and not highest >= bound:
                at, way = own, np.float64(1.0)
                moved, highest = self._rested(logits, at)
            gain, went = highest - float(bound), float(way)
            logits, touched, bound = moved, at, np.float64(highest)
            way = np.float64(min(_FARTHER * way, _FARTHEST))
        said = {"objective": highest, "gain": gain, "way": went}
        return (logits, touched, way, bound), said

    def _rested(self, logits: DiscreteLogits, at: Weights) -> tuple[DiscreteLogits, float]:
        self.touch(at)
        least = _OF_LEAST**2 * self._recipe.tol * self._recipe.rows
        moved, bound = at_rest(logits, self.model, least)
        # what process 0 has: it decides which bound is next
        return moved, float(processes.from_first(np.array(bound + self.constant)))


def _beyond(touched: Weights, own: Weights, way: float) -> Weights:
    """Return moments so many times as far from those that a bound touched at as the ones that it led to."""
    variance = np.maximum(touched.variance, _TINY)
    widened = way * np.log(np.maximum(own.variance, _TINY) / variance)
    return Weights(
        touched.mean + way * (own.mean - touched.mean),
        variance * np.exp(np.clip(widened, -_MOST_WIDENED, _MOST_WIDENED)),
    )


def fit_quadratic(
    features: LabelledFeatures,
    first: tuple[QuadraticLikelihood, float],
    which: int | None,
    recipe: Recipe,
    run: Run,
    share: float,
) -> FittedWeights:
    """Fit one function: weights at a fixed quadratic bound, the bound at fixed weights, and so on; then all weights.

    Parameters
    ----------
    features : LabelledFeatures
    first : tuple of QuadraticLikelihood and float
        Its bound under the prior, of `bounds_under_prior`.
    which : int or None
        The class, of more than two.
    recipe : Recipe
    run : Run
    share : float
        Of what is left of the budget.
    """
    name, least = _name(which), recipe.tol * recipe.rows
    with precision("float64"):
        start, model = _begin(first[0], which, recipe, run)
        renew = _Passes(features, which, recipe, (model, first[1]))
        (logits, touched, _, _), passes = run.steps(
            f"{name}passes",
            renew,
            (start, renew.moments(start), np.float64(1.0), np.float64(-np.inf)),
            max_iter=max(recipe.family.max_iter // _STEPS_A_PASS, 1),
            chunk=1,
            should_stop=lambda _, history: _passes_gain_little(history, _OF_LEAST * least),
            share=share,
        )
        # without the time for more passes there is none for another; of none, the bound is still that of the prior
        if passes.num_iter:
            renew.touch(renew.moments(logits) if passes.converged else touched)
    found = last_in_time(improve(logits, renew.model, recipe, run, name, share=share), run)
    last, history = found.fit, copy.deepcopy(passes.history)
    seconds = sum((records.seconds or [0.0])[-1] for records in (history, last.history))
    bound = last.objective + renew.constant
    gain = bound - (history.objective[-1] if len(history) else -np.inf)
    history.append(len(history) + 1, seconds, {"objective": bound, "gain": gain, "way": 1.0})
    fit = DiscreteFit(
        last.logits, bound, len(history), passes.reason if last.converged else last.reason,
        passes.converged and last.converged, history,
    )  # fmt: skip
    return found._replace(fit=fit)


def _passes_gain_little(history: History, least: float) -> Stop | None:
    ways = history.values["way"]
    # what a pass gains is in proportion to how far its bound was taken
    gains = [gain / way for gain, way in zip(history.values["gain"], ways, strict=True)]
    # where weights begin to change sides passes gain nothing for a while, and then more each
    last = range(max(len(gains) - _AGREE, 0), len(gains))
    left = [ways[k] * left_by_gains(gains[: k + 1]) for k in last]
    if max(left) >= least:
        return None
    return Stop("converged: more passes would raise the bound by less than tol per row", True)


def fit_exponential(
    features: LabelledFeatures,
    first: QuadraticLikelihood,
    which: int | None,
    recipe: Recipe,
    run: Run,
) -> FittedWeights:
    """Fit one function by Theorem 7.2, all rows at once.

    It begins where the quadratic bound under the prior leads, or nearer to zero and narrower where the bound is higher
    there: ``E[exp(-y f)]`` is ``exp(-y m + s^2 / 2)`` of a normal ``f``, 1e22 where a kernel of large variance leaves
    deviations of ten, and from there no ascent comes back. Where the bound ends no higher than that of weights that are
    zero, these are the answer, which has not converged.
    """
    with precision("float64"):
        logits, model = _begin(first, which, recipe, run)
        own, targets = features.whole()
        phi, labels = jnp.asarray(own), jnp.asarray(labels_of(targets, which))
        # the divergence is counted once
        once = np.float64(processes.number() == 0)

        def objective(point: DiscreteLogits) -> tuple[float, DiscreteLogits]:
            found = exponential_value_and_slope(
                jax.tree.map(jnp.asarray, point), model, phi, labels, once
            )
            value, slope = processes.summed(found)
            return float(value), slope

        def highest() -> list[int | float]:
            bounds = np.array([objective(each)[0] for each in starts])
            bounds[np.isnan(bounds)] = -np.inf
            best = int(np.argmax(bounds[:-1]))
            return [best if np.isfinite(bounds[best]) else -1, float(bounds[-1])]

        starts = _nearer(logits, model)
        best, of_zero = run.once(f"{_name(which)}begins", highest)
        found = maximise_real(
            objective, starts[int(best)], max_iter=recipe.family.max_iter, tol=0.1 * recipe.tol, scale=recipe.rows,
            record=run.evaluations(f"{_name(which)}weights"),
        )  # fmt: skip
    fit = DiscreteFit.of_lbfgs(found, found.params)
    if found.converged and fit.objective <= of_zero + _ROUNDING * abs(of_zero):
        reason = f"the bound, {fit.objective:.4g}, is no higher than that of weights that are all zero, {of_zero:.4g}"
        fit = replace(
            fit,
            logits=jax.device_put(starts[-1]),
            objective=of_zero,
            reason=reason,
            converged=False,
        )
    return as_fitted(fit, model)


def _nearer(logits: DiscreteLogits, model: DiscreteModel) -> list[DiscreteLogits]:
    """Return logits, others with parts of their means and narrower ones, and at last those of weights that are zero.

    Narrower ones have a quarter or a sixteenth of the squared step between values: of the next values probabilities of
    e^-2 and e^-8 are left, whose slopes do not vanish (a 64th: ascents ended lower).
    """
    values = np.asarray(values_and_prior(logits, model)[0])
    squared_step = np.mean(np.diff(values, axis=1), axis=1, keepdims=True) ** 2
    mean = np.sum(softmax(logits.weights)[0] * values, axis=1, keepdims=True)

    def around(centre: Any, share: float) -> DiscreteLogits:
        weights = -0.5 * (values - centre) ** 2 / (share * squared_step)
        return logits._replace(weights=(weights - np.max(weights, axis=1, keepdims=True))[None])

    nearer = [around(part * mean, share) for part in _PARTS for share in _SHARES]
    return [logits, *nearer, around(0.0, 1e-3)]


def _name(which: int | None) -> str:
    return "" if which is None else f"class {which} "


def _begin(
    first: QuadraticLikelihood, which: int | None, recipe: Recipe, run: Run
) -> tuple[DiscreteLogits, Any]:
    """Return where weights start at the quadratic bound that is best under the prior, and the model there."""
    model = recipe.model(first)
    return begin(model, normal_weights(first, 1.0), recipe, run, _name(which))[0], model
