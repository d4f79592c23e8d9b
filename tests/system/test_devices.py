"""One process with several devices: rows are dealt out to them, and the answer is that of one."""

from pathlib import Path

import numpy as np
import pytest

from several_processes import at_once

PROGRAM = Path(__file__).parent / "devices_program.py"


@pytest.mark.slow
def test_sums_over_rows_use_all_devices_and_are_those_of_one(tmp_path):
    files = {count: tmp_path / f"{count}.npz" for count in (1, 4)}
    done = at_once(*((PROGRAM, count, file) for count, file in files.items()))
    assert [code for code, _ in done] == [0, 0], "\n".join(words for _, words in done)
    one, four = (dict(np.load(file)) for file in files.values())
    assert one["devices"] == 1 and four["devices"] == 4
    for rows, _, part in four["seen"]:
        assert part == rows // 4
    assert set(four["seen"][:, 1]) == {0, 1, 2, 3}
    np.testing.assert_allclose(four["found"], one["found"], rtol=1e-9)
