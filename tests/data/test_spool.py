"""Tables larger than memory: bounded memory, nothing left behind, and a full disk that says so."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from vastgp.data import as_rows, spool
from vastgp.data.spool import Spool

_ROWS = 20_000


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.normal(size=_ROWS) for name in ("a", "b", "y")})
    pq.write_table(table, tmp_path / "d.parquet")
    pa_csv.write_csv(table, tmp_path / "d.csv")
    np.savez(
        tmp_path / "d.npz", X=np.column_stack([table["a"], table["b"]]), y=table["y"].to_numpy()
    )
    return {"parquet": tmp_path / "d.parquet", "csv": tmp_path / "d.csv", "npz": tmp_path / "d.npz"}


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_nothing_is_left_behind(kind: str, files: dict[str, Path], temporary: Path) -> None:
    """Nor visible while it is used: the file has no name (where the system can do that)."""
    rows = as_rows(files[kind], "y", memory_budget=1000.0)
    assert not rows.in_memory
    if os.name == "posix":
        assert os.listdir(temporary) == []
    X = rows.take(np.arange(rows.n))[0]
    np.testing.assert_array_equal(X, as_rows(files[kind], "y").X)
    mapped = str(temporary)
    assert mapped in Path("/proc/self/maps").read_text()
    del rows
    assert mapped not in Path("/proc/self/maps").read_text()
    assert os.listdir(temporary) == []


def test_a_bad_value_half_way_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    x = np.zeros(100_000)
    x[70_000] = np.nan
    pq.write_table(pa.table({"x": x, "y": x * 0}), tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="at row 70000, column 'x'"):
        as_rows(tmp_path / "d.parquet", "y", memory_budget=1000.0)
    assert os.listdir(temporary) == []
    assert str(temporary) not in Path("/proc/self/maps").read_text()


def test_a_disk_without_room_is_known_before_the_copy(
    files: dict[str, Path], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: _Usage())
    with pytest.raises(
        OSError,
        match=rf"d\.parquet' takes {_ROWS * 24:,} bytes as a temporary memory map in .*temporary, which has "
        r"1,234 bytes free\. Set the environment variable TMPDIR .*Nothing was left behind",
    ) as caught:
        as_rows(files["parquet"], "y", memory_budget=1000.0)
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(temporary) == []


class _Usage:
    free = 1234


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_a_disk_that_fills_up(
    kind: str, files: dict[str, Path], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Full:
        """A file on a disk with 100 kB left."""

        def __init__(self) -> None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
            self.left = 100_000
            made.append(self.file)

        def write(self, data) -> int:
            self.left -= len(data)
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(data)

        def __getattr__(self, name: str):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_) -> None:
            self.file.close()

    for module in ("spool", "files"):
        monkeypatch.setattr(f"vastgp.data.{module}.temporary_file", Full)
    least = "more than " if kind == "csv" else ""
    with pytest.raises(
        OSError, match=rf"takes {least}[0-9,]+ bytes as a temporary memory map in .* TMPDIR "
    ) as caught:
        as_rows(files[kind], "y", memory_budget=1000.0)
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(temporary)
    assert made and all(file.closed for file in made)
    assert os.listdir(temporary) == []


def test_other_errors_of_the_disk_stay_what_they_are() -> None:
    error = OSError(errno.EIO, "bad sector")
    assert spool.disk_full_error(error, "x", 1) is error


_OPEN = """
import sys
from vastgp.data import as_rows
try:
    as_rows(sys.argv[1], "y", memory_budget=1000.0)
except OSError as error:
    print(error.errno, error)
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="needs unshare to mount a small file system"
)
@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_really_full_disk(kind: str, files: dict[str, Path], temporary: Path) -> None:
    """TMPDIR on a file system of 128 kB, in a mount namespace of its own."""
    script = (
        f'mount -t tmpfs -o size=128k tmpfs "{temporary}" || exit 77; TMPDIR="{temporary}" "$0" -c "$1" "$2" '
        f'&& ls -A "{temporary}" | wc -l'
    )
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            script,
            sys.executable,
            _OPEN,
            str(files[kind]),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare:" in done.stderr or done.returncode == 77:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    message, left = done.stdout.splitlines()
    assert (
        message.startswith(f"{errno.ENOSPC} ") and "Set the environment variable TMPDIR" in message
    )
    assert left.strip() == "0"


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the process's memory from /proc"
)
def test_memory_stays_bounded_and_sigkill_leaves_nothing(tmp_path: Path) -> None:
    """A table of 320 MB within a budget of 8 MB: less than 120 MB of memory above what the imports take.

    What is measured is mostly what Arrow's allocator keeps of two or three row groups of 16 MB: 60 to 81 MB.
    """
    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(3)] + [("y", pa.float64())])
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(tmp_path / "d.parquet", schema) as writer:
        part = pa.table([rng.normal(size=500_000) for _ in schema], schema=schema)
        for _ in range(20):
            writer.write_table(part)
    code = (
        "import sys, threading, time, re, pathlib\n"
        "from vastgp.data import as_rows, Standardizer\n"
        "import pyarrow.dataset, pyarrow.parquet\n"
        "def used(): return int(re.search(r'RssAnon:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        "before, peak = used(), [0]\n"
        "def watch():\n"
        "    while True: peak[0] = max(peak[0], used()); time.sleep(0.005)\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
        "rows = as_rows(sys.argv[1], 'y', memory_budget=8e6)\n"
        "scaling = Standardizer().fit(rows)\n"
        "print(rows.in_memory, rows.n, (peak[0] - before) // 1024, flush=True)\n"
        "time.sleep(60)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "d.parquet")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    in_memory, rows, peak = process.stdout.readline().split()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert (in_memory, rows) == ("False", "10000000")
    assert int(peak) < 120
    assert os.listdir(folder) == []


@pytest.mark.parametrize("num_rows", [None, 10])
@pytest.mark.parametrize("memory_budget", [1e9, 50.0, 0.0])
@pytest.mark.parametrize("with_target", [True, False])
def test_blocks_come_back_joined(
    num_rows: int | None, memory_budget: float, with_target: bool
) -> None:
    """In memory, on disk from the start, and over the limit half way."""
    X = np.arange(20, dtype=np.float32).reshape(10, 2)
    y = np.arange(10.0)
    with Spool(
        2, np.dtype(np.float32), with_target, num_rows=num_rows, memory_budget=memory_budget
    ) as store:
        for start, stop in ((0, 3), (3, 3), (3, 9), (9, 10)):
            store.append(X[start:stop], y[start:stop] if with_target else None)
        X_whole, y_whole = store.finish()
    np.testing.assert_array_equal(X_whole, X)
    assert X_whole.dtype == np.float32
    assert isinstance(X_whole, np.memmap) == (memory_budget < 1e9)
    if with_target:
        np.testing.assert_array_equal(y_whole, y)
    else:
        assert y_whole is None
