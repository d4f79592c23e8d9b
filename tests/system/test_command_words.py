"""Messages name what a person typed: options, and not the arguments of Python that they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from vastgp.cli import _errors, _map_grid, _names, predict
from vastgp.cli._errors import BadInput

SOLVER = "must be one of ('auto', 'block') or Block(...), Stochastic(...) of vastgp.options; received 'x'."
AS_THEY_ARE = (
    "hyperparameters=Fixed(noise_std=None) needs noise_std. Write hyperparameters=Fixed(noise_std=...).",
    "use hyperparameters=Learn(steps=30, max_seconds=3)",
    "the row's kernel is one, 'max_seconds' and 'my max_seconds too' are columns of /tmp/max_seconds/x.csv",
    "Its columns are: 'kernel', 'space'.",
)


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (
            _names.OF_FIT,
            "max_seconds must be a positive number, or None (no limit); received 0.0.",
            "--max-seconds must be a positive number; received 0.0.",
        ),
        (_names.OF_FIT, f"solver {SOLVER}", "--solver must be one of ('auto', 'block'); received 'x'."),
        (
            _names.OF_FIT,
            "random_state must be an integer from 0, a NumPy random generator or None; received -1.",
            "--seed must be an integer from 0; received -1.",
        ),
        (_names.OF_FIT, "space=('a', 'b') names", "--space a,b names"),
        (_names.OF_FIT, "exposure='b [m]' must hold", "--exposure 'b [m]' must hold"),
        (
            _names.OF_FIT,
            "give more time (max_seconds), or set hyperparameters='subset'.",
            "give more time (--max-seconds), or set --hyperparameters subset.",
        ),
        (
            _names.OF_FILL,
            "'t' of '/a/mask.nc': noise_std and criterion='gcv' exclude each other. Leave noise_std out.",
            "'t' of '/a/mask.nc': --noise-std and --criterion gcv exclude each other. Leave --noise-std out.",
        ),
        (
            _names.OF_FILL,
            "kernels['lat'] must be a Kernel, received 'foo': kernel must be one of 'rbf', or a Kernel; received",
            "--kernel lat must be a Kernel, received 'foo': --kernel must be one of 'rbf'; received",
        ),
        (_names.OF_PREDICT, "X='a.nc' has no known format", "NEW a.nc has no known format"),
        *((_names.OF_FIT, text, text) for text in AS_THEY_ARE),
        ({}, "max_seconds must be", "max_seconds must be"),
    ],
)  # fmt: skip
def test_arguments_are_told_as_options(options, text, said):
    assert _names.as_options(text, options) == said


def test_memory_is_saved_by_what_a_command_has():
    error = MemoryError("3 GB")
    ends = {
        "lower --num-basis, or use --dtype float32.": _names.OF_FIT,
        "lower --batch-rows.": _names.OF_PREDICT,
        "give fewer rows, or a coarser grid.": _names.OF_MAP,
    }
    for end, options in ends.items():
        assert _errors.diagnosis(error, options) == (1, f"Out of memory (3 GB); {end}")


def test_commands_name_their_options(run, files, model, tmp_path):
    data, out = files / "train.parquet", tmp_path / "m.vastgp"
    target = ("--target", "temperature", "--out", out)
    fit = ("fit", data, *target)
    for given, said in (
        (("--method", "exact", "--max-seconds", 0), "Error: --max-seconds must be a positive number;"),
        (("--method", "exact", "--kernel", "foo"), "Error: --kernel must be one of 'rbf', "),
        (("--seed", 2**40), "Error: --seed must be an integer from 0 to 2**32 - 1; received"),
        (("--space", "depth,temperature"), "--space names 'temperature', which is no input: it is the target or"),
        (("--exclude", "depth", "--space", "depth,salinity"), "--space names 'depth', which is no input"),
        (("--space", "depth,salt"), "has no column 'salt', named by --space."),
    ):  # fmt: skip
        assert said in run(*fit, *given, code=2).err
    said = run("fit", "/dev/null", *target, "--method", "exact", code=2).err
    assert "DATA '/dev/null' has no known format" in said
    warned = run(*fit, "--method", "exact", "--kernel", "rbf", "--set", "max_iter=1").err
    assert "give more time (--max-seconds), or raise max_iter (now 1)" in warned
    said = run("report", model, "--out", tmp_path / "r.html", code=2).err
    assert "holds an ExactGPRegressor; reports are" in said
    assert _errors.with_article("QSGPRegressor") == "a QSGPRegressor"


def test_files_that_are_no_table_and_tables_without_rows(run, files, tmp_path):
    heads, grid = tmp_path / "heads.csv", tmp_path / "a.nc"
    heads.write_text("depth,temperature\n")
    grid.touch()
    rows, auto = files / "train.csv", tmp_path / "auto.vastgp"
    fit = ("--target", "temperature", "--set", "method=exact", "--set", "max_work=2000")
    run("fit", rows, *fit, "--out", auto, "--features", "depth")
    none = "The data hold no rows; give a file with at least one row below its names."
    said = run("fit", heads, *fit, "--out", tmp_path / "m.vastgp", code=2).err
    assert said == f"Error: {none}\n"
    assert none in run("evaluate", auto, heads, code=2).err
    assert "a.nc' has no known format" in run("evaluate", auto, grid, code=2).err


def test_a_map_of_too_many_points_is_refused_before_it_is_made():
    class Readings:
        space = type("Plane", (), {"sphere": False, "first": "y", "second": "x"})

    with pytest.raises(
        BadInput, match=r"--grid 1e-09 makes a map of 1,000,000,001 x 2,000,000,001"
    ):
        _map_grid.spanned(Readings(), 1e-9, (0.0, 0.0, 2.0, 1.0))


def test_no_output_takes_the_place_of_an_input(run, files, model, tmp_path):
    """Whatever --force says: `vastgp fit sales.csv --out sales.csv` is a slip."""
    data, grid = tmp_path / "train.csv", tmp_path / "a.nc"
    data.write_bytes((files / "train.csv").read_bytes())
    grid.write_bytes(b"a grid")
    kept = tmp_path / "m.vastgp"
    kept.write_bytes(model.read_bytes())
    (tmp_path / "link.csv").symlink_to(data)
    fit = ("fit", data, "--target", "temperature")
    before = {path: path.read_bytes() for path in (data, grid, kept)}
    for arguments, said in (
        ((*fit, "--out", data), "--out '{}/train.csv' is the data as well, which would be lost"),
        ((*fit, "--out", tmp_path / "link.csv"), "--out '{}/link.csv' is the data as well"),
        ((*fit, "--out", kept, "--checkpoint", kept), "is the file of --checkpoint as well"),
        (("predict", kept, data, "--out", data), "--out '{}/train.csv' is NEW as well"),
        (("predict", kept, data, "--out", data, "--processes", 2), "--out '{}/train.csv' is NEW as well"),
        (("fill", grid, "--out", grid), "--out '{}/a.nc' is the grid as well"),
        (("fill", grid, "--out", tmp_path / "b.nc", "--save-model", grid), "is the grid as well"),
        (("fill", grid, "--out", tmp_path / "b.nc", "--save-model", tmp_path / "b.nc"), "is the file of --out as"),
        (("map", data, "--out", grid, "--grid", grid), "--out '{}/a.nc' is that of --grid as well"),
        (("map", data, "--out", tmp_path / "b.nc", "--grid", 1, "--plot", data), "is the file of readings as well"),
    ):  # fmt: skip
        assert said.format(tmp_path) in run(*arguments, "--force", code=2).err
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_target_is_named_as_it_is(capsys):
    def told(name, words):
        return predict.Told(1, ["mean"], [(name, 1.0)], [], [(name, words, False)])

    predict._report(Path("p.csv"), [told("y", "y: no row lies outside.")])
    assert "\ny: no row lies" in capsys.readouterr().out
    predict._report(Path("p.csv"), [told(None, "no row lies outside.")])
    assert "\nNo row lies" in capsys.readouterr().out
