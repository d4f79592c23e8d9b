"""Every mistake ends in one line that says what to do, the right exit code, and no half-written file."""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import vastgp
from vastgp.cli import _errors, _write
from vastgp.data import read_archive, write_archive
from wave_table import as_table, fit_exact

TARGET = ("--target", "temperature")


@pytest.fixture(scope="module")
def broken(files, model, tmp_path_factory):
    """Files with one thing wrong in each."""
    folder = tmp_path_factory.mktemp("broken")
    whole = model.read_bytes()
    (folder / "truncated.vastgp").write_bytes(whole[: len(whole) // 2])
    (folder / "foreign.vastgp").write_bytes(b"PK\x03\x04 something else" * 40)
    (folder / "empty.vastgp").touch()
    X, y = np.load(files / "test.npz")["X"], np.load(files / "test.npz")["y"]
    pa.parquet.write_table(as_table(X).drop_columns(["depth"]), folder / "no_depth.parquet")
    pa.parquet.write_table(
        as_table(X).rename_columns(["Depth", "pressure", "salinity"]), folder / "case.parquet"
    )
    gap = X.copy()
    gap[7, 1] = np.nan
    pa.parquet.write_table(as_table(gap), folder / "gap.parquet")
    words = as_table(X[:5], y[:5], station=pa.array(list("abcde")))
    pa.parquet.write_table(words, folder / "words.parquet")
    pa.parquet.write_table(as_table(X[:1], y[:1]), folder / "one_row.parquet")
    pa.parquet.write_table(as_table(X[:5]), folder / "no_target.parquet")
    (folder / "cut.parquet").write_bytes((files / "test.parquet").read_bytes()[:500])
    (folder / "table.xlsx").touch()
    np.savez(folder / "narrow.npz", X=X[:, :2], y=y)
    np.savez(folder / "no_target.npz", X=X)
    (folder / "plain.txt").write_text("a file, not a folder")
    return folder


# name -> arguments ({files}, {broken}, {model} and {out} are filled in) and the message
FIT = ("fit", "--method", "exact", "--out", "{out}")
PREDICT = ("predict", "{model}", "{files}/new.parquet")
BAD_INPUT = {
    # the data
    "no such file": (
        (*FIT, "{files}/trian.parquet", *TARGET),
        r"Error: The data '.*trian\.parquet' does not exist\. Did you mean 'train\.parquet'\?",
    ),
    "no such folder": (
        (*FIT, "{files}/nowhere/train.parquet", *TARGET),
        r"The data .*: the folder '.*nowhere' does not exist",
    ),
    "no such column": (
        (*FIT, "{files}/train.parquet", "--target", "temprature"),
        r"has no column 'temprature', named by --target\. Did you mean 'temperature'\? "
        r"Its columns are: 'depth', 'pressure', 'salinity', 'temperature'\.",
    ),
    "no target named": (
        (*FIT, "{files}/train.csv"),
        r"--target is missing: name the column to predict, one of 'depth', .*'temperature'",
    ),
    "no such feature": (
        (*FIT, "{files}/train.csv", *TARGET, "--features", "depth,presure"),
        r"has no column 'presure', named by --features\. Did you mean 'pressure'\?",
    ),
    "target among the features": (
        (*FIT, "{files}/train.csv", *TARGET, "--features", "depth,temperature"),
        r"--features names the target 'temperature' as well",
    ),
    "names for arrays": (
        (*FIT, "{files}/train.npz", "--features", "depth"),
        r"--features and --exclude name columns, and '.*train\.npz' holds arrays without names",
    ),
    "text in a column": (
        (*FIT, "{broken}/words.parquet", *TARGET),
        r"columns that are not numbers: 'station' \(text\)\. The default method takes them "
        r"as they are: leave --method out\. Or leave them out with --exclude station",
    ),
    "one row": ((*FIT, "{broken}/one_row.parquet", *TARGET), r"1 sample\(s\).*give at least two"),
    "cut off table": ((*FIT, "{broken}/cut.parquet", *TARGET), r"cut\.parquet' cannot be read"),
    "unknown format": ((*FIT, "{broken}/table.xlsx", *TARGET), r"table\.xlsx' has no known format"),
    "no y": ((*FIT, "{broken}/no_target.npz"), r"no_target\.npz' holds no target"),
    # options
    "no such method": (
        ("fit", "{files}/train.npz", "--out", "{out}", "--method", "relevance"),
        r"--method 'relevance' is none\. Did you mean 'relevance-vector'\? It is one of auto, exact, qsgp, ",
    ),
    "option of another method": (
        (*FIT, "{files}/train.npz", "--num-basis", "100"),
        r"--num-basis does not apply to ExactGPRegressor; leave it out\. It has: kernel, ",
    ),
    "no such argument": (
        (*FIT, "{files}/train.npz", "--set", "max_itr=3"),
        r"--set 'max_itr=3': expected NAME=VALUE with an argument of ExactGPRegressor\. "
        r"Did you mean 'max_iter'\? It has: ",
    ),
    "argument of another version": (
        (*FIT, "{files}/train.npz", "--set", "noise_std=3"),
        r"--set 'noise_std=3': ExactGPRegressor has no argument 'noise_std' any more, write hyperparameters=Fixed\(",
    ),
    "nothing inside": (
        (*FIT, "{files}/train.npz", "--set", "tol.rank=3"),
        r"--set tol\..*: tol=0.001 has no arguments of its own",
    ),
    "no such field": (
        (*FIT, "{files}/train.npz", "--set", "hyperparameters.rank=3"),
        r"Invalid parameter 'rank' for Learn\. Its parameters are: rows, noise_floor",
    ),
    "unknown kernel": (
        (*FIT, "{files}/train.npz", "--kernel", "gaussian"),
        r"kernel must be .*received 'gaussian'",
    ),
    "no value": (
        (*FIT, "{files}/train.npz", "--set", "max_iter"),
        r"--set 'max_iter': expected NAME=VALUE",
    ),
    # the model
    "no such model": (
        ("info", "{files}/modle.vastgp"),
        r"The model '.*modle\.vastgp' does not exist\. Did you mean 'model\.vastgp'\?",
    ),
    "truncated model": (
        ("predict", "{broken}/truncated.vastgp", "{files}/new.parquet", "--out", "{out}.csv"),
        r"truncated\.vastgp is not a complete file of vastgp.* Copy it again from its source, or fit",
    ),
    "foreign model": (
        ("info", "{broken}/foreign.vastgp"),
        r"foreign\.vastgp is not a complete file of vastgp",
    ),
    "empty model": (
        ("info", "{broken}/empty.vastgp"),
        r"not a complete file of vastgp: it is empty",
    ),
    "folder as model": (("info", "{files}"), r"is a folder; give the file that vastgp fit wrote"),
    # rows for a model
    "missing column": (
        ("predict", "{model}", "{broken}/no_depth.parquet", "--out", "{out}.csv"),
        r"no_depth\.parquet' has no column 'depth', which the model was fitted with\. Its columns are: ",
    ),
    "column in another case": (
        ("predict", "{model}", "{broken}/case.parquet", "--out", "{out}.csv"),
        r"has no column 'depth', which the model was fitted with\. Did you mean 'Depth'\?",
    ),
    "wrong number of columns": (
        ("predict", "{model}", "{broken}/narrow.npz", "--out", "{out}.csv"),
        r"X has 2 features, but ExactGPRegressor is expecting 3 features",
    ),
    "missing value": (
        ("predict", "{model}", "{broken}/gap.parquet", "--out", "{out}.csv"),
        r"contains NaN: at row 7, column 'pressure'",
    ),
    "test without target": (
        ("evaluate", "{model}", "{broken}/no_target.parquet"),
        r"no_target\.parquet' has no column 'temperature', the target \(--target names another one\)",
    ),
    "an input as the target": (
        ("evaluate", "{model}", "{files}/test.csv", "--target", "depth"),
        r"y='depth' is an input of the ExactGPRegressor, not its target: .* one of 'temperature'",
    ),
    "test arrays without target": (
        ("evaluate", "{model}", "{broken}/no_target.npz"),
        r"no_target\.npz' holds no target; write numpy\.savez\(path, X=X, y=y\)",
    ),
    # outputs
    "output exists": (
        (*PREDICT, "--out", "{files}/train.csv"),
        r"--out '.*train\.csv' exists; choose another name, or replace it with --force",
    ),
    "model exists": (
        ("fit", "{files}/train.npz", "--out", "{model}"),
        r"--out '.*model\.vastgp' exists; choose another name, or replace it with --force",
    ),
    "plot exists": (
        ("evaluate", "{model}", "{files}/test.csv", "--plot", "{files}/old.png"),
        r"--plot '.*old\.png' exists",
    ),
    "output of unknown format": (
        (*PREDICT, "--out", "{out}.xlsx"),
        r"--out .*: the ending names the format, one of \.parquet, \.csv, \.npz; got '\.xlsx'",
    ),
    "plot of unknown format": (
        ("evaluate", "{model}", "{files}/test.csv", "--plot", "{out}"),
        r"--plot .*: the ending names the format, one of \.png, \.pdf, \.svg; got '?none",
    ),
    "output is a folder": (
        ("fit", "{files}/train.npz", "--out", "{files}/parts"),
        r"--out .* is a folder",
    ),
    "output in no folder": (
        (*PREDICT, "--out", "{out}/deep/p.csv"),
        r"--out .* cannot be written: the folder '.*deep' does not exist\. Make it first",
    ),
    "checkpoint in no folder": (
        (*FIT, "{files}/train.npz", "--checkpoint", "{out}/deep/c"),
        r"--checkpoint .* cannot be written: the folder '.*deep' does not exist",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_explained_in_one_line(run, files, model, broken, tmp_path, case):
    (files / "old.png").touch()
    arguments, message = BAD_INPUT[case]
    places = {"files": files, "broken": broken, "model": model, "out": tmp_path / "out"}
    result = run(*(argument.format(**places) for argument in arguments), code=2)
    errors = [line for line in result.err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert result.out == ""
    assert "Traceback" not in result.err
    assert os.listdir(tmp_path) == []


def test_usage_errors_have_the_same_code(run, files):
    assert "Missing argument 'DATA'" in run("fit", code=2).err
    assert "Missing option '--out'" in run("predict", "m.vastgp", files / "new.csv", code=2).err
    assert "No such command 'train'" in run("train", code=2).err


def test_a_folder_that_refuses_files_is_noticed_before_any_work(run, files, model):
    # Permissions do not stop the superuser, a file system without files does.
    result = run("predict", model, files / "new.parquet", "--out", "/proc/predictions.csv", code=2)
    assert "no file can be made in the folder '/proc'" in result.err


def test_force_replaces_what_is_there(run, files, model, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("old")
    run("predict", model, files / "new.parquet", "--out", out, "--force")
    assert out.read_text().startswith('"mean","std","lower_95","upper_95"\n')
    (tmp_path / "m.vastgp").write_text("old")
    fit_exact(run, files / "train.npz", tmp_path / "m.vastgp", "--force")
    run("info", tmp_path / "m.vastgp")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
def test_a_failure_half_way_leaves_the_old_file_alone(
    run, files, model, tmp_path, monkeypatch, suffix
):
    """The disk is full at the third batch: exit code 1, the old predictions whole, nothing temporary."""
    out = tmp_path / f"out.{suffix}"
    out.write_text("old")
    kind = _write._Arrays if suffix == "npz" else _write._Table
    write, count = kind.write, iter(range(100))

    def full(self, columns):
        if next(count) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(out))
        write(self, columns)

    monkeypatch.setattr(kind, "write", full)
    arguments = (
        "predict",
        model,
        files / "new.parquet",
        "--out",
        out,
        "--batch-rows",
        30,
        "--force",
    )
    result = run(*arguments, code=1)
    assert "Error: [Errno 28] No space left on device" in result.err
    assert out.read_text() == "old"
    assert os.listdir(tmp_path) == [out.name]


def test_warnings_are_lines_without_code(run, files, tmp_path):
    X = np.load(files / "train.npz")["X"]
    np.savez(tmp_path / "constant.npz", X=X, y=np.full(len(X), 3.0))
    result = fit_exact(run, tmp_path / "constant.npz", tmp_path / "m.vastgp")
    assert "Warning: y is constant: every value is 3." in result.err
    assert "UserWarning" not in result.err
    assert ".py" not in result.err


def test_a_file_with_a_valid_checksum_and_other_contents_is_one_error_that_names_it(
    model, tmp_path
):
    header, arrays = read_archive(model)

    def refused(header, arrays=arrays):
        write_archive(tmp_path / "bad.vastgp", header, arrays)
        limit = sys.getrecursionlimit()
        # what is nested too deep follows from the frames that checked calls take
        sys.setrecursionlimit(len(inspect.stack(0)) + 250)
        try:
            with pytest.raises(ValueError, match=r"bad\.vastgp") as caught:
                vastgp.load(tmp_path / "bad.vastgp")
        finally:
            sys.setrecursionlimit(limit)
        return str(caught.value)

    for key in header.keys() - {"vastgp", "fit_seconds"}:
        refused({name: value for name, value in header.items() if name != key})
        for other in (None, 3, "text", [1], {"a": 1}):
            if type(other) is not type(header[key]) and key in ("params", "likelihood", "state"):
                refused(header | {key: other})
    assert "holds no ExactGPRegressor that vastgp" in refused(header, {})
    deep = {"list": []}
    for _ in range(300):
        deep = {"list": [deep]}
    refused(header | {"params": header["params"] | {"kernel": deep}})


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("X: wrong\n- a"), 2, "X: wrong - a"),
        (FileNotFoundError(2, "no such file", "a.csv"), 2, "a.csv: no such file."),
        (np.linalg.LinAlgError("not positive definite"), 1, "not positive definite"),
        (FloatingPointError("diverged"), 1, "diverged"),
        (
            MemoryError("3 GB"),
            1,
            "Out of memory (3 GB); lower --num-basis, or use --dtype float32.",
        ),
        (KeyError("a"), 1, "Unexpected KeyError: 'a' (--debug shows where)."),
    ],
)
def test_exit_codes_tell_bad_input_from_failure(error, code, text):
    assert _errors.diagnosis(error) == (code, text)
