"""Steps on minibatches of which each of several processes works on the rows that it has."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import several_processes
from several_processes import in_threads
from vastgp.data import Standardizer, as_rows
from vastgp.data.joint_programs import AXIS, Own
from vastgp.data.shared_rows import as_shared_rows
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian
from vastgp.methods.svgp.fit import Inputs, fit_svgp
from vastgp.methods.svgp.fit import answer_of as svgp_answer
from vastgp.methods.svgp.iteration import Record, State, _tried
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.swsgp.fit import _of_steps as swsgp_answer
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.methods.swsgp.training import fit_swsgp

N, BATCH = 1200, 200
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (N, 2))
Y = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.2 * RNG.normal(size=N)
NEW = np.random.default_rng(1).normal(size=(20, 2))
SCALING = Standardizer().fit(as_rows(X, Y))
FIRST = RBF([0.8, 1.2]), Gaussian(0.1)
SPARSE = SVGPOptions(row_batch=BATCH, max_steps=10)
LOCAL = SwsgpOptions(6, row_batch=BATCH, max_steps=20)
changed = dataclasses.replace

# name: options, how large the parts are of the rows that processes have, how close. Adam divides slopes by their size:
# where they are next to nothing, rounding is all of them.
CASES = {
    "t-SVGP, several steps": (changed(SPARSE, num_e_steps=2, num_m_steps=2), (0, 2, 1), 1e-9),
    "SVGP, unwhitened": (changed(SPARSE, hold="unwhitened"), (1, 1), 1e-9),
    "SVGP, Adam": (changed(SPARSE, optimizer="adam", hold="whitened"), (1, 1, 1, 1), 5e-8),
    "t-SVGP, all rows": (changed(SPARSE, row_batch=2 * N), (0, 2, 1), 1e-9),
    "SWSGP": (LOCAL, (1, 1, 1, 1), 1e-9),
    "SWSGP, neighbourhoods that move and fade": (
        changed(LOCAL, prior="neighborhoods", move=True, taper=True), (0, 2, 1), 5e-8,
    ),
}  # fmt: skip


def fitted(rows, options):
    """What steps find, in float64: hyperparameters, mean and variance at new inputs, recorded bounds."""
    if isinstance(options, SVGPOptions):
        Z = SCALING.transform_X(X[::80])
        fit = fit_svgp(rows, SCALING, FIRST, Inputs(Z, "kmeans", len(Z)), options, Run())
        answer = svgp_answer(fit, SCALING, options, "float64")
    else:
        # the first row is an inducing input: what parts are filled up with must not be at another row's border
        fit = fit_swsgp(rows, SCALING, *FIRST, SCALING.transform_X(X[::16]), options, Run())
        answer = swsgp_answer(fit, rows, SCALING, options, 0, "float64")
    moments = answer.posterior().mean_and_latent_variance(NEW)
    params = jax.tree.leaves((fit.kernel, fit.likelihood, fit.Z))
    return [np.asarray(leaf) for leaf in params], moments, fit.loop.history.objective


def of_several(options, ends):
    """The same of several processes, and how many rows each is given to work on in a step."""
    sizes = []

    def work(number):
        some = slice(ends[number], ends[number + 1])
        return fitted(as_shared_rows(X[some], Y[some], min_rows=2), options)

    def seen(program, told):
        # of what is of each process, the inputs are the first
        parts = jax.tree.leaves(told[0], is_leaf=lambda part: isinstance(part, Own))
        own = next(part for part in parts if isinstance(part, Own))
        sizes.append(jax.tree.leaves(own)[0].shape[-2])
        return plain(program, told)

    plain = several_processes._jointly
    with pytest.MonkeyPatch.context() as patch, pytest.MonkeyPatch.context() as spy:
        spy.setattr(several_processes, "_jointly", seen)
        return in_threads(patch, len(ends) - 1, work), sizes


@pytest.mark.parametrize("name", CASES)
def test_steps_of_several_are_those_of_one_and_each_has_its_part_of_the_work(name):
    options, parts, close = CASES[name]
    found, sizes = of_several(options, np.cumsum([0, *parts]) * N // sum(parts))
    whole = fitted(as_rows(X, Y), options)
    for params, moments, bounds in found:
        np.testing.assert_allclose(bounds, whole[2], rtol=close)
        np.testing.assert_allclose(moments, whole[1], rtol=0.0, atol=close)
        for mine, alone in zip(params, whole[0], strict=True):
            np.testing.assert_allclose(mine, alone, rtol=0.0, atol=10.0 * close)
    batch = min(options.row_batch, N)
    # the largest part of the rows, and five standard deviations of what a minibatch has of it
    expected = batch * max(parts) / sum(parts)
    spread = 0.0 if batch == N else 5.0 * expected**0.5
    assert set(sizes) == {sizes[0]} and expected <= sizes[0] <= expected + spread


def test_a_step_that_one_process_finds_bad_all_take_again():
    """At full length it is good in the first process alone, at half length in both."""

    def step(number):
        def attempt(state, length):
            good = (length < 1.0) | (number == 0)
            return state._replace(q=(length,)), length, good

        start = State(None, None, (jnp.ones(()),), None, None, None, jnp.int32(0))
        record = Record(jnp.zeros(()), jnp.zeros((), jnp.int32))
        return _tried(attempt, start, record, 1, processes=2)

    state, record = jax.vmap(step, axis_name=AXIS, out_axes=None)(jnp.arange(2))
    assert float(state.q[0]) == 0.5 and int(state.damped) == 1 and int(record.failed) == 0
