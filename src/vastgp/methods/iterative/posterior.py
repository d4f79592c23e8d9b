"""The posterior of the exact Gaussian process from solutions of its linear system: a mean and sampled functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis
from vastgp.data.archive import above, below
from vastgp.data.devices import rows_over_devices
from vastgp.kernels import Kernel, from_spec, to_spec
from vastgp.kernels.products import OF_VALUE, cross_product
from vastgp.solvers.row_system import prior_draws
from vastgp.solvers.weight_space import SampledPosterior, basis_from_state, basis_to_state


class PathwisePosterior(SampledPosterior):
    """Mean ``K(x, X) a`` and samples ``f_s(x) + K(x, X) (a - u_s)`` (Matheron's rule; Wilson et al. 2020).

    ``f_s`` is a draw of the prior by random Fourier features, ``u_s = A^-1 (f_s(X) + eps_s)`` what the data would have
    taught had they come from it. The mean square of the samples' deviations from the mean estimates the exact posterior
    variance without bias, over frequencies and draws, with the relative standard error ``sqrt(2 / S)``. Where the
    solutions are incomplete it is larger by the error of the mean, see `vastgp.solvers.block`.

    Parameters
    ----------
    kernel : Kernel
    X : Array of shape (n, d)
        Training inputs.
    solutions : ndarray of shape (1 + S, n)
        ``a``, then ``u_s``, in the precision that they were found in: rounded to float32 they would move the function
        by ``eps |a| |K|``, which is above the noise where the system had to be solved in float64.
    basis : RandomFourierBasis
        Of the prior draws.
    seed : int
        Of the prior draws.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Float[Array, "n d"],
        solutions: Float[np.ndarray, "C n"],
        basis: RandomFourierBasis,
        seed: int,
    ) -> None:
        self.kernel, self.X, self.solutions = kernel, X, solutions
        self.basis, self.seed = basis, seed

    @property
    def num_samples(self) -> int:
        """Number of posterior samples S."""
        return int(self.solutions.shape[0]) - 1

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``, shape (n,)."""
        return self._explained(self._inputs(X), self.solutions[:1])[0]

    def _mean_and_deviations(self, X: np.ndarray) -> np.ndarray:
        """Return the values of mean and deviations, the mean first: (1 + S, n)."""
        inputs = self._inputs(X)
        values = self._explained(inputs, self.solutions)
        draws = prior_draws(self.basis, inputs, self.num_samples, self.seed)
        values[1:] = np.asarray(draws, np.float64) - values[1:]
        return values

    def _inputs(self, X: np.ndarray) -> Array:
        return jnp.asarray(X, self.X.dtype)

    def _explained(self, X: Array, solutions: np.ndarray) -> np.ndarray:
        # In float64: these sums are many times larger than what the data leave open, which is their difference to
        # the prior draws.
        rows, *wide = [np.asarray(array, np.float64) for array in (X, self.X, solutions)]
        with precision("float64"):
            rows = rows_over_devices(rows, OF_VALUE * float(len(self.X)))
            return np.array(cross_product(as_dtype(self.kernel, "float64"), rows, *wide))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        kernel, kernel_arrays = to_spec(self.kernel)
        state, arrays = basis_to_state(self.basis)
        arrays |= above("kernel/", kernel_arrays)
        arrays |= {"X": np.asarray(self.X), "solutions": self.solutions}
        return state | {"kernel": kernel, "seed": self.seed}, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> PathwisePosterior:
        """Return the posterior that `to_state` described."""
        kernel = from_spec(state["kernel"], below("kernel/", arrays))
        return cls(
            jax.tree.map(jnp.asarray, kernel),
            jnp.asarray(arrays["X"]),
            arrays["solutions"],
            basis_from_state(state, arrays),
            state["seed"],
        )
