"""Runs steps on minibatches: a chunk of them is one compiled program, and the rows of the next are read meanwhile."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vastgp import _accelerator
from vastgp.data import processes
from vastgp.data.devices import on_every_device, on_first_device, over_devices
from vastgp.data.joint_programs import JointProgram, Own
from vastgp.data.padding import repeat_last
from vastgp.linalg.alone import alone
from vastgp.linalg.threads import blas_threads

# Of steps that factorise matrices. They must not be given to XLA's concurrency-optimised scheduler of the CPU (JAX
# 0.10.2): with it the end of a step can get lost, and the program waits for ever.
_FACTORISING = {"xla_cpu_enable_concurrency_optimized_scheduler": False}

# step(plan, constants, state, batch, number) -> (state, record)
Step = Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]


class MinibatchRunner:
    """A `vastgp.fitting.loop.StepChunk`: hand it to `run_chunks`, inside ``with`` so that no reader outlives the fit.

    Parameters
    ----------
    step : callable
        ``step(plan, constants, state, batch, number) -> (state, record)``, pure, and a function of a module: another
        object, such as a closure or a partial, is another program. What is random in it is a function of the constants
        (a key) and of ``number``, counted from the start of the fit. The record is a pytree of scalars or arrays.
    plan : hashable
        What the program is compiled for: sizes and choices.
    constants : pytree of arrays
        What stays the same during the fit without being compiled in: rows seen by every step, numbers, rates, keys.
    chunk : int
        Steps in the program. A call may ask for fewer, which is the same program.
    draw : callable, optional
        ``draw(first, count)`` gives the batches of these steps as a pytree of NumPy arrays, steps along the first axis.
        The batch of a step must depend on its number alone, whatever else is asked for. It runs in a thread of its own,
        and so must not use JAX, nor what the steps change. None: steps take ``batch=None``.
    complete : callable, optional
        ``complete(batches) -> batches`` in the calling thread, just before the program: for what depends on the state.
    summarise : callable, optional
        ``summarise(state, records, done) -> diagnostics`` where records are NumPy arrays, a step along the first axis,
        and ``done`` counts all steps so far. None: the mean of each entry of a dictionary.
    last : int, optional
        Number of steps of the whole fit, beyond which no rows are read.
    compiler_options : dict, optional
        Of `jax.jit`.
    factorises : int, optional
        Rows of the matrices that a step factorises: XLA has them done by the LAPACK that SciPy has, with its threads,
        which are one for small matrices. None: it factorises none.
    shared : bool, default False
        Whether several processes take the steps together, each with its own part of every batch: what ``draw`` (which
        then tells nobody anything) or ``complete`` give, and the constants, are marked by `vastgp.data.joint_programs`
        where they are of each process, and the step adds up what it makes of them.
    devices : int, default 1
        To how many devices of this process rows are dealt out: what is marked as `vastgp.data.joint_programs.Own` lies
        on them, a part on each, and all else is whole on each. The step is the one of a single device; XLA splits it.
    axis : int, default 1
        Along which what is marked in batches is dealt out (steps are the first axis); in the constants it is the first.
    """

    def __init__(
        self,
        step: Step,
        plan: Any,
        constants: Any,
        *,
        chunk: int,
        draw: Callable[[int, int], Any] | None = None,
        complete: Callable[[Any], Any] | None = None,
        summarise: Callable[[Any, Any, int], Mapping[str, Any]] | None = None,
        last: int | None = None,
        compiler_options: Mapping[str, Any] | None = None,
        factorises: int | None = None,
        shared: bool = False,
        devices: int = 1,
        axis: int = 1,
    ) -> None:
        self._factorises = factorises
        self._shared, self._devices, self._axis = shared, devices, axis
        self.constants = constants if devices == 1 else _over_devices(constants, devices, 0)
        of_steps = _FACTORISING if factorises is not None else {}
        options = tuple({**(compiler_options or {}), **of_steps}.items())
        self._program: Any = joint_program(options) if shared else chunk_program(options)
        self._static = (step, plan, chunk)
        self._chunk, self._last = chunk, last
        self._draw, self._complete = draw, complete
        self._summarise = summarise or _means
        self._ahead: _Reader | None = None

    def __enter__(self) -> MinibatchRunner:
        return self

    def __exit__(self, *error: object) -> None:
        if self._ahead is not None:
            self._ahead.leave()
            self._ahead = None

    def __call__(
        self, state: Any, first_iter: int, num_iters: int, /
    ) -> tuple[Any, Mapping[str, Any]]:
        """Do the steps; the state is donated."""
        if not 1 <= num_iters <= self._chunk:
            raise ValueError(f"num_iters={num_iters}: expected 1 to chunk={self._chunk} steps.")
        done = first_iter + num_iters
        batches = self._batches(first_iter, num_iters)
        self._read_ahead(done)
        if self._complete is not None:
            batches = self._complete(batches)
        if num_iters < self._chunk:
            batches = jax.tree.map(lambda leaf: repeat_last(leaf, self._chunk), batches)
        numbers = np.int32(first_iter), np.int32(num_iters)
        if self._devices > 1:
            state = on_every_device(state, self._devices)
            batches = _over_devices(batches, self._devices, self._axis)
        with self._factorising():
            state, records = self._program(*self._static, self.constants, state, batches, *numbers)
            if self._devices > 1:
                state = on_first_device(state)
            # reading the records waits for the program
            records = jax.tree.map(lambda leaf: np.asarray(leaf)[:num_iters], records)
        return state, self._summarise(state, records, done)

    @contextmanager
    def _factorising(self) -> Iterator[None]:
        """Run a program as those that factorise are, where it is one of them."""
        if self._factorises is None:
            yield
            return
        # Steps that processes take together wait for each other: one that waited for its turn besides would hold up
        # all, in an order that they do not agree about.
        with nullcontext() if self._shared else alone(), blas_threads(self._factorises):
            yield

    def compile(self, state: Any, batch: Any = None) -> None:
        """Compile the program for a state and a batch of one step, of which shapes and types are enough.

        The compiler needs memory itself, which is there while the state is not.
        """
        lead = jax.tree.map(lambda a: jax.ShapeDtypeStruct((self._chunk, *a.shape), a.dtype), batch)
        numbers = np.int32(0), np.int32(0)
        self._program.lower(*self._static, self.constants, state, lead, *numbers).compile()

    def _batches(self, first: int, count: int) -> Any:
        """Return the batches of some steps, read by now or read here."""
        if self._draw is None:
            return None
        reader = self._ahead
        if reader is not None:
            reader.join()
            self._ahead = None
            if reader.first == first and reader.count >= count:
                return jax.tree.map(lambda leaf: leaf[:count], reader.result())
        return self._draw(first, count)

    def _read_ahead(self, first: int) -> None:
        count = self._chunk if self._last is None else min(self._chunk, self._last - first)
        # what several processes read together is told in one order with all else
        alone = self._shared or processes.count() == 1
        if self._draw is not None and count > 0 and alone:
            self._ahead = _Reader(self._draw, first, count)
            self._ahead.start()


class _Reader(threading.Thread):
    """Draws the batches of some steps; an error is that of whoever asks for them."""

    def __init__(self, draw: Callable[[int, int], Any], first: int, count: int) -> None:
        # a daemon: a program that ends in an error does not wait for the disk
        super().__init__(name="vastgp-rows", daemon=True)
        self.draw, self.first, self.count = draw, first, count
        self.found: Any = None
        self.error: BaseException | None = None
        self._begun = self._left = False
        self._device = _accelerator.told_device()  # each thread has its own
        self._ended = threading.Event()

    def run(self) -> None:
        self._begun = True
        try:
            if not self._left:
                with jax.default_device(self._device):
                    self.found = self.draw(self.first, self.count)
        except BaseException as error:
            self.error = error
        finally:
            self._ended.set()

    def leave(self) -> None:
        """Wait until it reads no more; one that has not begun never will.

        Ctrl-C ends ``start`` at any instant, with a thread or without one, and `join` raises where the thread has not
        told yet that it runs. Each side writes before it looks at what the other wrote, so that one of them sees it.
        """
        self._left = True
        if self._begun:
            self._ended.wait()

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.found


def _over_devices(tree: Any, count: int, axis: int) -> Any:
    """Return arrays on some devices, those that are marked dealt out along an axis, without the mark."""

    def put(part: Any) -> Any:
        if isinstance(part, Own):
            return over_devices(part.value, count, axis)
        return on_every_device(part, count)

    return jax.tree.map(put, tree, is_leaf=lambda part: isinstance(part, Own))


@functools.cache
def chunk_program(compiler_options: tuple[tuple[str, Any], ...] = ()) -> Any:
    """Return the compiled loop over steps, one for each choice of options in a process."""
    return jax.jit(
        _steps,
        static_argnums=(0, 1, 2),
        donate_argnums=4,
        compiler_options=dict(compiler_options) or None,
    )


@functools.cache
def joint_program(compiler_options: tuple[tuple[str, Any], ...] = ()) -> JointProgram:
    """Return the loop that several processes run together, one for each choice of options in a process."""
    return JointProgram(_steps, num_static=3, donated=4, compiler_options=dict(compiler_options))


def _steps(
    step: Step, plan: Any, chunk: int, constants: Any, state: Any, batches: Any, first: Any, count: Any
) -> tuple[Any, Any]:  # fmt: skip
    """Do ``count`` of ``chunk`` steps: a scan whose length is traced, so that a shorter one is no other program."""

    def one(k: Any, state: Any) -> tuple[Any, Any]:
        batch = jax.tree.map(lambda leaf: leaf[k], batches)
        return step(plan, constants, state, batch, first + k)

    def body(k: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, record = one(k, carry[0])
        return state, jax.tree.map(lambda whole, own: whole.at[k].set(own), carry[1], record)

    shapes = jax.eval_shape(one, jnp.zeros((), jnp.int32), state)[1]
    records = jax.tree.map(lambda own: jnp.zeros((chunk, *own.shape), own.dtype), shapes)
    return jax.lax.fori_loop(0, count, body, (state, records))


def mean_and_error(values: Any) -> dict[str, float]:
    """Return mean and standard error of the objectives that steps recorded, NaN where there are too few of them."""
    values = np.asarray(values, np.float64)
    mean = float(np.mean(values)) if len(values) else np.nan
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan
    return {"objective": mean, "objective_se": error}


def _means(state: Any, records: Mapping[str, Any], done: int) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in records.items()}
