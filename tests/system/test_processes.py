"""Several processes that fit one model come to the answer of one."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from several_processes import at_once, free_port
from vastgp.cli._errors import BadInput
from vastgp.cli._processes import _meet

PROGRAM = Path(__file__).parent / "shared_program.py"
COUNT = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two blocks of rows and a part, in files that end elsewhere."""
    folder = tmp_path_factory.mktemp("rows")
    generator = np.random.default_rng(0)
    for number, n in enumerate((30_000, 1, 12_000)):
        X = generator.uniform(size=(n, 2))
        y = np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=n)
        table = pa.table({"a": X[:, 0], "y": y, "b": X[:, 1]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=7000)
    for fault in ("damaged", "gap"):
        bad = folder.with_name(f"{folder.name}-{fault}")
        bad.mkdir()
        for number in range(2):
            a = generator.uniform(size=16_384)
            a[77] = np.nan if (fault, number) == ("gap", 1) else a[77]
            table = pa.table({"a": a, "y": a, "b": a[::-1]})
            pq.write_table(table, bad / f"{number}.parquet", write_page_checksum=True)
        if fault == "damaged":
            told = bytearray((bad / "1.parquet").read_bytes())
            told[3000:60_000] = generator.bytes(57_000)
            (bad / "1.parquet").write_bytes(told)
    np.savez(
        folder.with_suffix(".npz"), X=X[:300], y=y[:300]
    )  # one block: process 0 has none of it
    return folder


@pytest.fixture(scope="module")
def answers(met, folder, tmp_path_factory):
    """What the program finds in one process, and what each of several finds; all run at the same time."""
    out, port = tmp_path_factory.mktemp("found"), free_port()
    places = [(0, 1), *((number, COUNT) for number in range(COUNT))]
    files = [out / f"{count}-{number}.npz" for number, count in places]
    commands = (
        (PROGRAM, *place, port, folder, file) for place, file in zip(places, files, strict=True)
    )
    done = at_once(*commands)
    assert [code for code, _ in done] == [0] * len(done), "\n".join(words for _, words in done)
    one, *several = (dict(np.load(file)) for file in files)
    return one, several


@pytest.mark.slow
def test_rows_scaling_and_fits_are_those_of_one_process(answers):
    one, several = answers
    for number, found in enumerate(several):
        for name in ("taken", "slice", "kept", "local", "first", "scaling"):
            np.testing.assert_array_equal(found[name], one[name], err_msg=name)
        # sums of whole blocks are merged in one order; where rows are kept out the second begins within one
        np.testing.assert_array_equal(found["blocks"], one["blocks"])
        np.testing.assert_allclose(found["grief"], one["grief"], rtol=1e-9)
        # kernel and noise were learned by sums of tiles, and each predicts what it asks for
        mine = one["nearest"][:, 7 * number :]
        np.testing.assert_allclose(found["nearest"], mine, rtol=1e-9, atol=1e-9)
        # steps of which each process does its part of the rows, among them
        close = ("functions", "rows", "iterative", "tsvgp", "tsvgp, history", "swsgp, history")
        for name in close:
            np.testing.assert_allclose(found[name], one[name], rtol=1e-9, err_msg=name)
        # Adam divides slopes by their size, also where rounding is all of them
        np.testing.assert_allclose(found["swsgp"], one["swsgp"], rtol=1e-7)


@pytest.mark.slow
def test_what_one_process_refuses_all_refuse(answers):
    for number, found in enumerate(answers[1]):
        assert "ExactGPRegressor is fitted by one process, and 2 run here" in str(found["exact"])
        assert "exposure are taken by a fit in one process, and 2 run" in str(found["noise"])
        assert "joint samples are drawn by one that has them all" in str(found["sample"])
        assert "a file or a pickle would hold those of one" in str(found["saved"])
        assert "NaN" in str(found["nan"])
        assert number == 1 or "process 1 of 2: ValueError" in str(found["nan"])
        assert "the rows of process 1 have other columns than those of process 0" in str(
            found["columns"]
        )


LOST = PROGRAM.with_name("lost_program.py")


def commands_of(folder, out, happens, count, port, fit="fit"):
    """What runs the fit to which something happens: its processes, and where they put what they find."""
    file = out / f"{happens}-{count}.npz"
    given = (count, port, folder, out / fit, happens, file)
    return [(LOST, number, *given) for number in range(count)], file


@pytest.fixture(scope="module")
def ends(met, folder, tmp_path_factory):
    """How processes ended, what they said and what was found, by what happened: all wait at the same time."""
    cases, ports = {"nothing": 1, "kill": COUNT, "busy": COUNT, "abort": COUNT}, set()
    while len(ports) < len(cases):
        ports.add(free_port())
    outs = [tmp_path_factory.mktemp(name) for name in cases]
    of_cases = [
        commands_of(folder, out, *case, port)
        for out, case, port in zip(outs, cases.items(), ports, strict=True)
    ]
    began = time.monotonic()
    done = iter(at_once(*(command for commands, _ in of_cases for command in commands)))
    assert time.monotonic() - began < 200  # what is busy would have worked for longer
    return {
        name: ([next(done) for _ in commands], dict(np.load(file)) if file.exists() else None, out)
        for name, (commands, file), out in zip(cases, of_cases, outs, strict=True)
    }


@pytest.mark.slow
def test_process_0_is_killed_and_the_fit_goes_on_in_any_number(ends, folder):
    """The others meet through it: where JAX would abort them they end with words of their own."""
    ended, alone, _ = ends["nothing"]
    assert [code for code, _ in ended] == [0], ended[0][1]
    killed, found, out = ends["kill"]
    assert [code for code, _ in killed] == [-signal.SIGKILL, 1], killed[1][1]
    assert found is None
    assert "ProcessLostError: process 0 of 2 (number" in killed[1][1]
    # from two copies of what it left, at the same time
    shutil.copy(out / "fit", out / "copied")
    one, in_one = commands_of(folder, out, "nothing", 1, free_port(), "copied")
    several, in_several = commands_of(folder, out, "nothing", COUNT, free_port())
    done = at_once(*one, *several)
    assert [code for code, _ in done] == [0] * (1 + COUNT), done[0][1]
    for found in map(np.load, (in_one, in_several)):
        assert found["records"] < alone["records"]  # it went on
        np.testing.assert_allclose(found["found"], alone["found"], rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_a_busy_process_ends_too_when_process_0_is_killed(ends):
    (_, (code, said)), _, _ = ends["busy"]
    assert code == 1
    assert "ProcessLostError: process 0 of 2 (number" in said


@pytest.mark.slow
def test_an_abort_of_its_own_stays_one(ends):
    ((code, said), (aborted, _)), _, _ = ends["abort"]
    assert aborted == -signal.SIGABRT
    assert code == 1
    assert "ProcessLostError: process 1 of 2 (number" in said


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GRIEF", "QSGP", "t-SVGP"])
def test_parts_without_rows_and_bad_files(answers, method):
    """A part of no row or one is a part; of a bad file all say which it is, and where in it."""
    one, several = answers
    for number, found in enumerate(several):
        for name in (f"{method}, 0 rows", f"{method}, 1 rows"):
            np.testing.assert_allclose(found[name], one[name], rtol=1e-7, err_msg=name)
        damaged, gap = (str(found[f"{method}, {fault}"]) for fault in ("damaged", "gap"))
        assert "-damaged/1.parquet' cannot be read" in damaged
        assert "NaN: at row 16461 (row 77 of '" in gap
        assert "-gap/1.parquet'), column 'a'" in gap
        if number == 0:
            assert "process 1 of 2: ValueError" in damaged and "process 1 of 2: ValueError" in gap


COMMAND = [sys.executable, "-m", "vastgp", "fit"]


@pytest.mark.slow
def test_the_command_ends_with_the_first_that_ends(folder, tmp_path):
    """The watcher of two processes, one of which is killed: the other is ended, and no file is left."""
    out = tmp_path / "model.vastgp"
    given = [folder, "--target", "y", "--method", "grief", "--processes", "2", "--out", out]
    watcher = subprocess.Popen(
        [*COMMAND, *map(str, given)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    children: list[int] = []
    until = time.monotonic() + 60
    while len(children) < 2 and time.monotonic() < until:
        time.sleep(0.05)
        listed = Path(f"/proc/{watcher.pid}/task/{watcher.pid}/children").read_text().split()
        children = [int(pid) for pid in listed]
    os.kill(children[1], signal.SIGKILL)
    _, said = watcher.communicate(timeout=120)
    assert watcher.returncode == 1
    assert b"Process 1 of 2 was ended by signal 9; the others were ended" in said
    assert not out.exists()


def test_processes_that_do_not_reach_each_other_say_so(monkeypatch):
    def fails(**_):
        raise RuntimeError("gloo: no address")

    monkeypatch.setattr(jax.distributed, "initialize", fails)
    with pytest.raises(
        BadInput, match=r"did not reach each other \(gloo: no address\).*/etc/hosts"
    ):
        _meet(1, 2, 0)


def test_methods_that_one_process_fits_are_refused(folder, tmp_path):
    given = [folder, "--target", "y", "--processes", "2"]
    found = subprocess.run(
        [*COMMAND, *map(str, given)], cwd=tmp_path, capture_output=True, check=False
    )
    assert found.returncode == 2
    assert b"--processes 2 is for a named method" in found.stderr
