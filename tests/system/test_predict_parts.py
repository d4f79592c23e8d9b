"""`vastgp predict --processes`: the rows shared, one file a process in a folder that appears whole."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from vastgp import ExactGPRegressor, GPRegressor
from vastgp.cli import _processes

COMMAND = [sys.executable, "-m", "vastgp", "predict"]


@pytest.fixture
def as_part(run, monkeypatch, tmp_path):
    """Run the command as one of several processes does; return its file."""
    monkeypatch.setattr(_processes, "share_cores", lambda number, count: None)
    folder = tmp_path / "parts"
    folder.mkdir()

    def invoke(number, count, *arguments, code=0):
        monkeypatch.setenv("VASTGP_PROCESS", f"{number}/{count}/0")
        monkeypatch.setenv("VASTGP_PARTS", str(folder))
        found = run("predict", *arguments, code=code)
        return found if code else next(folder.glob(f"part-{number:05d}.[!j]*"))

    return invoke


def columns_of(path):
    if path.suffix == ".npz":
        return dict(np.load(path))
    return {name: np.asarray(column) for name, column in pq.read_table(path).to_pydict().items()}


@pytest.fixture(scope="module")
def models(files, model, tmp_path_factory):
    """A model of a table, one of an array, and one that takes tables of any kind."""
    folder = tmp_path_factory.mktemp("models")
    arrays, auto = folder / "arrays.vastgp", folder / "auto.vastgp"
    with np.load(files / "train.npz") as train:
        ExactGPRegressor("rbf").fit(train["X"], train["y"]).save(arrays)
    table = pd.read_parquet(files / "train.parquet")
    GPRegressor(max_seconds=3, method="exact").fit(table, "temperature").save(auto)
    return {"table": model, "arrays": arrays, "auto": auto}


@pytest.mark.parametrize(
    ("kind", "new", "out"),
    [
        ("table", "new.parquet", "p.parquet"),
        ("arrays", "test.npz", "p.npz"),
        ("auto", "parts", "p.parquet"),
    ],
)
def test_parts_are_the_whole_in_order(run, as_part, files, models, tmp_path, kind, new, out):
    model = models[kind]
    run("predict", model, files / new, "--out", tmp_path / out)
    whole = columns_of(tmp_path / out)
    parts = [
        columns_of(as_part(number, 3, model, files / new, "--out", tmp_path / f"other{out}"))
        for number in range(3)
    ]
    n = len(whole["mean"])
    assert [len(part["mean"]) for part in parts] == [n // 3, n * 2 // 3 - n // 3, n - n * 2 // 3]
    for name, values in whole.items():
        joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(joined, values, rtol=1e-6)


def test_a_file_that_has_no_parts_is_refused(as_part, files, model, tmp_path):
    found = as_part(0, 2, model, files / "test.csv", "--out", tmp_path / "p.csv", code=2)
    assert "is no Parquet file or folder" in " ".join(found.err.split())
    found = as_part(0, 200, model, files / "new.parquet", "--out", tmp_path / "p.csv", code=2)
    assert "--processes 200: there are 120 rows" in " ".join(found.err.split())


@pytest.mark.slow
def test_processes_write_a_folder_of_one_file_each(run, files, model, tmp_path):
    out = tmp_path / "p.parquet"
    given = [model, files / "new.parquet", "--out", out, "--processes", "2"]
    done = subprocess.run([*COMMAND, *map(str, given)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "120 rows" in done.stderr + done.stdout and "2 files" in done.stderr + done.stdout
    assert sorted(file.name for file in out.iterdir()) == [
        "part-00000.parquet", "part-00001.parquet",
    ]  # fmt: skip
    run("predict", model, files / "new.parquet", "--out", tmp_path / "whole.parquet")
    np.testing.assert_allclose(
        pq.read_table(out)["mean"], pq.read_table(tmp_path / "whole.parquet")["mean"], rtol=1e-6
    )
    assert {entry.name for entry in tmp_path.iterdir()} == {"p.parquet", "whole.parquet"}


def test_what_is_there_is_not_replaced_by_chance(run, files, model, tmp_path):
    out = tmp_path / "p.parquet"
    out.mkdir()
    (out / "part-00000.parquet").write_text("old")
    given = ["predict", model, files / "new.parquet", "--out", out, "--processes", 2]
    assert "exists; choose another name" in " ".join(run(*given, code=2).err.split())
    missing = run(*given[:2], files / "parts" / "no.parquet", *given[3:], "--force", code=2)
    assert "does not exist" in " ".join(missing.err.split())
    # a folder of other files is never replaced
    (out / "letter.txt").write_text("dear")
    found = run(*given, "--force", code=2)
    assert "what is there is none" in " ".join(found.err.split())
    assert {entry.name for entry in out.iterdir()} == {"part-00000.parquet", "letter.txt"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.parquet"]
