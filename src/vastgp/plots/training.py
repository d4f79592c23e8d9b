"""How a fit went: the objective with its standard error, and the residual, against seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vastgp.metrics._vectors import FloatArray
from vastgp.plots._style import ACCENT, MODEL, new_axes, plain, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def training_trace(
    history: Any,
    *,
    against: str = "seconds",
    title: str = "",
    axes: Sequence[Axes] | None = None,
) -> Figure:
    """Objective and residual of a fit, against seconds or steps.

    Parameters
    ----------
    history : mapping or object with ``to_dict()``
        The ``history_`` of an estimator: lists of one length under ``seconds`` and ``steps``, and
        under ``objective`` (with ``objective_se``) or ``residual`` or both. Entries that were not
        measured are NaN or None and are left out.
    against : {"seconds", "steps"}, default "seconds"
        Horizontal axis.
    title : str, optional
        What was fitted.
    axes : sequence of Axes, optional
        One for each of objective and residual that is present; a new figure without them.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the history has no times, or neither objective nor residual.
    """
    columns = _columns(history)
    if not columns:
        raise ValueError(
            "history: it holds no record; the fit ended before its first step, or was given none"
        )
    if against not in ("seconds", "steps") or against not in columns:
        choices = [name for name in ("seconds", "steps") if name in columns]
        raise ValueError(f"against: expected one of {choices} of this history, got {against!r}")
    panels = [
        name for name in ("objective", "residual") if np.any(np.isfinite(columns.get(name, [])))
    ]
    if not panels:
        raise ValueError(
            f"history: expected 'objective' or 'residual' with at least one number, got {sorted(columns)}"
        )
    drawn = list(new_axes(len(panels)) if axes is None else axes)
    if len(drawn) != len(panels):
        raise ValueError(f"axes: expected {len(panels)}, for {panels}, got {len(drawn)}")
    for ax, name in zip(drawn, panels, strict=True):
        draw = _draw_objective if name == "objective" else _draw_residual
        draw(ax, columns, against)
        ax.margins(x=0.02)
    if title:
        drawn[0].set_title(f"{plain_text(title)}: {panels[0]}", fontsize=11, loc="left")
    return drawn[0].get_figure(root=True)  # type: ignore[return-value]


def _draw_objective(ax: Axes, columns: dict[str, FloatArray], against: str) -> None:
    x, objective = columns[against], columns["objective"]
    kept = np.isfinite(objective)
    error = columns.get("objective_se", np.full_like(objective, np.nan))
    style = "o-" if kept.sum() <= 30 else "-"
    if np.any(np.isfinite(error[kept]) & (error[kept] > 0.0)):
        band = 2.0 * np.nan_to_num(error)
        ax.fill_between(
            x[kept],
            (objective - band)[kept],
            (objective + band)[kept],
            color=MODEL,
            alpha=0.22,
            lw=0,
            label="± 2 standard errors",
        )
    ax.plot(x[kept], objective[kept], style, color=MODEL, lw=1.8, ms=4, label="objective")
    plain(ax, title="Objective", xlabel=_axis_label(against), ylabel="objective")
    if ax.get_legend_handles_labels()[1] != ["objective"]:
        ax.legend(frameon=False, loc="best")


def _draw_residual(ax: Axes, columns: dict[str, FloatArray], against: str) -> None:
    x, residual = columns[against], columns["residual"]
    kept = np.isfinite(residual)
    x, residual = x[kept], residual[kept]
    style = "o-" if kept.sum() <= 30 else "-"
    positive = residual > 0.0
    if not positive.any():  # nothing that a logarithmic axis could show
        ax.plot(x, residual, style, color=ACCENT, lw=1.8, ms=4)
    else:
        # a decade below all others, where zero has no place of its own
        shown = np.where(positive, residual, 0.1 * residual[positive].min())
        ax.semilogy(x, shown, style, color=ACCENT, lw=1.8, ms=4, label="residual")
        if not positive.all():
            ax.plot(
                x[~positive],
                shown[~positive],
                "v",
                color=ACCENT,
                mfc="white",
                ms=7,
                label="zero or below",
            )
            ax.legend(frameon=False, loc="best")
    plain(ax, title="Residual", xlabel=_axis_label(against), ylabel="relative residual")
    ax.grid(axis="y", which="major", alpha=0.25)


def _axis_label(against: str) -> str:
    return "seconds of fitting" if against == "seconds" else "steps"


def _columns(history: Any) -> dict[str, FloatArray]:
    """The numeric columns of a history, missing entries as NaN."""
    if isinstance(history, Mapping):
        table = history
    elif hasattr(history, "columns"):  # a data frame, whose to_dict has the rows' labels
        table = {str(name): np.asarray(history[name]) for name in history.columns}
    elif hasattr(history, "to_dict"):
        table = history.to_dict()
    else:
        raise ValueError(
            f"history: expected the history_ of a fit, a mapping or a data frame, got {type(history).__name__}"
        )
    columns = {}
    for name, values in table.items():
        if (
            isinstance(values, Sequence | np.ndarray)
            and not isinstance(values, str)
            and len(values)
        ):
            try:
                columns[name] = np.array([np.nan if v is None else v for v in values], dtype=float)
            except (TypeError, ValueError):
                continue  # not a numeric column: reasons, notes
    lengths = {name: values.size for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"history: expected columns of one length, got {lengths}")
    return columns
