"""Physicochemical properties of protein tertiary structure (UCI), packaged under CC BY 4.0."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vastgp._arguments import is_number

_FEATURES = (
    "total_surface_area",
    "nonpolar_exposed_area",
    "fraction_exposed_nonpolar_residue",
    "fraction_exposed_nonpolar_part",
    "mass_weighted_exposed_area",
    "deviation_from_standard_area",
    "euclidean_distance",
    "secondary_structure_penalty",
    "spatial_distribution_constraints",
)
_SPLITS = 10


@dataclass(frozen=True)
class RegressionData:
    """One regression problem, split into training and test rows.

    Attributes
    ----------
    X_train, X_test : ndarray, shape (n, d), float32
        Inputs in their own units, neither scaled nor standardised.
    y_train, y_test : ndarray, shape (n,), float32
        Targets.
    feature_names : tuple of str
        The d columns of the inputs.
    target_name : str
        What is predicted.
    description : str
        Source, authors, licence and what was changed.
    """

    X_train: NDArray[np.float32]
    y_train: NDArray[np.float32]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.float32]
    feature_names: tuple[str, ...]
    target_name: str
    description: str


def load_protein(*, split: Any = 0) -> RegressionData:
    """Load the protein data: how far a predicted structure is from the true one, from its shape.

    45,730 decoys of proteins; nine physicochemical properties; the target is ``log(1 + RMSD)``, with
    the distance to the native structure in angstrom, minus its mean over all rows (1.8912).

    Parameters
    ----------
    split : int, default 0
        Which of ten published splits into 41,157 training and 4,573 test rows, 0 to 9; every row is
        a test row once. In split 0 the inputs of 312 test rows also occur in the training rows (1,758
        rows of the source repeat the inputs of an earlier one).

    Returns
    -------
    RegressionData

    Raises
    ------
    ValueError
        If `split` is not one of 0, ..., 9.

    References
    ----------
    Rana (2013), Physicochemical Properties of Protein Tertiary Structure, UCI Machine Learning
    Repository, https://doi.org/10.24432/C5QW3H, CC BY 4.0. The whole note is in ``description``.

    Examples
    --------
    >>> from vastgp.datasets import load_protein
    >>> data = load_protein()
    >>> data.X_train.shape, data.X_test.shape
    ((41157, 9), (4573, 9))
    """
    if not is_number(split, whole=True) or not 0 <= split < _SPLITS:
        raise ValueError(f"split: expected one of 0, ..., {_SPLITS - 1}, got {split!r}")
    folder = files("vastgp.datasets")
    with (folder / "protein.npz").open("rb") as file, np.load(file) as arrays:
        X, y = arrays["X"], arrays["y"]
        masks = np.unpackbits(arrays["test_mask_packed"], axis=1, count=y.size).astype(bool)
    test = masks[split]
    return RegressionData(
        X_train=X[~test],
        y_train=y[~test],
        X_test=X[test],
        y_test=y[test],
        feature_names=_FEATURES,
        target_name="log_rmsd",
        description=(folder / "protein.md").read_text(encoding="utf-8"),
    )
