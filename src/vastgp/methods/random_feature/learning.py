"""Slopes of the log evidence by random Fourier features, as they are or with a random term that debiases them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from vastgp._precision import as_dtype
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data.tiles import Tile, array_tiles, tile_size
from vastgp.fitting.adam_ascent import Estimate
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.truncation import SingleTerm
from vastgp.methods.random_feature.evidence import (
    evidence_of_first,
    feature_sums,
    slopes_of_parts,
)

# Entries of one tile of features.
_TILE_ENTRIES = 2**23
_TRUNCATIONS, _FREQUENCIES = 31, 32


def tiles_of(
    X: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n *k"], num_basis: int
) -> Callable[[], Iterator[Tile]]:
    """Return what gives the tiles of standardised rows: smaller ones where there are more basis functions."""
    most = max(64, 1 << ((_TILE_ENTRIES // num_basis).bit_length() - 1))
    return partial(array_tiles, X, y, tile_size(len(y), most))


class FeatureEvidence:
    """Estimates for `climb_evidence` with random features; without debiasing also exact slopes, see `objective`.

    Parameters
    ----------
    X, y : ndarray
        Standardised rows, in the precision of the features.
    num_basis : int
        Features of the model, and of the last term with features.
    debiased : bool
        False: the evidence of the model with the frequencies of ``seed``. True: fresh frequencies in every step, the
        evidence with ``first_basis`` features and one random difference, divided by its probability.
    first_basis, basis_step : int
        Where the telescoping sum begins, and by how many features its terms differ.
    exact : bool
        Whether the last term leads to the exact evidence, rather than to that of ``num_basis`` features.
    seed : int
    frequencies : str
    """

    def __init__(
        self,
        X: Float[np.ndarray, "n d"],
        y: Float[np.ndarray, "n *k"],
        *,
        num_basis: int,
        debiased: bool,
        first_basis: int,
        basis_step: int,
        exact: bool,
        seed: int,
        frequencies: str = "plain",
    ) -> None:
        self.X, self.y, self.seed, self.frequencies = X, y, seed, frequencies
        self.num_basis, self.debiased = num_basis, debiased
        self.first = min(first_basis, num_basis)
        ends = [*range(self.first + basis_step, num_basis, basis_step)]
        ends += [num_basis] if num_basis > self.first else []
        # what stands for the exact evidence has no size; the next one gives it its probability
        self.exact = ExactEvidence(X, y) if exact and debiased else None
        self.law = (
            SingleTerm((*ends, num_basis + basis_step)) if self.exact else SingleTerm((*ends,))
        )

    def __call__(self, params: Any, anchor: Any, step: int, carried: Any = ()) -> Estimate:
        """Return the estimate at ``(kernel, likelihood)``."""
        kernel, likelihood = params
        noise = float(likelihood.noise_variance)
        if not self.debiased or not self.law.sizes:
            return self._of_sizes(kernel, noise, seed_key(self.seed), [(self.num_basis, 1.0)])
        generator = np.random.default_rng([self.seed, _TRUNCATIONS, step])
        term = self.law.draw(float(generator.random()))
        return self.term(kernel, noise, term, self.key(step))

    @property
    def num_rows(self) -> int:
        """Rows of the evidence."""
        return len(self.X)

    @property
    def num_features(self) -> int:
        """Inputs of a row."""
        return int(self.X.shape[1])

    def objective(self, params: Any) -> tuple[float, Any]:
        """Return the log evidence with the frequencies of ``seed`` and its slope, as `fit_evidence` asks for them."""
        found = self(params, params, 0)
        return found.diagnostics["objective"], (found.by_kernel, found.by_noise)

    def key(self, step: int) -> np.ndarray:
        """Return the key data of the frequencies of a step."""
        return np.random.default_rng([self.seed, _FREQUENCIES, step]).integers(
            0, 2**32, 2, dtype=np.uint32
        )

    def term(self, kernel: Any, noise: float, term: int, key: Any) -> Estimate:
        """Return ``L(first) + [L(J) - L(J before)] / P(J)`` of a term, ``L(J)`` the exact evidence for the last one."""
        weight = 1.0 / float(self.law.probabilities()[term])
        before = self.first if term == 0 else self.law.sizes[term - 1]
        parts = {self.first: 1.0}
        parts[before] = parts.get(before, 0.0) - weight
        is_exact = self.exact is not None and term == len(self.law.sizes) - 1
        if not is_exact:
            parts[self.law.sizes[term]] = weight
        found = self._of_sizes(kernel, noise, key, sorted(parts.items()))
        if not is_exact:
            return found
        assert self.exact is not None
        value, (by_kernel, by_noise) = self.exact.value_and_gradient(kernel, noise)
        return Estimate(
            jax.tree.map(lambda a, b: a + weight * b, found.by_kernel, by_kernel),
            found.by_noise + weight * by_noise,
            {"objective": found.diagnostics["objective"] + weight * value},
        )

    def _of_sizes(
        self, kernel: Any, noise: float, key: Any, sizes: list[tuple[int, float]]
    ) -> Estimate:
        """Return the weighted sum of evidences with the first features."""
        most = max(size for size, _ in sizes)
        # a few sizes of compiled code, whatever the sizes asked for
        if self.debiased:
            most = min(max(self.num_basis, most), 1 << (most - 1).bit_length())
        narrow = as_dtype(kernel, self.X.dtype)
        basis = RandomFourierBasis(narrow, key, most, self.frequencies)
        tiles = tiles_of(self.X, self.y, most)
        sums = feature_sums(basis, tiles, len(self.X), noise)
        parts = [evidence_of_first(sums, basis, size, noise) for size, _ in sizes]
        signs = [sign for _, sign in sizes]
        by_kernel, by_noise = slopes_of_parts(basis, tiles, parts, signs, noise)
        value = sum(sign * part.value for part, sign in zip(parts, signs, strict=True))
        return Estimate(by_kernel, by_noise, {"objective": float(value)})
