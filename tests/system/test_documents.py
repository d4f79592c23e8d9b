"""What the documents tell people to run, runs."""

from __future__ import annotations

import importlib
import multiprocessing
import re
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import vastgp

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "examples").glob("plot_*.py"))


def hurried(source: str) -> str:
    """A program that searches for half as long: what is found in all of it is shown where the documents are built."""
    return re.sub(r"max_seconds=(\d+)", lambda of: f"max_seconds={int(of[1]) // 2}", source)


# What the interpreter executes: names of this module it cannot import.
IN_FOLDER = """
import contextlib, os
os.chdir(folder)
with open("printed.txt", "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
    exec(source, {"__name__": "__main__"})
"""


@pytest.fixture(scope="module")
def run():
    """One interpreter that runs programs one after the other, each in a folder of its own; they return what they print.

    The tutorials run so where the documents are built.
    """
    spawned, errors = multiprocessing.get_context("spawn"), ("error", "", UserWarning)

    def printed(source: str, folder: Path) -> str:
        pool.submit(exec, IN_FOLDER, {"source": source, "folder": folder}).result()
        return (folder / "printed.txt").read_text(encoding="utf-8")

    with ProcessPoolExecutor(
        1, spawned, initializer=warnings.filterwarnings, initargs=errors
    ) as pool:
        yield printed


def blocks_of_the_readme() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def fewer_rows() -> list[str]:
    return [block.replace("3000", "600").replace("2500", "500") for block in blocks_of_the_readme()]


HEAD = "import numpy as np\nimport vastgp\nrng = np.random.default_rng(0)\n"


def test_the_table_of_the_readme_is_learned(run, tmp_path):
    table, *_ = blocks_of_the_readme()
    check = """
assert model.score(sales) > 0.85
low, high = model.predict_interval(sales, 0.9).T
assert 0.85 < np.mean((low <= price) & (price <= high)) < 0.97
again = vastgp.load("prices.vastgp")
np.testing.assert_array_equal(again.predict(new), model.predict(new))
"""
    out = run(hurried(table) + check, tmp_path)
    assert "city" in out
    # the winner's line; which method that is depends on how many the machine has time for
    assert re.search(r"^\* +(exact|nearest)", out, re.MULTILINE), out


def test_the_quick_start_of_the_readme_runs(run, tmp_path):
    _, quick_start, from_files, *_ = fewer_rows()
    # The second block needs the files that it names: a table and new rows without its target.
    files = """
import pandas as pd
table = pd.DataFrame(X[:400], columns=["east", "north"]).assign(temperature=y[:400])
table.to_parquet("measurements.parquet")
table.drop(columns="temperature").head(7).to_parquet("new.parquet")
assert 0.9 < vastgp.metrics.coverage(y[500:], *model_predictions) < 0.99
assert vastgp.metrics.rmse(y[500:], model_predictions[0]) < 0.13
again = vastgp.load("model.vastgp").predict(X[500:], return_std=True)
np.testing.assert_array_equal(again, model_predictions)
"""
    out = run(
        HEAD
        + quick_start
        + "\nmodel_predictions = (mean, std)\n"
        + files
        + from_files
        + "\nassert std.shape == (7,)\n",
        tmp_path,
    )
    assert out.rstrip().endswith("True"), "the quick start did not converge"


def test_the_other_likelihoods_of_the_readme_run(run, tmp_path):
    _, quick_start, _, others, *_ = fewer_rows()
    check = """
assert classifier.score(X[500:], label[500:]) > 0.85
assert classifier.classes_.tolist() == ["dry", "wet"]
"""
    data, *_ = quick_start.partition("\n\n")
    run(HEAD + data + "\n" + others + check, tmp_path)


def test_the_grid_of_the_readme_is_filled_and_its_stations_mapped(run, tmp_path):
    *_, grid, stations = blocks_of_the_readme()
    check = "\nassert float(np.sqrt(((filled['mean'] - field) ** 2).mean())) < 0.06\n"
    of_map = """
coefficient, error = stations.trend_["height"]
assert abs(coefficient + 0.006) < 4 * error < 0.001
truth = 30 - 0.4 * atlas["lat"] - 0.006 * 300
assert float(np.abs(atlas["mean"] - truth).max()) < 0.5
"""
    run(HEAD + "import pyarrow as pa\n" + grid + check + hurried(stations) + of_map, tmp_path)


def test_there_are_tutorials():
    assert TUTORIALS


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path, tmp_path, run):
    run(hurried(path.read_text()), tmp_path)
    run("import matplotlib.pyplot as plt\nplt.close('all')", tmp_path)


def test_the_readme_names_every_estimator_and_no_other():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| [^|]+ \|$", text, re.MULTILINE)
    named = {name for cell in rows for name in re.findall(r"`(\w+)", cell)}
    assert named == {
        name for name in vastgp.__all__ if name.endswith(("Regressor", "Classifier", "GP"))
    }


@pytest.mark.parametrize(
    "name", ["plots", "metrics", "kernels", "likelihoods", "datasets", "options", "auto"]
)
def test_the_reference_names_all_that_a_module_offers(name):
    listed = re.findall(r"^ {3}(?:\w+\.)?(\w+)$", (ROOT / "docs/reference.md").read_text(), re.M)
    offered = importlib.import_module(f"vastgp.{name}").__all__
    assert sorted(set(offered) - set(listed)) == []


def test_the_changelog_and_the_reference_name_every_estimator():
    for document in ("CHANGELOG.md", "docs/reference.md"):
        text = (ROOT / document).read_text()
        missing = [
            name
            for name in vastgp.__all__
            if name.endswith(("Regressor", "GP")) and name not in text
        ]
        assert not missing, f"{document} does not mention {missing}"
