"""A fit in several processes, one of which is killed: the others end and say which, and any number goes on."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from several_processes import at_once, free_port

PROGRAM = Path(__file__).parent / "resumed_program.py"
KILLED_BEFORE = 8


def fit(data, checkpoint, out, count, kill=0) -> list[tuple[int, str]]:
    port, given = free_port(), (data, checkpoint, out, kill)
    commands = [(PROGRAM, number, count, port, *given) for number in range(count)]
    return at_once(*commands, seconds=100)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = tmp_path_factory.mktemp("resumed") / "rows.npz"
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(300, 2))
    np.savez(data, X=X, y=np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=300))
    return data


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_any_number_goes_on(met, data, tmp_path):
    whole, checkpoint = tmp_path / "whole.npz", tmp_path / "fit"
    assert fit(data, tmp_path / "other", whole, 1)[0][0] == 0
    whole = np.load(whole)
    assert whole["products"] > KILLED_BEFORE + 5

    (code, said), (killed, _) = fit(data, checkpoint, tmp_path / "none", 2, KILLED_BEFORE)
    # JAX's own end comes a hundred seconds after, by an abort
    assert killed == -9 and code == 1
    assert "ProcessLostError: process 1 of 2 (number " in said
    assert "with checkpoint= it goes on from what was saved last" in said
    assert checkpoint.exists() and not (tmp_path / "none.npz").exists()

    for count in (1, 2):
        state, out = tmp_path / f"fit-{count}", tmp_path / f"again-{count}.npz"
        shutil.copy(checkpoint, state)
        done = fit(data, state, out, count)
        assert [code for code, _ in done] == [0] * count, done
        again = np.load(out)
        np.testing.assert_allclose(again["found"], whole["found"], rtol=1e-9)
        # what was saved before the kill is not done again
        assert 0 < again["products"] < whole["products"]
        assert not state.exists()
