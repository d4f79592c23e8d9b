"""Checkpoints: what they restore, and what they refuse."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.data import write_archive
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.history import History
from vastgp.kernels import RBF


class State(NamedTuple):
    kernel: RBF
    weights: jax.Array
    key: jax.Array
    step: int
    host: np.ndarray


def state():
    return State(
        RBF([1.0, 2.0]), jnp.arange(6.0).reshape(2, 3), jax.random.key(3), 7, np.arange(3, dtype=np.int64)
    )  # fmt: skip


def test_every_kind_of_leaf_comes_back_as_it_was(tmp_path):
    history = History()
    history.append(7, 0.25, {"objective": -1.0, "residual": np.nan})
    with precision("float64"):
        before = state()
        Checkpoint(tmp_path / "c", fingerprint={}).save(before, 7, 0.25, history)
        saved = Checkpoint(tmp_path / "c", fingerprint={}).load(state())
    after = saved.state
    assert saved.num_iter == 7 and saved.seconds == 0.25
    np.testing.assert_equal(saved.history.to_dict(), history.to_dict())
    assert isinstance(after, State) and isinstance(after.kernel, RBF)
    assert after.weights.dtype == jnp.float64 and isinstance(after.host, np.ndarray)
    np.testing.assert_array_equal(after.weights, before.weights)
    np.testing.assert_array_equal(after.kernel.lengthscales, before.kernel.lengthscales)
    assert after.step == 7
    draw, again = (jax.random.normal(s.key, (4,)) for s in (before, after))
    np.testing.assert_array_equal(draw, again)


def test_no_file_is_no_state(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c", fingerprint={})
    assert checkpoint.load(state()) is None
    checkpoint.remove()  # nothing to remove is no error


def test_another_fit_is_refused_with_what_differs(tmp_path):
    mine = {"vastgp": "0.1", "params": {"num_basis": 100, "kernel": "rbf"}, "seed": 0}
    theirs = {"vastgp": "0.1", "params": {"num_basis": 200, "kernel": "rbf"}, "seed": 3}
    Checkpoint(tmp_path / "c", fingerprint=mine).save(state(), 1, 0.0, History())
    with pytest.raises(ValueError) as caught:
        Checkpoint(tmp_path / "c", fingerprint=theirs).load(state())
    message = str(caught.value)
    assert (
        "was written by another fit: params.num_basis was 100, is 200; seed was 0, is 3." in message
    )
    assert "Delete the file to start afresh, or change these back to go on from it." in message
    assert "kernel" not in message
    same = mine | {"params": {"kernel": "rbf", "num_basis": 100}}
    assert Checkpoint(tmp_path / "c", fingerprint=same).load(state()).num_iter == 1


def test_lists_and_tuples_in_a_fingerprint_are_the_same(tmp_path):
    Checkpoint(tmp_path / "c", fingerprint={"shape": (3, 4)}).save(state(), 1, 0.0, History())
    assert Checkpoint(tmp_path / "c", fingerprint={"shape": (3, 4)}).load(state()) is not None


def test_another_structure_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c", fingerprint={})
    checkpoint.save(state(), 1, 0.0, History())
    other = state()._replace(weights=jnp.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"\.weights is float32\[2, 3\] there, .*\[2, 4\] here"):
        checkpoint.load(other)
    with pytest.raises(ValueError, match=r"another structure .*6 arrays there, 5 here"):
        checkpoint.load(state()._replace(host=None))


def test_other_files_are_refused(tmp_path):
    write_archive(tmp_path / "model", {"kind": "model"}, {})
    with pytest.raises(ValueError, match="is a vastgp file but not a checkpoint"):
        Checkpoint(tmp_path / "model", fingerprint={}).load(state())
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="a checkpoint: delete it and start over"):
        Checkpoint(tmp_path / "text", fingerprint={}).load(state())


def test_a_folder_that_is_missing_is_named_before_the_work(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint: the folder of .* does not exist"):
        Checkpoint(tmp_path / "nowhere" / "c", fingerprint={})


def test_writing_waits_for_its_time(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c", every_seconds=0.1, fingerprint={})
    assert not checkpoint.due()
    time.sleep(0.11)
    assert checkpoint.due()
    checkpoint.save(state(), 1, 0.0, History())
    assert not checkpoint.due()
    # however often it is asked for, writing takes a twentieth of the time at most
    checkpoint.every_seconds, checkpoint._write_seconds = 0.0, 10.0
    assert not checkpoint.due()
