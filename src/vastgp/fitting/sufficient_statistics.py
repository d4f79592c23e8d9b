"""What a linear model needs of its data: sums over rows that add up whatever the parts were.

For features ``Phi`` and targets ``y``: ``n``, ``sum y``, ``y^T y``, ``Phi^T 1``, ``Phi^T y`` and ``Phi^T Phi``, all of
them blocks of one matrix of moments, ``[Phi y 1]^T [Phi y 1]``. Objectives that use nothing else cost the same whatever
n is (section 5.2 of the thesis).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis
from vastgp.bases.random_fourier import features_of_spectrum
from vastgp.data import Rows, Standardizer, processes, read_archive, write_archive
from vastgp.data.tiles import row_tiles
from vastgp.fitting.accumulate import (
    MomentBlocks,
    Moments,
    accumulate,
    add_to,
    added_everywhere,
)
from vastgp.fitting.progress import Progress

# Numbers in a block of features: 32 MB, large enough for the matrix product to run at its full rate.
_BLOCK_ENTRIES = 1 << 22
_LEAST_ROWS, _MOST_ROWS = 2048, processes.BLOCK_ROWS


@dataclass(frozen=True, eq=False)
class SufficientStatistics(MomentBlocks):
    """Sums over rows of features and targets. It never changes; ``+`` makes the one of both sets of rows.

    Sums are kept to twice the digits of float64 (what rounding took from each is kept beside it), so that sums of
    parts, whose order of additions is another one, are rounded to the same numbers as one pass over all rows. What
    must be the same is the arithmetic of the blocks: parts begin at multiples of `block_rows_of`, or are files that
    each were gathered whole.

    Parameters
    ----------
    num_rows : int
        ``n``.
    moments : ndarray of float64, shape (m + 2, m + 2)
        ``[Phi y 1]^T [Phi y 1]``, symmetric.
    rest : ndarray of float64, shape (m + 2, m + 2)
        What rounding took from it.
    y_mean, y_scale : float
        ``y`` is the target minus ``y_mean``, divided by ``y_scale``.
    features_id : str
        Says which features of which scaling these are; statistics of different ones are not added.
    """

    num_rows: int
    moments: np.ndarray
    rest: np.ndarray
    y_mean: float = 0.0
    y_scale: float = 1.0
    features_id: str = ""

    def __post_init__(self) -> None:
        for array in (self.moments, self.rest):
            array.flags.writeable = False

    # ------------------------------------------------------------ arithmetic

    @classmethod
    def of(
        cls,
        features: np.ndarray,
        y: np.ndarray,
        *,
        y_mean: float = 0.0,
        y_scale: float = 1.0,
        features_id: str = "",
    ) -> SufficientStatistics:
        """Return the sums of one block of rows: features of shape (n, m), targets (n,) in units of the record."""
        features, y = np.asarray(features), np.asarray(y, dtype=np.float64)
        if features.ndim != 2 or y.shape != features.shape[:1]:
            raise ValueError(
                f"features have shape {features.shape} and y {y.shape}. Expected (n, m) and (n,): one row of features "
                "for each target."
            )
        found = Moments(features.shape[1])
        found.add(features, y)
        return cls(len(y), found.moments, found.rest, y_mean, y_scale, features_id)

    @classmethod
    def empty(
        cls,
        num_basis: int,
        *,
        y_mean: float = 0.0,
        y_scale: float = 1.0,
        features_id: str = "",
    ) -> SufficientStatistics:
        """Return the sums of no rows."""
        size = (num_basis + 2, num_basis + 2)
        return cls(0, np.zeros(size), np.zeros(size), y_mean, y_scale, features_id)

    def __add__(self, other: object) -> SufficientStatistics:
        """Return the sums of both sets of rows.

        Raises
        ------
        ValueError
            When these are sums of other features, or of a target in other units.
        """
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        self._check_same_kind(other)
        moments, rest = self.moments.copy(), self.rest.copy()
        add_to(moments, rest, other.moments, other.rest)
        return replace(self, num_rows=self.num_rows + other.num_rows, moments=moments, rest=rest)

    def _check_same_kind(self, other: SufficientStatistics) -> None:
        if self.num_basis != other.num_basis or self.features_id != other.features_id:
            raise ValueError(
                f"Statistics of different features cannot be added: {self.num_basis} features "
                f"({self.features_id or 'no name'}) and {other.num_basis} ({other.features_id or 'no name'}). Gather "
                "all parts with the same basis and the same Standardizer."
            )
        if (self.y_mean, self.y_scale) != (other.y_mean, other.y_scale):
            raise ValueError(
                f"Statistics of a target in different units cannot be added: (y - {self.y_mean!r}) / {self.y_scale!r} "
                f"and (y - {other.y_mean!r}) / {other.y_scale!r}. Bring one to the units of the other with in_units, "
                "or gather all parts with the same Standardizer."
            )

    def in_units(self, y_mean: float, y_scale: float) -> SufficientStatistics:
        """Return the same sums for ``(target - y_mean) / y_scale``, in O(m) time.

        With ``y' = a y + b``: ``Phi^T y' = a Phi^T y + b Phi^T 1`` and likewise for the sums of targets. Digits are
        lost where the move is many standard deviations long.
        """
        if not (np.isfinite(y_mean) and np.isfinite(y_scale) and y_scale > 0.0):
            raise ValueError(
                f"y_mean={y_mean!r} and y_scale={y_scale!r}: expected a finite number and a positive one."
            )
        a, b = self.y_scale / y_scale, (self.y_mean - y_mean) / y_scale
        moments, rest = self.moments.copy(), self.rest.copy()
        for array in (moments, rest):
            # the row of y, then its column: the corner has both
            array[-2, :] = a * array[-2, :] + b * array[-1, :]
            array[:, -2] = a * array[:, -2] + b * array[:, -1]
        return replace(
            self, moments=moments, rest=rest, y_mean=float(y_mean), y_scale=float(y_scale)
        )

    # ------------------------------------------------------------ files

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return it as JSON-able data and arrays."""
        state = {
            "num_rows": self.num_rows,
            "y_mean": self.y_mean,
            "y_scale": self.y_scale,
            "features_id": self.features_id,
        }
        return state, {"moments": self.moments, "rest": self.rest}

    @classmethod
    def from_state(
        cls, state: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> SufficientStatistics:
        """Return what `to_state` described, to the last bit."""
        return cls(moments=arrays["moments"], rest=arrays["rest"], **state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file, whole or not at all."""
        state, arrays = self.to_state()
        write_archive(path, {"kind": "statistics", "statistics": state}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SufficientStatistics:
        """Return what `save` wrote, to the last bit.

        Raises
        ------
        ValueError
            When the file is damaged or holds something else.
        """
        header, arrays = read_archive(path)
        if header.get("kind") != "statistics":
            raise ValueError(
                f"{os.fspath(path)!r} is a vastgp {header.get('kind', 'file')}, not statistics. Give a file written by "
                "SufficientStatistics.save."
            )
        return cls.from_state(header["statistics"], arrays)

    def __repr__(self) -> str:
        return f"SufficientStatistics(num_rows={self.num_rows}, num_basis={self.num_basis})"


# ---------------------------------------------------------------- gathering


def gather_statistics(
    rows: Rows,
    standardizer: Standardizer,
    basis: Any,
    *,
    dtype: str = "float64",
    start: int = 0,
    stop: int | None = None,
    verbose: bool = False,
) -> SufficientStatistics:
    """Return the sums over rows that come block by block; at no time is there more than one block of features.

    Features are made in ``dtype``, the matrix products are in float64. Rounded features are those of another model that
    is as valid (random ones are even drawn anew), so predictions must use them in the same precision. A float32
    *product* belongs to no model: its error grows with ``n`` and is to be compared with the noise variance.

    Parameters
    ----------
    rows : Rows
        With targets.
    standardizer : Standardizer
        Scaling of inputs and targets, that of all parts: gather it first (it merges, too), then the statistics.
    basis : basis
        Anything that `feature_matrix` takes.
    dtype : {"float64", "float32"}, default "float64"
        Of the features.
    start, stop : int, optional
        Which rows: the part of one process, say. A part that starts at a multiple of `block_rows_of` is a part of the
        one pass over all rows to the last bit.
    verbose : bool, default False
        Show progress.

    Raises
    ------
    ValueError
        For rows without targets, or with NaN or infinity.
    """
    if rows.y is None:
        raise ValueError("rows have no targets. Give y to as_rows: the statistics need it.")
    stop = rows.n if stop is None else min(stop, rows.n)
    part = None if start == 0 and stop == rows.n else np.arange(start, stop)
    size = block_rows_of(basis.num_basis)
    done, total = 0, max(stop - start, 1)

    def note(count: int) -> None:
        nonlocal done
        done += count
        progress.update(done / total)

    with precision(dtype), Progress("statistics", verbose) as progress:
        own = as_dtype(basis, dtype)
        found = accumulate(
            partial(feature_matrix, own), row_tiles(rows, standardizer, size, dtype, part),
            basis.num_basis, on_tile=note,
        )  # fmt: skip
    return SufficientStatistics(
        found.num_rows,
        found.moments,
        found.rest,
        standardizer.y_mean,
        standardizer.y_scale,
        features_id(basis, standardizer, dtype),
    )


def merged_everywhere(own: SufficientStatistics) -> SufficientStatistics:
    """Return the sum of what several processes gathered, in the order of their numbers; of one it is its own."""
    moments, rest = added_everywhere(own.moments, own.rest)
    num_rows = int(processes.added(np.int64(own.num_rows)))
    return replace(own, num_rows=num_rows, moments=moments, rest=rest)


def block_rows_of(num_basis: int) -> int:
    """Return how many rows make a block: a function of the number of features alone."""
    rows = _BLOCK_ENTRIES // max(num_basis, 1)
    return int(np.clip(1 << (rows.bit_length() - 1), _LEAST_ROWS, _MOST_ROWS))


@eqx.filter_jit
def feature_matrix(basis: Any, X: Float[Any, "n d"]) -> Float[Array, "n m"]:
    """Return all features of some rows: random Fourier features pair by pair (cosine, sine), others in their order."""
    if isinstance(basis, RandomFourierBasis):
        pairs = jnp.arange(basis.num_pairs)
        spectrum = basis.spectrum(pairs, X.shape[1], X.dtype, consecutive=True)
        features = features_of_spectrum(X, spectrum)
        return jnp.swapaxes(features, 1, 2).reshape(X.shape[0], basis.num_basis)
    return basis.features(X, jnp.arange(basis.num_basis))


def features_id(basis: Any, standardizer: Standardizer, dtype: str = "float64") -> str:
    """Return a short name of features: all numbers and settings of the basis, precision, and the scaling of inputs."""
    digest = hashlib.blake2b(dtype.encode(), digest_size=8)
    leaves, structure = jax.tree.flatten(basis)
    digest.update(str(structure).encode())
    for leaf in (*leaves, standardizer.x_mean, standardizer.x_scale):
        array = np.asarray(leaf)
        digest.update(f"{array.shape}{array.dtype.kind}".encode())
        wide = array.astype(np.float64) if array.dtype.kind == "f" else array
        digest.update(np.ascontiguousarray(wide).tobytes())
    return digest.hexdigest()
