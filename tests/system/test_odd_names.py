"""Names as people have them in their tables, on the terminal: whole, whatever signs and letters they are made of."""

from __future__ import annotations

import pandas as pd
import pytest

from vastgp.auto.leaderboard import Entry, Leaderboard
from vastgp.cli import _console
from wave_table import FEATURES, fit_exact

# rich drops or refuses these in markup, and makes a picture of the last
ODD = ("depth [m]", "[red]", "p [/x]", "a\\[b]", ":cloud:")


def test_brackets_of_names_are_no_markup(capsys):
    rows = [[name, "1"] for name in ODD]
    _console.table(["input [bold]", "in units of [m]"], rows, title="of t [K]")
    _console.wrapped([(name, f"kind of {name}") for name in ODD])
    _console.facts([(name, f"kind of {name}") for name in ODD])
    _console.say("of t [K]")
    said = capsys.readouterr().out
    for name in ODD:
        assert said.count(name) == 5, name
    assert "input [bold]" in said and "in units of [m]" in said and said.count("of t [K]") == 2
    _console.message("Error", "no [red] here", style="red")
    assert capsys.readouterr().err == "Error: no [red] here\n"


@pytest.fixture(scope="module")
def bracketed(run, files, tmp_path_factory):
    """The table with units in the names, and a model of it."""
    folder = tmp_path_factory.mktemp("bracketed")
    new = dict(zip(FEATURES, ODD[:3], strict=True)) | {"temperature": "t [K]"}
    for part in ("train", "test"):
        table = pd.read_csv(files / f"{part}.csv").rename(columns=new)
        table.to_csv(folder / f"{part}.csv", index=False)
    fit_exact(run, folder / "train.csv", folder / "m.vastgp", "--target", "t [K]")
    return folder


def test_info_and_evaluate_show_names_with_units(run, bracketed):
    said = run("info", bracketed / "m.vastgp").out
    assert "  t [K]\n" in said
    for name in ODD[:3]:
        assert f"  {name} " in said
    said = run("evaluate", bracketed / "m.vastgp", bracketed / "test.csv").out
    assert "in units of t [K]" in said


def test_zero_has_no_sign():
    assert _console.number(-0.0) == "0" and _console.number(-0.5) == "-0.5"
    entry = Entry("exact", "own", 10, 1.0, nlpd=-0.0, nlpd_error=0.1, error=0.2)
    (row,) = [line for line in str(Leaderboard((entry,))).splitlines() if "exact" in line]
    assert " 0 " in row and "-0" not in row
