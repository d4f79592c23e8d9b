"""The packaged data are the published ones, properly split, and carry their licence."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from vastgp.datasets import load_protein


@pytest.fixture(scope="module")
def protein():
    return load_protein()


def test_every_row_is_a_test_row_of_exactly_one_split(protein):
    everything = np.sort(np.concatenate([protein.y_train, protein.y_test]))
    tests = [load_protein(split=split) for split in range(10)]
    assert all(data.X_train.shape == (41157, 9) for data in tests)
    assert all(data.X_test.shape == (4573, 9) for data in tests)
    np.testing.assert_array_equal(np.sort(np.concatenate([d.y_test for d in tests])), everything)


def test_the_numbers_are_those_that_the_note_describes(protein):
    X = np.concatenate([protein.X_train, protein.X_test]).astype(np.float64)
    y = np.concatenate([protein.y_train, protein.y_test]).astype(np.float64)
    assert len(X) - len(np.unique(X, axis=0)) == 1758
    # Centred columns, and a penalty (F8) that counts in whole steps.
    assert np.all(np.abs(X.mean(0)) < 1e-4 * X.std(0))
    penalty = X[:, 7] - X[:, 7].min()
    np.testing.assert_allclose(penalty, np.round(penalty), atol=6e-3)  # five significant digits
    # log(1 + RMSD): back in angstrom the values are multiples of 0.001 between 0 and 21.
    angstrom = np.expm1(y - y.min())
    assert angstrom.max() == pytest.approx(20.999, abs=1e-3)
    small = 1000.0 * angstrom[angstrom < 3.0]
    assert np.abs(small - np.round(small)).mean() < 0.05  # 0.25 for numbers off that grid


def test_repeated_inputs_of_the_first_split_are_as_documented(protein):
    known = {row.tobytes() for row in protein.X_train}
    assert sum(row.tobytes() in known for row in protein.X_test) == 312


def test_the_names_fit_and_the_licence_travels_with_the_file(protein):
    assert len(protein.feature_names) == 9 == len(set(protein.feature_names))
    for phrase in (
        "CC BY 4.0",
        "Prashant Singh Rana",
        "10.24432/C5QW3H",
        "What was changed",
        "MIT License",
    ):
        assert phrase in protein.description
    for name in (*protein.feature_names, protein.target_name):
        assert f"`{name}`" in protein.description
    assert len((files("vastgp.datasets") / "protein.npz").read_bytes()) < 3_000_000


@pytest.mark.parametrize("split", [-1, 10, True, "1", 1.5, None])
def test_a_split_that_does_not_exist_is_refused(split):
    with pytest.raises(ValueError, match=rf"split: expected one of 0, \.\.\., 9, got {split!r}"):
        load_protein(split=split)
