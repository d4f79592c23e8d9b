"""Several processes at once, as tests start them."""

import functools
import os
import socket
import subprocess
import sys
import threading
import traceback

import jax
import numpy as np

from vastgp.data import joint_programs, processes
from vastgp.data.joint_programs import AXIS, JointProgram, opened, owned

# What they compute is little, most of their time compilation: kept short as for tests marked ``little_work``.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
}


def at_once(*commands, seconds=400) -> list[tuple[int, str]]:
    """Run commands at the same time, and end those that do not end; return their statuses and what they said."""
    children = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=os.environ | _ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for command in commands
    ]
    watch = threading.Timer(seconds, lambda: [child.kill() for child in children])
    watch.start()
    said = [child.communicate()[0].decode() for child in children]
    watch.cancel()
    return [(child.returncode, words) for child, words in zip(children, said, strict=True)]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def in_threads(monkeypatch, count, work) -> list:
    """Do ``work(number)`` in threads that stand for processes; return what each returned, or its exception.

    What one tells alone, and the others never, breaks the barrier; what they tell at different places of the program
    raises. Programs that they run together are one with an axis of processes, see `_jointly`.
    """
    here, barrier = threading.local(), threading.Barrier(count, timeout=200)
    told, places, found, done = [None] * count, [None] * count, [None] * count, []

    def exchange(message):
        told[here.number], places[here.number] = message, _place()
        barrier.wait()
        assert len(set(places)) == 1, places
        everything = np.stack(told)
        barrier.wait()
        return everything

    def passed(message):
        return exchange(message)[here.number - 1]

    def jointly(self, *arguments):
        told[here.number], places[here.number] = arguments, _place()
        barrier.wait()
        assert len(set(places)) == 1, places
        if here.number == 0:
            try:
                done.append(_jointly(self, told))
            except BaseException:
                barrier.abort()
                raise
        barrier.wait()
        # each has its own, to give away
        mine = jax.tree.map(jax.numpy.array, done[-1])
        barrier.wait()
        return mine

    def run(number):
        here.number = number
        try:
            found[number] = work(number)
        except BaseException as error:
            found[number] = error

    monkeypatch.setattr(processes, "count", lambda: count)
    monkeypatch.setattr(processes, "number", lambda: here.number)
    monkeypatch.setattr(processes, "_told", exchange)
    monkeypatch.setattr(joint_programs, "_passed", passed)
    monkeypatch.setattr(JointProgram, "__call__", jointly)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    return found


def _jointly(program, told):
    """Run a program of several processes as one: what is of each is stacked along the axis that they add up over.

    What all have alike must be so to the last bit. That what comes out does not depend on what is of each, but by their
    sums, JAX sees to: an output along the axis is refused.
    """
    static, given = told[0][: program.num_static], [each[program.num_static :] for each in told]
    tree = jax.tree.structure(opened(given[0]))
    own = tuple(jax.tree.leaves(owned(given[0])))
    columns = zip(own, *(jax.tree.leaves(opened(each)) for each in given), strict=True)
    arguments = []
    for is_own, *values in columns:
        if not is_own:
            for value in values[1:]:
                np.testing.assert_array_equal(value, values[0])
        arguments.append(np.stack(values) if is_own else values[0])
    options = tuple((program.compiler_options or {}).items())
    compiled = _compiled(program.function, static, tree, own, options)
    return jax.block_until_ready(compiled(*arguments))


@functools.cache
def _compiled(function, static, tree, own, options):
    return jax.jit(
        jax.vmap(
            lambda *leaves: function(*static, *jax.tree.unflatten(tree, leaves)),
            in_axes=tuple(0 if is_own else None for is_own in own), out_axes=None, axis_name=AXIS,
        ),
        compiler_options=dict(options) or None,
    )  # fmt: skip


def _place() -> tuple[tuple[str, int], ...]:
    """Where the program is, as far as vastgp goes."""
    frames = traceback.extract_stack()
    return tuple((each.filename, each.lineno) for each in frames if "/vastgp/" in each.filename)
