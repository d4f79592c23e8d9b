"""A fit of one input as a picture: band, samples and observations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from vastgp.metrics._vectors import FloatArray, half_width, positive, same_length, vector
from vastgp.plots._style import (
    ACCENT,
    DATA,
    MODEL,
    band,
    given_or_new,
    legend_above,
    percent,
    plain,
    plain_text,
    single,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def function_plot(
    x: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    latent_std: ArrayLike | None = None,
    samples: ArrayLike | None = None,
    x_train: ArrayLike | None = None,
    y_train: ArrayLike | None = None,
    level: float = 0.95,
    feature_name: str = "x",
    target_name: str = "y",
    ax: Axes | None = None,
) -> Axes:
    """Predictive mean and band over one input, with posterior samples and observations.

    Parameters
    ----------
    x : array_like, shape (n,) or (n, 1)
        Inputs, in any order.
    mean, std : array_like, shape (n,)
        Predictive mean and standard deviation of a new observation.
    latent_std : array_like, shape (n,), optional
        Standard deviation of the function without noise, drawn as a darker band.
    samples : array_like, shape (n, s), optional
        Functions drawn from the posterior at `x`, as of ``sample_y``.
    x_train, y_train : array_like, shape (k,), optional
        Observations the model was fitted to.
    level : float, default 0.95
        Probability of the bands.
    feature_name, target_name : str
        For the labels.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    points = _column("x", x)
    order = np.argsort(points, kind="stable")
    points, half = points[order], half_width(level)
    centre, spread = (
        _at("mean", mean, points)[order],
        positive("std", _at("std", std, points))[order],
    )
    observations = _observations(x_train, y_train)

    ax = given_or_new(ax, width=7.2)
    band(
        ax,
        points,
        centre - half * spread,
        centre + half * spread,
        color=MODEL,
        alpha=0.16,
        label=f"{percent(level)} of new observations",
    )
    if latent_std is not None:
        inner = half * _at("latent_std", latent_std, points)[order]
        band(
            ax, points, centre - inner, centre + inner, color=MODEL, alpha=0.28,
            label=f"{percent(level)} of the function",
        )  # fmt: skip
    if samples is not None:
        draws = _samples(samples, points)[order]
        lines = ax.plot(points, draws, color=ACCENT, lw=0.9, alpha=0.75, **single(points))
        lines[0].set_label("posterior samples" if draws.shape[1] > 1 else "posterior sample")
    ax.plot(points, centre, color=MODEL, lw=2.2, label="mean", **single(points))
    if observations is not None:
        size = 5 if observations[0].size <= 200 else 2.5
        ax.plot(*observations, "o", color=DATA, ms=size, alpha=0.8, mew=0, label="observations")
    ax.margins(x=0.01)
    plain(ax, title="", xlabel=plain_text(feature_name), ylabel=plain_text(target_name))
    legend_above(ax, columns=3)  # the band may fill any corner inside
    return ax


def _column(name: str, value: ArrayLike) -> FloatArray:
    """A vector, or a matrix of a single column as one."""
    array = np.asarray(value)
    if array.ndim == 2 and array.shape[1] != 1:
        raise ValueError(
            f"{name}: expected one input feature, got {array.shape[1]}; hold the others fixed and "
            "give the one that varies"
        )
    return vector(name, array[:, 0] if array.ndim == 2 else array)


def _at(name: str, value: ArrayLike, points: FloatArray) -> FloatArray:
    array = vector(name, value)
    if array.size != points.size:
        raise ValueError(f"{name}: expected as many values as x, {points.size}, got {array.size}")
    return array


def _samples(samples: ArrayLike, points: FloatArray) -> FloatArray:
    draws = np.asarray(samples, dtype=np.float64)
    draws = draws[:, None] if draws.ndim == 1 else draws
    if draws.ndim != 2 or draws.shape[0] != points.size or not draws.shape[1]:
        raise ValueError(
            f"samples: expected shape ({points.size}, s), one row for each x, got {draws.shape}; give at least one "
            "function, a column each, or leave samples out"
        )
    return draws


def _observations(
    x_train: ArrayLike | None, y_train: ArrayLike | None
) -> tuple[FloatArray, FloatArray] | None:
    if x_train is None and y_train is None:
        return None
    if x_train is None or y_train is None:
        missing = "x_train" if x_train is None else "y_train"
        raise ValueError(f"{missing}: expected together with the other one of x_train and y_train")
    inputs, targets = _column("x_train", x_train), vector("y_train", y_train)
    same_length("x_train", inputs, targets)
    return inputs, targets
