"""Checkpoints: what they restore, and what they refuse."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import vastgp
from vastgp._precision import precision
from vastgp.data import write_archive
from vastgp.estimators import fitted
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.history import History
from vastgp.kernels import RBF
from vastgp.options import Fixed


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


def phase_of(folder, **fingerprint):
    return Checkpoint(folder / "c", fingerprint=fingerprint).phase("fit")


def test_every_kind_of_leaf_comes_back_as_it_was(tmp_path):
    history = History()
    history.append(7, 0.25, {"objective": -1.0, "residual": np.nan})
    with precision("float64"):
        before = state()
        phase_of(tmp_path).save(before, 7, 0.25, history)
        after, saved = phase_of(tmp_path).load(state())
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
    assert checkpoint.phase("fit").load(state()) is None
    checkpoint.remove()  # nothing to remove is no error


@pytest.mark.parametrize("random_state", [None, 5])
def test_a_fit_whose_seed_nobody_gave_goes_on_with_the_one_that_it_drew(
    tmp_path, monkeypatch, random_state
):
    X = np.linspace(-1.0, 1.0, 60)[:, None]
    path = tmp_path / "fit"
    model = vastgp.DirectRegressor(
        RBF(0.3),
        8,
        hyperparameters=Fixed(noise_std=0.1),
        checkpoint=path,
        random_state=random_state,
    )

    def killed(file, answer):
        file.write()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitted, "_finish", killed)
        first = clone(model)
        with pytest.raises(KeyboardInterrupt):
            first.fit(X, np.sin(3.0 * X[:, 0]))
    again = clone(model).fit(X, np.sin(3.0 * X[:, 0]))
    np.testing.assert_array_equal(again.predict(X), first.predict(X))
    assert not path.exists()


def test_another_fit_is_refused_with_what_differs(tmp_path):
    mine = {"vastgp": "0.1", "params": {"num_basis": 100, "kernel": "rbf"}, "seed": 0}
    theirs = {"vastgp": "0.1", "params": {"num_basis": 200, "kernel": "rbf"}, "seed": 3}
    phase_of(tmp_path, **mine).save(state(), 1, 0.0, History())
    with pytest.raises(ValueError) as caught:
        Checkpoint(tmp_path / "c", fingerprint=theirs)
    message = str(caught.value)
    assert (
        "was written by another fit: params.num_basis was 100, is 200; seed was 0, is 3." in message
    )
    assert "Delete the file to start afresh, or change these back to go on from it." in message
    assert "kernel" not in message
    same = mine | {"params": {"kernel": "rbf", "num_basis": 100}}
    assert phase_of(tmp_path, **same).saved.num_iter == 1


def test_lists_and_tuples_in_a_fingerprint_are_the_same(tmp_path):
    phase_of(tmp_path, shape=(3, 4)).save(state(), 1, 0.0, History())
    assert phase_of(tmp_path, shape=(3, 4)).load(state()) is not None


def test_another_structure_is_refused(tmp_path):
    checkpoint = phase_of(tmp_path)
    checkpoint.save(state(), 1, 0.0, History())
    other = state()._replace(weights=jnp.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"\.weights is float32\[2, 3\] there, .*\[2, 4\] here"):
        checkpoint.load(other)
    with pytest.raises(ValueError, match=r"another structure .*6 arrays there, 5 here"):
        checkpoint.load(state()._replace(host=None))


def test_other_files_are_refused(tmp_path):
    write_archive(tmp_path / "model", {"kind": "model"}, {})
    with pytest.raises(ValueError, match="is a vastgp file but not a checkpoint"):
        Checkpoint(tmp_path / "model", fingerprint={})
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="a checkpoint: delete it and start over"):
        Checkpoint(tmp_path / "text", fingerprint={})


def test_a_folder_that_is_missing_is_named_before_the_work(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint: the folder of .* does not exist"):
        Checkpoint(tmp_path / "nowhere" / "c", fingerprint={})


def test_writing_waits_for_its_time(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c", every_seconds=0.1, fingerprint={})
    assert not checkpoint.due()
    time.sleep(0.11)
    assert checkpoint.due()
    checkpoint.phase("fit").save(state(), 1, 0.0, History())
    assert not checkpoint.due()
    # however often it is asked for, writing takes a twentieth of the time at most
    checkpoint.every_seconds, checkpoint._write_seconds = 0.0, 10.0
    assert not checkpoint.due()


def test_phases_after_one_that_went_on_are_forgotten(tmp_path):
    file = Checkpoint(tmp_path / "c", fingerprint={})
    learning, fit = file.phase("learning"), file.phase("fit")
    learning.note(state(), 5, 1.0, History(), {"reason": "time"})
    fit.save(state(), 2, 0.5, History())
    again = Checkpoint(tmp_path / "c", fingerprint={})
    assert list(again.phases) == ["learning", "fit"] and again.seconds >= file.phases["fit"].began
    # nothing was done: what was made of it stays
    again.phase("learning").note(state(), 5, 1.0, History(), again.phases["learning"].ended)
    assert list(again.phases) == ["learning", "fit"]
    again.phase("learning").note(state(), 6, 1.2, History())
    assert list(again.phases) == ["learning"]


def test_a_disk_that_cannot_take_it_is_warned_of_and_the_fit_goes_on(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vastgp.fitting.checkpoint.write_archive", full)
    with pytest.warns(UserWarning, match=r"could not be written: .*No space.* will try again"):
        phase_of(tmp_path).save(state(), 1, 0.0, History())
