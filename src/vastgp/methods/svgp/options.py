"""How SVGP and t-SVGP are fitted: arguments on objects, and the plain options that the numerics read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from vastgp._arguments import Flag, Named, OneOf, Optional, Options, Positive
from vastgp.estimators.arguments import refuse_given
from vastgp.estimators.searches import Learn

_STEPS, _ROWS, _JITTER, _RATE = 2000, 500, 1e-8, 0.02
_MOST_PASSES, _MOST_PASSES_ALONE = 10, 100


@dataclass(frozen=True)
class Natural(Options):
    """Natural gradients for the inducing variables (E-steps), Adam for the rest (M-steps), then passes over all rows.

    All but ``jitter`` is for ``hyperparameters="learn"``: with given ones the passes are enough. Where every step has
    all rows, L-BFGS on the bound with the best sites ends what half of the steps at most begin.

    Parameters
    ----------
    row_batch : int, optional
        Rows of a step, those of all processes together; where there are no more than that, all of them. None: 500.
    max_steps : int, optional
        Iterations at most, of an E-step and an M-step each, and of L-BFGS. None: 2000.
    e_steps, m_steps : int, optional
        In each iteration. None: 1.
    rate : float, optional
        Length of E-steps, up to 1. None: on all rows 1 with Gaussian noise, where it is exact, and 1/3 elsewhere, as
        longer ones go beyond where they aim; on minibatches no more than that, nor than their share of the rows, and at
        least 0.02.
    learn_inducing : bool, optional
        Whether the bound moves the inducing inputs, together with the hyperparameters. None: it does.
    jitter : float, default 1e-8
        Added to the diagonal of ``K_uu``, relative to the prior variance; never less than what rounding asks for.
    sites : {"tied", "full"}, optional
        Of t-SVGP. ``"tied"`` keeps the sums of all sites, in O(m^2) memory. ``"full"`` keeps one site for each row and
        uses all of them in every step (up to ``row_batch`` rows): the bound is tighter still, and with the inducing
        inputs at the rows it is t-VGP. None: ``"tied"``.
    whiten : bool, optional
        Of SVGP: whether hyperparameters move with mean and covariance of ``L^-1 u`` held, ``K_uu = L L^T``, or those of
        ``u``. None: of the former.
    """

    row_batch: Annotated[int | None, Positive(integer=True, none=f"{_ROWS}")] = None
    max_steps: Annotated[int | None, Positive(integer=True, none=f"{_STEPS}")] = None
    e_steps: Annotated[int | None, Positive(integer=True, none="1")] = None
    m_steps: Annotated[int | None, Positive(integer=True, none="1")] = None
    rate: Annotated[float | None, Positive(none="by the rows of a step", most=1.0)] = None
    learn_inducing: Annotated[bool | None, Optional(Flag())] = None
    jitter: Annotated[float, Positive()] = _JITTER
    sites: Annotated[str | None, Optional(OneOf("tied", "full"))] = None
    whiten: Annotated[bool | None, Optional(Flag())] = None


@dataclass(frozen=True)
class Adam(Options):
    """Adam on mean and covariance of the inducing variables together with everything else.

    Parameters
    ----------
    row_batch, max_steps, learn_inducing, jitter, whiten
        As in `Natural`.
    rate : float, optional
        None: 0.02.
    """

    row_batch: Annotated[int | None, Positive(integer=True, none=f"{_ROWS}")] = None
    max_steps: Annotated[int | None, Positive(integer=True, none=f"{_STEPS}")] = None
    rate: Annotated[float | None, Positive(none=f"{_RATE}")] = None
    learn_inducing: Annotated[bool | None, Optional(Flag())] = None
    jitter: Annotated[float, Positive()] = _JITTER
    whiten: Annotated[bool | None, Optional(Flag())] = None


DUAL_SOLVERS = Named({"natural": Natural})
SOLVERS = Named({"natural": Natural, "adam": Adam})
_OF_STEPS = ("row_batch", "max_steps", "e_steps", "m_steps", "rate", "learn_inducing", "sites", "whiten")  # fmt: skip


@dataclass(frozen=True)
class SVGPOptions:
    """How to fit.

    Attributes
    ----------
    optimizer : {"natural", "adam"}
        What moves ``q``: natural gradients (E-steps), or Adam together with the hyperparameters.
    hold : {"sites", "whitened", "unwhitened"}
        What the M-step holds: see `vastgp.methods.svgp.bound.held`. With Adam: the coordinates of ``q``.
    untied : bool
        One site a row, for as many rows as fit into a batch.
    num_e_steps, num_m_steps : int
        In an iteration.
    step_rate : float or None
        Of E-steps, 0 to 1.
    learning_rate : float
        Of Adam.
    learn, move : bool
        Whether hyperparameters and inducing inputs are learned.
    row_batch : int
    jitter : float
        Relative to the prior variance.
    max_steps : int
        Iterations at most.
    passes : int
        E-steps on all rows in the end, at most.
    noise_floor : float
    tol : float
        See `vastgp.fitting.no_gain.no_gain` and, where every step has all rows,
        `vastgp.fitting.lbfgs.maximise_inside`; passes over all rows end at a hundredth of it.
    """

    optimizer: str = "natural"
    hold: str = "sites"
    untied: bool = False
    num_e_steps: int = 1
    num_m_steps: int = 1
    step_rate: float | None = None
    learning_rate: float = _RATE
    learn: bool = True
    move: bool = True
    row_batch: int = _ROWS
    jitter: float = _JITTER
    max_steps: int = _STEPS
    passes: int = _MOST_PASSES
    noise_floor: float = 1e-3
    tol: float = 1e-4

    @property
    def given(self) -> bool:
        """Whether no steps are taken: hyperparameters and inducing inputs are given."""
        return not (self.learn or self.optimizer == "adam")


def check_options(solver: Any, search: Any, dual: bool) -> None:
    """Raise ValueError for what would have no effect.

    Parameters
    ----------
    solver : Natural or Adam
    search : Subset, Learn or Fixed
    dual : bool
        Whether sites are held.
    """
    refuse_given("solver", solver, **{"whiten" if dual else "sites": None})
    if not isinstance(search, Learn):
        learning = "hyperparameters='learn'"
        idle = ("learn_inducing",) if isinstance(solver, Adam) else _OF_STEPS
        refuse_given("solver", solver, **dict.fromkeys(idle, learning))
        return
    name = type(solver).__name__
    instead = {"steps": f"solver={name}(max_steps=...)"}
    if isinstance(solver, Adam):
        instead["rate"] = f"solver={name}(rate=...)"
    refuse_given("hyperparameters", search, **instead)


def plain_options(solver: Any, search: Any, dual: bool, tol: float) -> SVGPOptions:
    """Return what the numerics read of checked arguments."""
    learn = isinstance(search, Learn)
    whitened = "unwhitened" if solver.whiten is False else "whitened"
    adam = isinstance(solver, Adam)
    rate = solver.rate if adam else getattr(search, "rate", None)
    return SVGPOptions(
        optimizer="adam" if adam else "natural",
        hold="sites" if dual else whitened,
        untied=not adam and solver.sites == "full",
        num_e_steps=1 if adam else solver.e_steps or 1,
        num_m_steps=1 if adam else solver.m_steps or 1,
        step_rate=None if adam else solver.rate,
        learning_rate=rate or _RATE,
        learn=learn,
        move=learn and solver.learn_inducing is not False,
        row_batch=solver.row_batch or _ROWS,
        jitter=solver.jitter,
        max_steps=solver.max_steps or _STEPS,
        passes=_MOST_PASSES if learn else _MOST_PASSES_ALONE,
        noise_floor=getattr(search, "noise_floor", None) or SVGPOptions.noise_floor,
        tol=tol,
    )


def without_steps(options: SVGPOptions, solver: Any) -> SVGPOptions:
    """Return the options of a fit whose first hyperparameters leave nothing to learn.

    With inducing inputs at all rows the bound is the evidence that the first hyperparameters maximise, where that was
    of all rows as well; with half as many it is a little less, and its maximum no better. Steps that a user has asked
    for are taken.
    """
    if not options.learn or replace(solver, jitter=_JITTER) != Natural():
        return options
    return replace(options, learn=False, move=False, passes=_MOST_PASSES_ALONE)
