"""One fit as all methods see it: its budget, its file, its progress, and what its phases recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from vastgp.data.processes import from_first
from vastgp.fitting.checkpoint import Checkpoint, Layout, Saved
from vastgp.fitting.clock import now
from vastgp.fitting.evaluations import Evaluations
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult, ShouldStop, StepChunk, run_chunks
from vastgp.fitting.phase_values import decode, encode, is_array
from vastgp.likelihoods import Likelihood


@dataclass(frozen=True)
class Answer:
    """A complete and consistent fit, as good as it had become when it was given; all in standardised units.

    Attributes
    ----------
    kernel : Kernel or None
        None where the method has none.
    likelihood : Likelihood
    posterior : callable
        Makes what becomes ``posterior_``; called once, for the answer that is kept.
    n_iter : int
        Steps done.
    converged : bool
        Whether nothing is left to do: unsaid, it has not.
    reason : str
        Why the fit ended, or may end here, in words.
    history : History
    advice : str or None
        What a user should know and do where it has not converged; the base warns with it, unless it is None.
    attributes : dict
        Further fitted attributes by name, ``diagnosis_`` among them. They are set before ``posterior`` is called.
    cut : bool
        Whether the budget made the model itself smaller than it would have been: it is no more trusted than one that
        has not converged.
    evidence : float, optional
        Logarithm of the evidence of all rows, or a lower bound of it, in nats, where it is known.
    """

    kernel: Any
    likelihood: Likelihood
    posterior: Callable[[], Any]
    n_iter: int
    reason: str
    converged: bool = False
    history: History = field(default_factory=History)
    advice: str | None = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False
    evidence: float | None = None


class First(NamedTuple):
    """Hyperparameters of highest evidence on some rows, which learning begins with, in standardised units.

    Attributes
    ----------
    kernel : Kernel
    likelihood : Likelihood
    complete : bool
        Whether the search for them ended by itself, rather than by the clock.
    """

    kernel: Any
    likelihood: Likelihood
    complete: bool = True


class OutOfTime(Exception):
    """What is left of the budget is too little for the method's own work, and another answer stands."""


