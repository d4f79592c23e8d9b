"""Checkpoints that cannot be written, deleted or believed, and two fits that want one."""

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from damaged_files import _places
from fault_child import answers, small_table
from promises import quick
from vastgp.data import read_archive, write_archive
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.checkpoint_lock import alone_with

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, Y, NEW = small_table(classes=False)


def model(path=None):
    return quick("SVGPRegressor", X).set_params(checkpoint=path)


@pytest.fixture(scope="module")
def alone():
    return answers(model().fit(X, Y), NEW)


@pytest.fixture(autouse=True)
def at_every_record(monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda file: True)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A checkpoint after two writes."""
    path = tmp_path_factory.mktemp("unfinished") / "fit"
    writes = []

    class Killed(BaseException):
        pass

    def write(file, whole=Checkpoint.write):
        whole(file)
        writes.append(1)
        if len(writes) == 2:
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Checkpoint, "write", write)
        patched.setattr(Checkpoint, "due", lambda file: True)
        with pytest.raises(Killed):
            model(path).fit(X, Y)
    return path


def refusal(path, header):
    """Return what reading a checkpoint of a fit ends in; None where it is read."""
    try:
        Checkpoint(path, fingerprint=header["fingerprint"])
    except ValueError as error:
        return str(error)
    return None


def test_a_folder_that_vanishes_costs_the_file_and_not_the_fit(alone, tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()

    def write(file, whole=Checkpoint.write):
        whole(file)
        shutil.rmtree(folder, ignore_errors=True)

    monkeypatch.setattr(Checkpoint, "write", write)
    with pytest.warns(UserWarning, match="could not be written.*The fit goes on and will try"):
        found = model(folder / "fit").fit(X, Y)
    np.testing.assert_array_equal(answers(found, NEW), alone)


def test_without_file_handles_the_fit_goes_on(alone, tmp_path, monkeypatch):
    """The system's own refusal, at each write."""
    resource = pytest.importorskip("resource", reason="limits of POSIX")

    def write(file, whole=Checkpoint.write):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # descriptors are given out from the lowest on
        held = os.open(os.devnull, os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (held, limits[1]))
        try:
            whole(file)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            os.close(held)

    monkeypatch.setattr(Checkpoint, "write", write)
    with pytest.warns(UserWarning, match="could not be written: .*Too many open files"):
        found = model(tmp_path / "fit").fit(X, Y)
    np.testing.assert_array_equal(answers(found, NEW), alone)


def test_a_file_that_cannot_be_deleted_costs_nothing(alone, tmp_path, monkeypatch):
    path = tmp_path / "fit"
    path.touch()

    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(self))

    fitted = model(path)
    with monkeypatch.context() as patched:
        patched.setattr("vastgp.fitting.checkpoint.read_archive_together", lambda path: None)
        patched.setattr(Checkpoint, "write", lambda file: None)
        patched.setattr(Path, "unlink", refuse)
        with pytest.warns(UserWarning, match="complete, and its checkpoint .* could not be del"):
            fitted.fit(X, Y)
    np.testing.assert_array_equal(answers(fitted, NEW), alone)


def test_an_interruption_after_the_last_step_loses_neither_model_nor_file(
    unfinished, alone, tmp_path, monkeypatch
):
    """Ctrl-C while the file of a complete fit is deleted: the model is there already."""
    path = shutil.copy(unfinished, tmp_path / "fit")

    def interrupted(file):
        raise KeyboardInterrupt

    fitted = model(path)
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(X, Y)
    np.testing.assert_array_equal(answers(fitted, NEW), alone)


def test_a_checkpoint_that_somebody_changed_is_one_kind_of_error(unfinished, tmp_path):
    """Any value of the header gone or another, the checksum right: named, or without effect."""
    header, arrays = read_archive(unfinished)
    path, refused = tmp_path / "fit", 0
    # what a fit could not tell from its own: words and numbers that it only goes on from
    places = [place for place in _places(header) if place[0] != "fingerprint" and len(place) <= 4]
    for number, place in enumerate(places):
        changed = copy.deepcopy(header)
        owner = changed
        for key in place[:-1]:
            owner = owner[key]
        if number % 2:
            del owner[place[-1]]
        else:
            owner[place[-1]] = {"x": []}
        write_archive(path, changed, arrays)
        said = refusal(path, header)
        assert said is None or (said.startswith("checkpoint: ") and repr(str(path)) in said), said
        refused += said is not None
    assert refused > 5
    for missing in list(arrays)[:2]:
        write_archive(path, header, {k: v for k, v in arrays.items() if k != missing})
        with pytest.raises(ValueError, match=r"^checkpoint: .*Delete it to start afresh"):
            model(path).fit(X, Y)


def test_a_second_fit_is_told_before_any_work(tmp_path):
    path = tmp_path / "fit"
    with alone_with(path):
        with pytest.raises(ValueError, match=r"another fit is at work with .*fit'\. Wait for its"):
            model(path).fit(X, Y)
        assert os.listdir(tmp_path) == [".fit.lock"]
    assert os.listdir(tmp_path) == []
    with alone_with(path), alone_with(tmp_path / "other"):
        pass


def test_where_files_and_names_tell_other_numbers_a_second_fit_is_told_too(tmp_path, monkeypatch):
    """As on some layered file systems: this looked for the same file without end."""
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
    with (
        alone_with(tmp_path / "fit"),
        pytest.raises(ValueError, match="another fit is at work"),
        alone_with(tmp_path / "fit"),
    ):
        pass
    assert os.listdir(tmp_path) == []


_HOLD = """
import sys, time
from vastgp.fitting.checkpoint_lock import alone_with
with alone_with(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    path = tmp_path / "fit"
    other = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    with pytest.raises(ValueError, match="another fit is at work"), alone_with(path):
        pass
    other.kill()
    other.communicate()
    with alone_with(path):
        assert os.listdir(tmp_path) == [".fit.lock"]
    assert os.listdir(tmp_path) == []


def test_where_there_is_no_folder_nothing_is_held(tmp_path):
    with alone_with(tmp_path / "nowhere" / "fit"):
        assert os.listdir(tmp_path) == []
