"""Fits by minibatches: killed after any record and resumed, they are the fit left alone, to the last bit."""

import jax
import numpy as np
import pytest

from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.inducing.answers import fit_inducing_answers
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.stochastic.fit import fit_stochastic_answers
from vastgp.methods.qsgp.stochastic.options import Stochastic

KERNEL = RBF(np.full(2, 0.7), 1.0)


class Killed(Exception):
    """Stands for the end of the process: nothing after it runs."""


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 2))
    rows = as_rows(X, np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(150))
    return rows, Standardizer().fit(rows)


def stochastic(data, run):
    options = Stochastic(
        dense_columns=4, row_batch=30, basis_batch=60, control_rank=40, freeze_steps=20, learn_every=2,
        validation_fraction=0.1, max_steps=130,
    )  # fmt: skip
    basis = RandomFourierBasis(KERNEL, seed_key(run.seed), 200)
    return fit_stochastic_answers(
        *data, basis, Gaussian(0.01), options, run,
        rate=1e-2, noise_floor=1e-6, tol=1e-9, dtype="float32",
    )  # fmt: skip


def inducing(data, run, **options):
    options = Inducing(row_batch=20, control_rank=10, max_steps=50, **options)
    return fit_inducing_answers(
        *data, KERNEL, Gaussian(0.01), options, run, num_basis=None, tol=1e-9, dtype="float32"
    )


def by_rows(data, run):
    return inducing(data, run, basis_batch=60)


INPUTS = np.random.default_rng(1).uniform(-1, 1, (40, 2))


def by_weights(data, run):
    return inducing(data, run, basis_batch=25, inputs=INPUTS, max_direct=0)


def directly(data, run):
    return inducing(data, run, inputs=INPUTS)


@pytest.mark.parametrize("fit", [stochastic, by_rows, by_weights, directly])
def test_killed_after_any_record_and_resumed_it_is_the_fit_left_alone(fit, data, tmp_path):
    def found(file):
        (answer,) = fit(data, Run(checkpoint=file, seed=3))
        posterior = answer.posterior()
        numbers = [answer.kernel, answer.likelihood, posterior.to_state()[1]]
        record = dict(answer.history.values)
        return numbers, answer.history.steps, record, answer.reason, dict(answer.attributes)

    def open_file(dies_after=None):
        file = Checkpoint(tmp_path / "fit", 0.0, fingerprint={"a": 1})
        file.due = lambda: True
        writes, write = [], file.write

        def counted():
            write()
            writes.append(1)
            if len(writes) == dies_after:
                raise Killed

        file.write = counted
        return file, writes

    expected = found(None)
    file, writes = open_file()
    found(file)
    for dies_after in range(1, len(writes) + 1):
        (tmp_path / "fit").unlink(missing_ok=True)
        with pytest.raises(Killed):
            found(open_file(dies_after)[0])
        again = found(open_file()[0])
        assert again[1:] == expected[1:]
        for one, other in zip(*map(jax.tree.leaves, (again[0], expected[0])), strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(writes) >= (1 if fit is directly else 3)
