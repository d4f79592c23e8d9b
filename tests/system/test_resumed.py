"""A fit in several processes, one of which is killed: the others end and say which, and any number goes on."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from several_processes import at_once, free_port

PROGRAM = Path(__file__).parent / "resumed_program.py"
KILLED_BEFORE = 8


def fit(data, checkpoint, out, kill=0) -> list[tuple[int, str]]:
    """Fit in two processes."""
    port, given = free_port(), (data, checkpoint, out, kill)
    commands = [(PROGRAM, number, 2, port, *given) for number in range(2)]
    return at_once(*commands, seconds=100)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = tmp_path_factory.mktemp("resumed") / "rows.npz"
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(300, 2))
    np.savez(data, X=X, y=np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=300))
    return data


@pytest.mark.slow
@pytest.mark.little_work  # as the others are compiled
def test_a_killed_process_ends_the_others_and_any_number_goes_on(met, data, tmp_path):
    alone = runpy.run_path(str(PROGRAM))["fit"]
    checkpoint, out = tmp_path / "fit", tmp_path / "found.npz"
    whole, products = alone(data, tmp_path / "other")
    assert products > KILLED_BEFORE + 5

    (code, said), (killed, _) = fit(data, checkpoint, out, KILLED_BEFORE)
    # JAX's own end comes a hundred seconds after, by an abort
    assert killed == -9 and code == 1
    assert "ProcessLostError: process 1 of 2 (number " in said
    assert "with checkpoint= it goes on from what was saved last" in said
    assert checkpoint.exists() and not out.exists()

    copied = shutil.copy(checkpoint, tmp_path / "copied")
    assert [code for code, _ in fit(data, checkpoint, out)] == [0, 0]
    again = np.load(out)
    for found, made in ((again["found"], again["products"]), alone(data, copied)):
        np.testing.assert_allclose(found, whole, rtol=1e-9)
        # what was saved before the kill is not done again
        assert 0 < made < products
    assert not checkpoint.exists() and not copied.exists()
