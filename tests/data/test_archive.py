"""The file format of models and checkpoints: exact, versioned, whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save_file

import vastgp.data.archive as archive
import vastgp.data.whole_files as whole_files
from vastgp.data import read_archive, write_archive

_OLD = ({"kind": "old", "n": 1}, {"a": np.arange(5.0)})


def _assert_same(path: Path, header: dict, arrays: dict[str, np.ndarray]) -> None:
    read_header, read_arrays = read_archive(path)
    assert read_header == header
    assert read_arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read_arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(read_arrays[name], array, strict=True)


# ---------------------------------------------------------------- what comes back

_DTYPES = st.sampled_from(
    ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
).map(np.dtype)


@settings(max_examples=30, deadline=None)
@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=8).filter(
            lambda name: name != "__metadata__" and name.isprintable()
        ),
        _DTYPES.flatmap(
            lambda dtype: hnp.arrays(
                dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
            )
        ),
        max_size=4,
    ),
    header=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
)
def test_everything_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray], header: object
) -> None:
    path = tmp_path_factory.mktemp("archive") / "model"
    write_archive(path, {"it": header}, arrays)
    _assert_same(path, {"it": header}, arrays)


def test_bits_of_special_values_survive(tmp_path: Path) -> None:
    values = np.array([np.nan, -0.0, np.inf, 5e-324, np.pi])
    write_archive(tmp_path / "m", {"x": [float("nan"), 0.1, -0.0, math.inf]}, {"values": values})
    header, arrays = read_archive(tmp_path / "m")
    assert arrays["values"].tobytes() == values.tobytes()
    assert (
        np.array(header["x"]).tobytes() == np.array([float("nan"), 0.1, -0.0, math.inf]).tobytes()
    )


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24.0).reshape(4, 6)[::2, 1::3],
        np.arange(6.0)[::-1],
        np.arange(5, dtype=">i4"),
        np.broadcast_to(np.float32(3), (2, 2)),
    ],
    ids=["transposed", "by column", "strided", "reversed", "big endian", "broadcast"],
)
def test_any_memory_layout(tmp_path: Path, array: np.ndarray) -> None:
    write_archive(tmp_path / "m", {}, {"array": array})
    np.testing.assert_array_equal(read_archive(tmp_path / "m")[1]["array"], array)


def test_numpy_numbers_are_numbers_in_the_header(tmp_path: Path) -> None:
    write_archive(tmp_path / "m", {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True)}, {})
    assert read_archive(tmp_path / "m")[0] == {"a": 0.5, "b": 3, "c": True}


def test_it_is_a_plain_safetensors_file_with_a_json_header(tmp_path: Path) -> None:
    write_archive(tmp_path / "m", *_OLD)
    with safe_open(tmp_path / "m", framework="numpy") as file:
        document = json.loads(file.metadata()["vastgp"])
        np.testing.assert_array_equal(file.get_tensor("a"), _OLD[1]["a"])
    assert document == {"version": 1, "header": _OLD[0]}


@pytest.mark.parametrize(
    "bad", [np.array(["text"]), np.array([None]), np.array([1j]), np.array([1], "M8[s]")]
)
def test_other_types_are_refused_before_anything_is_written(
    tmp_path: Path, bad: np.ndarray
) -> None:
    write_archive(tmp_path / "m", *_OLD)
    with pytest.raises(
        TypeError, match=r"arrays\['bad'\] has dtype .* Expected floating point numbers"
    ):
        write_archive(tmp_path / "m", {}, {"bad": bad})
    with pytest.raises(TypeError, match=r"The header holds ndarray .* Put arrays among the arrays"):
        write_archive(tmp_path / "m", {"x": np.ones(2)}, {})
    _assert_same(tmp_path / "m", *_OLD)
    assert os.listdir(tmp_path) == ["m"]


# ---------------------------------------------------------------- damaged and foreign files


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "model.vastgp"
    write_archive(
        path, {"kind": "model", "n": 7}, {"w": np.arange(4.0), "i": np.array([1, 2], np.uint32)}
    )
    return path


def test_a_file_cut_off_anywhere_is_an_error(small: Path) -> None:
    content = small.read_bytes()
    for length in range(len(content)):
        small.write_bytes(content[:length])
        with pytest.raises(
            ValueError, match=r"model\.vastgp is not a complete file of vastgp: .*Copy it again"
        ):
            read_archive(small)


def test_a_file_with_something_added_is_an_error(small: Path) -> None:
    small.write_bytes(small.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="is not a complete file"):
        read_archive(small)


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_a_changed_byte_anywhere_is_an_error_or_changes_nothing(small: Path, mask: int) -> None:
    """Only the blanks that fill up safetensors' own header may change without a loss."""
    content = small.read_bytes()
    expected = read_archive(small)
    harmless, messages = 0, []
    for i in range(len(content)):
        small.write_bytes(content[:i] + bytes([content[i] ^ mask]) + content[i + 1 :])
        try:
            header, arrays = read_archive(small)
        except ValueError as error:
            messages.append(str(error))
            continue
        harmless += 1
        assert header == expected[0]
        for name, array in expected[1].items():
            np.testing.assert_array_equal(arrays[name], array, strict=True)
    assert harmless <= 16
    known = ("is not a complete file of vastgp", "written by a newer vastgp", "not one of vastgp")
    assert all(any(words in message for words in known) for message in messages)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"not a model at all, just text", "it is no complete safetensors file"),
        (pickle.dumps({"a": 1}), "it is no complete safetensors file"),
        (b"\xff" * 100, "it is no complete safetensors file"),
        (b"PK\x03\x04" + bytes(500), "it is no complete safetensors file"),
    ],
    ids=["empty", "text", "pickle", "ones", "zip"],
)
def test_foreign_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_archive(tmp_path / "x")


