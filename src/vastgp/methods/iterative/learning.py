"""Slopes of the exact log evidence of many rows by conjugate gradients, plain or with Russian roulette."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.bases import seed_key
from vastgp.bases.draws import typed_key
from vastgp.data.devices import filled_over_devices, over_devices
from vastgp.fitting.adam_ascent import Estimate
from vastgp.fitting.truncation import Roulette, roulette
from vastgp.methods.iterative.evidence import (
    Weights,
    evidence_slope_by_cg,
    evidence_value,
    plain_weights,
    roulette_weights,
)
from vastgp.methods.iterative.kernel_system import (
    Drawable,
    devices_of,
    dtypes_of,
    kernel_operator,
    kernel_preconditioner,
)
from vastgp.methods.iterative.options import RouletteCG
from vastgp.solvers.distinct_rows import KnownRows

# Residuals at which a solution counts as complete: rounding is as large.
_COMPLETE = {"float32": 1e-5, "float64": 1e-10}
# The tail that the law leaves out has a probability of exp(-30).
_TAIL = 30.0
_PROBES, _TRUNCATIONS, _PIVOTS = 21, 22, 23


class IterativeEvidence:
    """Estimates for `climb_evidence`.

    Parameters
    ----------
    observed : KnownRows
        Standardised rows in memory, repeated ones merged unless they have noise of their own.
    solver : CG or RouletteCG
        With all fields set.
    rank, kind
        Of the preconditioner, see `kernel_preconditioner`.
    seed : int
    dtype : str
    """

    def __init__(
        self,
        observed: KnownRows,
        solver: Any,
        *,
        rank: int,
        seed: int,
        dtype: str,
        kind: str = "auto",
    ) -> None:
        self.observed, self.rank, self.seed, self.dtype = observed, rank, seed, dtype
        self.kind = kind
        self.num_probes = solver.num_probes
        n, iterations = len(observed.y), solver.iterations
        self._key = typed_key(seed_key(seed))
        self.law: Roulette | None = None
        self._most = min(n, iterations)
        if isinstance(solver, RouletteCG):
            temperature = float(solver.temperature)  # type: ignore[arg-type]
            self._most = min(n, iterations + math.ceil(_TAIL / temperature))
            self.law = roulette(iterations, temperature, self._most)
        self._iterations = iterations
        self._kept: tuple[Any, tuple[Drawable, str, str]] | None = None

    def weights(self, step: int) -> Weights:
        """Return what the terms of conjugate gradients are multiplied by in a step."""
        if self.law is None:
            return plain_weights(self._iterations, self._most)
        generator = np.random.default_rng([self.seed, _TRUNCATIONS, step])
        return roulette_weights(self.law, 1.0 - generator.random(2))

    def __call__(self, params: Any, anchor: Any, step: int, carried: Any = ()) -> Estimate:
        """Return the estimate at ``(kernel, likelihood)``, preconditioned by the matrix at ``anchor``."""
        kernel, likelihood = params
        noise = float(likelihood.noise_variance)
        observed = self.observed.at(noise)
        precondition, vectors, entries = self._at_anchor(anchor)
        operator = kernel_operator(kernel, noise, observed, entries)
        weights = self.weights(step)
        key = jax.random.fold_in(jax.random.fold_in(self._key, _PROBES), step)
        devices = devices_of(len(observed.y))
        targets = filled_over_devices(np.asarray(observed.y, self.dtype), devices)
        y = targets * operator.scale.astype(self.dtype)
        probes = precondition.draw(key, self.num_probes, y)
        with precision(vectors):
            y, probes = (
                over_devices(jnp.asarray(part, vectors), devices, axis=-1) for part in (y, probes)
            )
            slope = evidence_slope_by_cg(
                operator,
                y,
                probes,
                precondition,
                jnp.asarray(np.stack(weights, axis=1), vectors),
                _COMPLETE[self.dtype],
            )
            value, error = evidence_value(
                slope.run, weights, precondition.log_determinant(), len(observed.y)
            )
            by_kernel = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), slope.by_kernel)
            by_noise = float(slope.by_noise)
        return Estimate(
            by_kernel,
            by_noise + observed.noise_slope(noise),
            {
                "objective": value + observed.left_out(noise),
                "objective_se": error,
                "iterations": float(slope.run.iterations),
                "residual": float(slope.run.residuals[0]),
            },
        )

    def _at_anchor(self, anchor: Any) -> tuple[Drawable, str, str]:
        """Return what an anchor has: preconditioner, precision of vectors and of entries.

        Made once, and from the anchor alone, so that also a resumed run makes the same.
        """
        if self._kept is None or not _same(self._kept[0], anchor):
            kernel, likelihood = anchor
            noise = float(likelihood.noise_variance)
            system = kernel, noise, self.observed.at(noise)
            dtypes = dtypes_of(*system, self.seed)
            made = kernel_preconditioner(*system, self.rank, self.seed, self.kind, dtypes[0])
            self._kept = anchor, (made, *dtypes)
        return self._kept[1]


def _same(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)
