"""One process with several devices: rows or functions are dealt out to them, and the answer is that of one."""

from pathlib import Path

import numpy as np
import pytest

from several_processes import at_once

PROGRAM = Path(__file__).parent / "devices_program.py"
NOISE = 0.1


def one_and_four(group, folder):
    """What was found with one device and with four, whose predictions are compared."""
    files = {count: folder / f"{count}.npz" for count in (1, 4)}
    done = at_once(*((PROGRAM, count, group, file) for count, file in files.items()))
    assert [code for code, _ in done] == [0, 0], "\n".join(words for _, words in done)
    one, four = (dict(np.load(file)) for file in files.values())
    assert one["devices"] == 1 and four["devices"] == 4
    for name in (name for name in one if name.startswith("found")):
        # Adam divides slopes by their size, also where rounding is all of them
        adam = "SWSGP" in name or "Adam" in name
        close = 1e-3 * NOISE if "float32" in name else 1e-5 if adam else 1e-9
        np.testing.assert_allclose(four[name], one[name], rtol=close, atol=close, err_msg=name)
    for rows, _, part in (*four["seen"], *four["predicted"]):
        assert part == rows // 4
    return one, four


@pytest.mark.slow
def test_sums_over_rows_use_all_devices_and_are_those_of_one(tmp_path):
    _, four = one_and_four("sums", tmp_path)
    assert set(four["seen"][:, 1]) == {0, 1, 2, 3}
    assert len(four["predicted"])


@pytest.mark.slow
@pytest.mark.parametrize(("group", "programs"), [("steps", 10), ("functions", 6)])
def test_of_a_step_each_device_does_its_part(tmp_path, group, programs):
    """A quarter of what falls with its rows or functions: beside it is what all do, at inducing inputs and support."""
    one, four = one_and_four(group, tmp_path)
    assert list(one["names"]) == list(four["names"]) and len(one["names"]) == programs
    share = four["operations"] / one["operations"]
    assert np.all(share < 0.5) and share[0] < 0.4, dict(zip(one["names"], share, strict=True))
    if group == "steps":
        assert len(four["predicted"])
    if group == "functions":
        assert np.all(one["numbers"] >= 960)
        np.testing.assert_array_equal(4 * four["numbers"], one["numbers"])


@pytest.mark.slow
def test_vectors_and_preconditioners_lie_over_all_devices(tmp_path):
    """601 rows, filled up to 604: of every vector and of the preconditioner's rows each device holds a quarter."""
    one, four = one_and_four("rows", tmp_path)
    assert (
        len(four["names"]) == 9
    )  # of the five fits the one without a preconditioner has vectors alone
    np.testing.assert_array_equal(four["names"], one["names"])
    np.testing.assert_array_equal(4 * four["operations"], four["numbers"])
    np.testing.assert_array_equal(one["operations"], one["numbers"])
    assert np.all(four["operations"] < 0.26 * one["operations"])