def test_safetensors_of_another_program(tmp_path: Path) -> None:
    for metadata in (None, {"format": "pt"}):
        save_file({"a": np.ones(3)}, tmp_path / "x", metadata=metadata)
        with pytest.raises(ValueError, match="a safetensors file, but not one of vastgp"):
            read_archive(tmp_path / "x")


@pytest.mark.parametrize(
    "text",
    [
        *("not json", "[]", "{}", '{"version": "1", "header": {}}', '{"version": 0, "header": {}}'),
        *("3", '{"version": 1, "header": []}', '{"version": 1, "header": ' + "[" * 200_000),
    ],
)
def test_a_header_that_is_not_ours(tmp_path: Path, text: str) -> None:
    save_file({"a": np.ones(3)}, tmp_path / "x", metadata={"vastgp": text})
    with pytest.raises(
        ValueError, match=r"is not a complete file of vastgp: its (header|format version)"
    ):
        read_archive(tmp_path / "x")


def test_a_newer_format_says_to_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FORMAT_VERSION", 3)
    write_archive(tmp_path / "m", *_OLD)
    monkeypatch.undo()
    with pytest.raises(
        ValueError,
        match=r"format version 3, and this vastgp reads versions up to 1.*pip install --upgrade vastgp",
    ):
        read_archive(tmp_path / "m")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file: check the name"):
        read_archive(tmp_path / "m")
    with pytest.raises(FileNotFoundError, match="this is a folder"):
        read_archive(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"the folder .*nowhere does not exist: make it first"
    ):
        write_archive(tmp_path / "nowhere" / "m", *_OLD)
    with pytest.raises(IsADirectoryError, match="give the name of a file"):
        write_archive(tmp_path, *_OLD)


# ---------------------------------------------------------------- whole or not at all


