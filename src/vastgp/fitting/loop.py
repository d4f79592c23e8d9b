"""The training loop that every iterative method runs in.

Steps are pure functions that run in compiled chunks; Python, between two chunks only, reports, saves and stops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from vastgp.data.processes import gathered
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.interrupts import Interrupts
from vastgp.fitting.progress import Progress

# In words that hold for a budget of which part was spent before the loop.
OUT_OF_TIME = "stopped when max_seconds was used up"
# Among the diagnostics of a chunk that ended between two steps, as time was up: how many it has done.
STEPS_DONE = "steps done"


@runtime_checkable
class StepChunk(Protocol):
    """Does steps ``first_iter, ..., first_iter + num_iters - 1``."""

    def __call__(
        self, state: Any, first_iter: int, num_iters: int, /
    ) -> tuple[Any, Mapping[str, Any]]:
        """Return the new state and diagnostics; the old state may be donated.

        Whose steps take long may end before the last of them when time is up, and says so under `STEPS_DONE`.
        """


@dataclass(frozen=True)
class Stop:
    """A decision to end a fit.

    Attributes
    ----------
    reason : str
        Why, in words for the user.
    converged : bool
        Whether the fit counts as converged: unsaid, it does not.
    """

    reason: str
    converged: bool = False


ShouldStop = Callable[[Mapping[str, float], History], "Stop | None"]


@dataclass(frozen=True)
class LoopResult:
    """How a loop ended.

    Attributes
    ----------
    num_iter : int
        Steps done, those before a resume included.
    seconds : float
        Wall-clock seconds of training, those before a resume included.
    converged : bool
        Whether ``should_stop`` ended the loop and called it converged.
    reason : str
        Why the loop ended, in words.
    history : History
        One record per chunk.
    resumed_at : int
        Steps found in the checkpoint, 0 for a fit that started afresh.
    """

    num_iter: int
    seconds: float
    converged: bool
    reason: str
    history: History
    resumed_at: int = 0


def steps_of_chunk(most: int, operations: float, each: float, multiple: int = 1) -> int:
    """Return the steps between two visits of Python: fewer where they take more than so many operations together.

    Parameters
    ----------
    most : int
    operations, each : float
        Of a chunk, and of a step.
    multiple : int
        Of which they are one.
    """
    return multiple * int(np.clip(operations / (multiple * each), 1, most // multiple))


def run_chunks(
    step_chunk: StepChunk,
    state: Any,
    *,
    max_iter: int | None,
    chunk: int,
    max_seconds: float | None = None,
    checkpoint: Phase | None = None,
    should_stop: ShouldStop | None = None,
    label: str = "fit",
    verbose: bool = False,
) -> tuple[Any, LoopResult]:
    """Run steps in chunks until they converge, or until steps or time are spent.

    Parameters
    ----------
    step_chunk : callable
        ``step_chunk(state, first_iter, num_iters) -> (state, diagnostics)``. It may donate the state. Steps must be a
        pure function of the state and the iteration number, or a resumed run cannot equal an uninterrupted one.
    state : pytree of arrays
        Where the fit starts, unless the checkpoint holds a later state.
    max_iter : int or None
        Steps to do at most, counted from the start of the fit (not from a resume).
    chunk : int
        Steps between two visits of Python; the last chunk may be shorter.
    max_seconds : float, optional
        Wall-clock budget, seconds before a resume included. It is checked between chunks, so that a loop overruns it by
        less than one chunk. None: no limit.
    checkpoint : Phase, optional
        Where to save, and to resume from. A phase that had ended returns how it did, unless only its budget had been
        used up: then it goes on.
    should_stop : callable, optional
        ``should_stop(diagnostics, history) -> Stop | None``, asked after every chunk. It must look at nothing else than
        its arguments, wall-clock seconds excepted.
    label : str, default "fit"
        What the progress line calls the work.
    verbose : bool, default False
        Show progress with the time left, if standard error is a terminal.

    Returns
    -------
    state : pytree of arrays
    result : LoopResult

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C. With a checkpoint, the chunk at work is finished and saved first; a second Ctrl-C stops at once and
        leaves the last file.
    ValueError
        When nothing would ever end the loop, or the checkpoint belongs to another fit.
    """
    if max_iter is None and max_seconds is None and should_stop is None:
        raise ValueError("set max_iter or max_seconds: nothing else would end this fit.")
    found = checkpoint.load(state) if checkpoint is not None else None
    done, spent, history, ended = 0, 0.0, History(), None
    if found is not None:
        state, saved = found
        done, spent, history, ended = saved.num_iter, saved.seconds, saved.history, saved.ended
    resumed_at = done
    began = now() - spent

    def stop_now(diagnostics: Mapping[str, float]) -> Stop | None:
        if should_stop is not None and diagnostics:
            decision = should_stop(diagnostics, history)
            if decision is not None:
                return decision
        if max_iter is not None and done >= max_iter:
            return Stop(f"stopped after max_iter = {max_iter} steps")
        if max_seconds is not None and spent >= max_seconds:
            return Stop(OUT_OF_TIME, converged=False)
        return None

    with (
        Progress(label, verbose) as progress,
        Interrupts.watch() as interrupts,
        interrupts.held(checkpoint is not None),
    ):
        last = {name: column[-1] for name, column in history.values.items()}
        decision = Stop(**ended) if ended and ended["reason"] != OUT_OF_TIME else stop_now(last)
        while decision is None:
            steps = chunk if max_iter is None else min(chunk, max_iter - done)
            try:
                state, raw = step_chunk(state, done, steps)
            except KeyboardInterrupt:
                if checkpoint is not None and _is_alive(state):
                    checkpoint.save(state, done, spent, history)
                raise
            # reading the diagnostics waits for the chunk, so that the seconds are those of work done
            # decisions follow from them: several processes decide by those of process 0, whatever rounding made of
            # theirs, and end together where one was interrupted
            told = gathered(np.array([*map(float, raw.values()), interrupts.seen]))
            diagnostics = dict(zip(raw, told[0].tolist(), strict=False))
            done, spent = done + int(diagnostics.pop(STEPS_DONE, steps)), now() - began
            history.append(done, spent, diagnostics)
            progress.update(_fraction(done, max_iter, spent, max_seconds), _text(diagnostics))
            decision = stop_now(diagnostics)
            # of several processes one that was interrupted since they told tells it with the next chunk
            alone = len(told) == 1
            interrupted = interrupts.seen if alone else any(part[-1] for part in told)
            if checkpoint is not None and (interrupted or (not decision and checkpoint.due())):
                checkpoint.save(state, done, spent, history)
            if interrupted or (alone and interrupts.seen):
                raise KeyboardInterrupt
        if checkpoint is not None:
            checkpoint.note(state, done, spent, history, dataclasses.asdict(decision))
            if decision.reason == OUT_OF_TIME or checkpoint.due():
                checkpoint.file.write()
    state = jax.block_until_ready(state)
    return state, LoopResult(done, spent, decision.converged, decision.reason, history, resumed_at)


def _is_alive(state: Any) -> bool:
    """Whether no array of the state has been given away to a chunk that did not finish."""
    leaves = jax.tree.leaves(state)
    return not any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)


def _fraction(done: int, max_iter: int | None, spent: float, max_seconds: float | None) -> float:
    """Return how much of the nearest limit is used up."""
    of_steps = done / max_iter if max_iter else 0.0
    of_time = spent / max_seconds if max_seconds else 0.0
    return max(of_steps, of_time)


def _text(diagnostics: Mapping[str, float]) -> str:
    shown = [name for name in ("objective", "residual") if name in diagnostics]
    return "  ".join(f"{name} {diagnostics[name]:.5g}" for name in shown)
