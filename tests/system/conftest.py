"""A small table in every format, and models that the program itself fitted to it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from several_processes import at_once, free_port
from vastgp.cli import app
from wave_table import as_table, fit_exact

# Two processes of JAX alone
MEETING = """
import sys
import jax
from jax.experimental import multihost_utils
jax.distributed.initialize(
    f"127.0.0.1:{sys.argv[2]}", num_processes=2, process_id=int(sys.argv[1]), initialization_timeout=60
)
assert multihost_utils.process_allgather(jax.process_index()).tolist() == [0, 1]
"""


@pytest.fixture(scope="session")
def run():
    """Run `vastgp ARGUMENTS` in this process: exit code, standard output and standard error."""
    runner = CliRunner()

    def invoke(*arguments, code=0):
        result = runner.invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return SimpleNamespace(out=result.stdout, err=result.stderr, code=result.exit_code)

    return invoke


@pytest.fixture(scope="session")
def wave():
    """Rows of a smooth function of two of three features, the units far from standard."""
    rng = np.random.default_rng(20)
    X = rng.uniform(-1.0, 1.0, (360, 3)) * [500.0, 3.0, 0.02] + [2000.0, 0.0, 35.0]
    signal = np.sin((X[:, 0] - 2000.0) / 150.0) + X[:, 1] / 3.0
    return X, 40.0 + 8.0 * (signal + 0.1 * rng.standard_normal(360))


@pytest.fixture(scope="session")
def files(wave, tmp_path_factory) -> Path:
    """A folder with train (240 rows), test (120 rows) and new (test without target)."""
    folder = tmp_path_factory.mktemp("wave")
    X, y = wave
    for name, part in (("train", slice(0, 240)), ("test", slice(240, 360))):
        table = as_table(X[part], y[part])
        pa.parquet.write_table(table, folder / f"{name}.parquet")
        pa.csv.write_csv(table, folder / f"{name}.csv")
        np.savez(folder / f"{name}.npz", X=X[part], y=y[part])
    pa.parquet.write_table(as_table(X[240:]), folder / "new.parquet")
    (folder / "parts").mkdir()
    pa.parquet.write_table(as_table(X[:100], y[:100]), folder / "parts" / "0.parquet")
    pa.parquet.write_table(as_table(X[100:240], y[100:240]), folder / "parts" / "1.parquet")
    return folder


@pytest.fixture(scope="session")
def model(run, files) -> Path:
    """An exact model of the table, fitted by the program."""
    fit_exact(run, files / "train.parquet", files / "model.vastgp", "--target", "temperature")
    return files / "model.vastgp"


@pytest.fixture(scope="session")
def qsgp_model(run, files) -> Path:
    """A model of the table by random features."""
    run(
        "fit", files / "train.parquet", "--target", "temperature", "--method", "qsgp", "--kernel", "rbf",
        "--num-basis", 256, "--seed", 3, "--out", files / "qsgp.vastgp",
    )  # fmt: skip
    return files / "qsgp.vastgp"


@pytest.fixture(scope="session")
def met():
    """Skip where processes of JAX cannot reach each other, which is no matter of vastgp's."""
    port = free_port()
    done = at_once(*(("-c", MEETING, number, port) for number in range(2)), seconds=90)
    if any(code for code, _ in done):
        pytest.skip(f"processes of JAX do not reach each other here: {done[0][1][-300:]}")