@pytest.mark.parametrize("where", ["_write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_while_writing_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    path = tmp_path / "m"
    write_archive(path, *_OLD)

    def fail(*arguments, **options):
        if where == "_write":
            arguments[0].write_bytes(b"half of it")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(archive if where == "_write" else os, where, fail)
    needed = (
        r"takes [0-9,]+ bytes beside the old file, which is intact"
        if number == errno.ENOSPC
        else "error"
    )
    with pytest.raises(OSError, match=needed) as caught:
        write_archive(path, {"new": 1}, {"b": np.ones(1000)})
    monkeypatch.undo()
    assert caught.value.errno == number
    _assert_same(path, *_OLD)
    assert os.listdir(tmp_path) == ["m"]


def _run(code: str, *arguments: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


_WRITE_TOO_MUCH = """
import sys, numpy as np
from vastgp.data import write_archive
try:
    write_archive(sys.argv[1], {"new": 1}, {"b": np.ones(100_000)})
except OSError as error:
    print(error.errno, error)
"""


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The system's own refusal in the middle of the file, not a stand-in for it."""
    resource = pytest.importorskip("resource", reason="no limits on the size of files here")
    path = tmp_path / "m"
    write_archive(path, *_OLD)
    limit = 64 << 10
    done = _run(
        _WRITE_TOO_MUCH,
        path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.stdout.startswith(f"{errno.EFBIG} "), done.stderr
    assert "which is intact" in done.stdout
    _assert_same(path, *_OLD)
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="needs unshare to mount a small file system"
)
def test_a_full_disk(tmp_path: Path) -> None:
    """A file system of 128 kB with the old file on it, in a mount namespace of its own."""
    code = (
        "from pathlib import Path; import sys, os, numpy as np\n"
        "from vastgp.data import read_archive, write_archive\n"
        "path = Path(sys.argv[1]); write_archive(path, {'old': 1}, {'a': np.arange(5.0)})\n"
        + _WRITE_TOO_MUCH
        + "assert read_archive(path)[0] == {'old': 1}\nprint(os.listdir(path.parent))\n"
    )
    script = f'mount -t tmpfs -o size=128k tmpfs "{tmp_path}" || exit 77; exec "$0" -c "$1" "{tmp_path}/m"'
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script, sys.executable, code],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare:" in done.stderr or done.returncode == 77:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    message, left = done.stdout.splitlines()
    assert (
        message.startswith(f"{errno.ENOSPC} ")
        and "takes 80" in message
        and "Make room in" in message
    )
    assert left == "['m']"


_WRITE_FOREVER = """
import sys, numpy as np
from vastgp.data import write_archive
i = 0
while True:
    i += 1
    write_archive(sys.argv[1], {"i": i}, {"a": np.full(2_000_000, float(i))})
    if i == 1: print("ready", flush=True)
"""


def test_killed_while_writing(tmp_path: Path) -> None:
    """SIGKILL while the temporary file grows: what is there is one of the versions, whole."""
    path = tmp_path / "m"
    mid_write = 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITE_FOREVER, str(path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        partial: list[Path] = []
        deadline = time.monotonic() + 20
        while not partial and time.monotonic() < deadline:
            partial = [other for other in tmp_path.iterdir() if other.name.endswith(".tmp")]
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        header, arrays = read_archive(path)
        assert arrays["a"].shape == (2_000_000,) and np.all(arrays["a"] == header["i"])
        mid_write += any(other.name.endswith(".tmp") for other in tmp_path.iterdir())
    assert mid_write > 0  # otherwise nothing was tested
    # The next writer clears up after the dead ones, and there is nothing that it does not know.
    assert all(re.fullmatch(r"m|\.m\..*\.tmp", name) for name in os.listdir(tmp_path))
    write_archive(path, *_OLD)
    assert os.listdir(tmp_path) == ["m"]
    _assert_same(path, *_OLD)


def test_temporary_files_of_the_living_and_of_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "m"
    alive = tmp_path / f".m.{whole_files._host()}.{os.getpid()}.0123abcd.tmp"
    elsewhere = tmp_path / ".m.another-host.999999.0123abcd.tmp"
    other_file = tmp_path / f".m2.{whole_files._host()}.999999.0123abcd.tmp"
    for other in (alive, elsewhere, other_file):
        other.write_bytes(b"")
    write_archive(path, *_OLD)
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["m", alive.name, elsewhere.name, other_file.name]
    )


def test_a_new_file_has_the_mode_of_the_old_one_or_that_of_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "m"
    before = os.umask(0o027)
    try:
        write_archive(path, *_OLD)
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o604)
        write_archive(path, *_OLD)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o604


def test_links_are_written_through_and_pipes_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "m", tmp_path / "link"
    link.symlink_to(target)
    for header in ({"n": 1}, {"n": 2}):  # a link to nothing yet, then to a file
        write_archive(link, header, {})
        assert link.is_symlink() and read_archive(target)[0] == header
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe' is a pipe or a device.* Give the name of a file"):
        write_archive(tmp_path / "pipe", *_OLD)
    monkeypatch.setenv("HOME", str(tmp_path))
    write_archive("~/at_home", *_OLD)
    _assert_same(tmp_path / "at_home", *_OLD)
    assert read_archive("~/at_home")[0] == _OLD[0]
    assert sorted(os.listdir(tmp_path)) == ["at_home", "elsewhere", "link", "pipe"]