class Run:
    """Budget, file, progress and record of one fit.

    A method's fit is a function of its arguments and of this. It may be run again from the start after a kill: phases
    that had ended return what they had found, the one at work goes on, and all between them is computed anew, to the
    same bits.

    Parameters
    ----------
    max_seconds : float, optional
        Wall-clock budget of the whole fit, seconds before a resume included. None: no limit.
    checkpoint : Checkpoint, optional
    verbose : bool
    seconds : float
        Spent on the fit before this was made.
    seed : int
        Of all that the fit draws.
    known : sequence of First
        What other fits to the same rows began with.

    Attributes
    ----------
    histories : dict of str to History
        The records of every phase that had some.
    spent : dict of str to float
        Wall-clock seconds of every phase, in this process.
    first : tuple of Kernel and Likelihood, or None
        What the method begins with, once that is known and unless it was given.
    cut_short : bool
        Whether the search for that was ended by the clock.
    judged : bool
        Whether rows are kept out of the fit, which tell how much noise an answer wants.
    needs : float or None
        Seconds that the method's work takes at least, where there is another answer if they are not left. None: none.
    """

    def __init__(
        self,
        max_seconds: float | None = None,
        checkpoint: Checkpoint | None = None,
        *,
        verbose: bool = False,
        seconds: float = 0.0,
        seed: int = 0,
        known: Sequence[First] = (),
    ) -> None:
        self.seed, self.known = seed, tuple(known)
        self.max_seconds = None if max_seconds is None else float(max_seconds)
        self.checkpoint, self.verbose = checkpoint, bool(verbose)
        before = 0.0 if checkpoint is None else checkpoint.seconds
        self._began = now() - seconds - before
        self.histories: dict[str, History] = {}
        self.spent: dict[str, float] = {}
        self.first: tuple[Any, Likelihood] | None = None
        self.cut_short = self.judged = False
        self.needs: float | None = None
        self._prefix = ""

    def part(self, name: str, share: float = 1.0, known: Sequence[First] = ()) -> Run:
        """Return the run of a part of the fit that is a fit of its own: with phases and a budget of its own.

        Parameters
        ----------
        name : str
            Different for each part; it goes before the names of its phases.
        share : float, default 1.0
            Of what is left of the budget when the part begins.
        known : sequence of First
            What it may begin with.
        """
        part = copy(self)
        part.known, part.first, part.cut_short = tuple(known), None, False
        part._prefix = f"{self._prefix}{name}: "
        if self.max_seconds is not None:
            began = part.once("beginning", self.elapsed)
            part.max_seconds = began + share * max(self.max_seconds - began, 0.0)
        return part

    # ------------------------------------------------------------ the clock

    def elapsed(self) -> float:
        """Return the seconds of the fit so far, those before a resume included."""
        return now() - self._began

    def seconds_left(self, share: float = 1.0) -> float | None:
        """Return what is left of the budget, or a share of that; None without one."""
        if self.max_seconds is None:
            return None
        return share * max(self.max_seconds - self.elapsed(), 0.0)

    def hold_back(self, seconds: float) -> None:
        """Keep some of the budget for what comes after the method, a fifth of it at most."""
        if self.max_seconds is not None:
            self.max_seconds -= min(seconds, 0.2 * self.max_seconds)

    def too_late(self, share: float = 1.0) -> bool:
        """Return whether a share of what is left is less than the method needs, and another answer stands."""
        left = self.seconds_left(share)
        return self.needs is not None and left is not None and left < self.needs

    def check_time(self) -> None:
        """Raise `OutOfTime` where it is too late to begin."""
        if self.too_late():
            raise OutOfTime(
                f"too little of max_seconds was left for the method's own work ({self.seconds_left():.1f} s, of some "
                f"{self.needs:.2g} s that it takes here)"
            )

    @property
    def deadline(self) -> float | None:
        """Time of `vastgp.fitting.clock.now` at which the budget ends."""
        return None if self.max_seconds is None else self._began + self.max_seconds

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is used up."""
        return self.max_seconds is not None and self.elapsed() >= self.max_seconds

    # ------------------------------------------------------------ phases

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of a block to that of a phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - began

    def steps(
        self,
        name: str,
        step_chunk: StepChunk,
        state: Any,
        *,
        max_iter: int | None,
        chunk: int,
        should_stop: ShouldStop | None = None,
        share: float = 1.0,
        label: str | None = None,
        saved: bool = True,
        layout: Layout | None = None,
    ) -> tuple[Any, LoopResult]:
        """Run a phase of steps with what is left of the budget, see `run_chunks`.

        Parameters
        ----------
        name : str
            Of the phase in the file and in `histories`; different for each phase of a fit.
        share : float, default 1.0
            Of what is left of the budget when the phase begins.
        label : str, optional
            What the progress line calls it; None: its name.
        saved : bool, default True
            Whether the file holds its state: one that is another in every process is not for it.
        layout : Layout, optional
            How the file holds it; None: as it is.
        """
        label, name = label or name, self._prefix + name
        file = self.checkpoint if saved else None
        phase = None if file is None else file.phase(name, layout)
        before = self.elapsed() if phase is None or phase.saved is None else phase.saved.began
        limit = None if self.max_seconds is None else share * max(self.max_seconds - before, 0.0)
        with self.timed(name):
            state, loop = run_chunks(
                step_chunk,
                state,
                max_iter=max_iter,
                chunk=chunk,
                max_seconds=limit,
                checkpoint=phase,
                should_stop=should_stop,
                label=label,
                verbose=self.verbose,
            )
        self.histories[name] = loop.history
        return state, loop

    def has(self, name: str) -> bool:
        """Return whether the file holds a phase."""
        return self.checkpoint is not None and self._prefix + name in self.checkpoint.phases

    def once(
        self,
        name: str,
        compute: Callable[[], Any],
        is_whole: Callable[[Any], bool] | None = None,
        is_cut: Callable[[Any], bool] | None = None,
    ) -> Any:
        """Return what a phase without steps computes: from the file, where it had ended before.

        What it returns is made of kernels, likelihoods, NumPy arrays, numbers, strings, None, and lists, tuples and
        dictionaries (by strings) of these. ``is_whole`` says of it whether it is to be kept; None: it always is.
        ``is_cut`` says whether the clock had a say in it; None: it never has. A resumed fit with a larger budget, and
        more of it left than there was, then computes it anew, and with it all that came after.
        """
        name = self._prefix + name
        file = self.checkpoint
        known = None if file is None else file.phases.get(name)
        if known is not None and not self._has_more_time_than(known):
            return decode(known.value, known.arrays)
        if file is not None and known is not None:
            file.forget(name)
        began, limit = self.elapsed(), self.max_seconds
        # with or without a file, what follows begins with arrays of one kind
        with self.timed(name):
            found = compute()
        found = jax.tree.map(lambda leaf: np.array(leaf) if is_array(leaf) else leaf, found)
        if file is None or not (is_whole is None or is_whole(found)):
            return found
        arrays: dict[str, np.ndarray] = {}
        value = encode(found, arrays)
        if is_cut is None or not is_cut(found):
            limit = None
        seconds = self.elapsed() - began
        file.phases[name] = Saved(
            arrays=arrays, value=value, seconds=seconds, began=began, limit=limit
        )
        if file.due():
            file.write()
        return decode(value, arrays)

    def _has_more_time_than(self, known: Saved) -> bool:
        """Return whether a phase in which the clock had a say would find more: what follows it then has no less time.

        A budget that is not larger leaves it as it is, whatever is left: a fit that was killed goes on to the same end.
        """
        if known.limit is None or self.max_seconds is None:
            return known.limit is not None
        more = self.max_seconds > known.limit
        return more and self.max_seconds - self.elapsed() > known.limit - known.began

    def afforded(
        self,
        name: str,
        planned: int,
        share: float,
        affordable: Callable[[float], int],
        *,
        alone: bool = False,
    ) -> int:
        """Return a planned size, or what a share of the budget that is left affords.

        Measured once for a fit, resumed or not, unless it is resumed with more time, see `once`.

        Parameters
        ----------
        name : str
            Of the phase in the file.
        planned : int
        share : float
        affordable : callable
            ``affordable(seconds)`` gives the largest size that is worked with in so many seconds.
        alone : bool, default False
            Whether no other phase is made of it, so that more time is no reason to do these again.
        """
        left = self.seconds_left(share)
        if left is None and (alone or not self.has(name)):
            return planned

        def size() -> int:
            # what was measured differs by process
            return planned if left is None else int(from_first(min(planned, affordable(left))))

        return int(self.once(name, size, is_cut=lambda found: not alone and found < planned))

    def known_for(self, likelihood: Likelihood) -> First | None:
        """Return what another fit began with: one with a likelihood of this kind, or any; None where there was none."""
        kind = type(likelihood)
        same = [first for first in self.known if type(first.likelihood) is kind]
        return next(iter([*same, *self.known]), None)

    def evaluations(self, name: str, *, share: float = 1.0, until: float = np.inf) -> Evaluations:
        """Return the record of the evaluations of an optimiser: a resumed fit replays them, see `Evaluations`.

        Parameters
        ----------
        name, share
            As in `steps`.
        until : float, default infinity
            Seconds of the fit at which what is shared ends, where that is before the budget does.
        """
        return Evaluations(self, self._prefix + name, share, name, until)
