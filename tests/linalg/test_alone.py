"""Fits in two threads of one process end: batches of factorisations do not wait for each other's threads."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp.linalg.alone import alone, run_alone

# Of two threads without the lock each try was still waiting after half a minute, where one thread takes a second.
_BATCHES = """
import threading, jax, jax.numpy as jnp
from vastgp.linalg.alone import run_alone

@run_alone
@jax.jit
def factors(key):
    noise = 0.1 * jax.random.normal(key, (450, 64, 64))
    return jnp.linalg.cholesky(60.0 * jnp.eye(64) + noise)[:, :, 0]

def work(number):
    for step in range(30):
        factors(jax.random.key(number * step))
    done.append(number)

"""
_FITS = """
import threading, numpy as np, vastgp, warnings
from vastgp.options import LocalSteps
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(600, 3))
y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=600)

def work(number):
    solver = LocalSteps(max_steps=300)
    vastgp.SWSGPRegressor(solver=solver, num_inducing=100, num_neighbors=20).fit(X, y)
    done.append(number)

"""
_BOTH = """
done = []
threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(done))
"""


@pytest.mark.parametrize("what", [_BATCHES, _FITS], ids=["batches", "fits"])
def test_two_threads_end(what):
    ended = subprocess.run(
        [sys.executable, "-c", what + _BOTH], capture_output=True, text=True, timeout=300
    )
    assert ended.stdout.strip() == "[1, 2]", ended.stderr


def test_a_function_that_runs_alone_is_the_same_within_another_program():
    double = run_alone(jax.jit(lambda x: 2.0 * x))
    np.testing.assert_array_equal(double(jnp.arange(3.0)), [0.0, 2.0, 4.0])
    slope = jax.jit(jax.grad(lambda x: jnp.sum(double(x) ** 2)))(jnp.arange(3.0))
    np.testing.assert_array_equal(slope, [0.0, 8.0, 16.0])


def test_one_thread_may_hold_it_twice():
    with alone(), alone():
        assert float(run_alone(jax.jit(jnp.sum))(jnp.ones(3))) == 3.0
