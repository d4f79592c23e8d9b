"""What training a sparse-within-sparse Gaussian process is compiled for, what it changes, and where it starts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp.data.neighbours import NeighbourIndex
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import kernel_matrix, prior_variances
from vastgp.likelihoods import Likelihood
from vastgp.linalg.alone import run_alone
from vastgp.linalg.cholesky import factorize
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.solvers.neighbour_systems import solve_each
from vastgp.solvers.neighbourhoods import Neighbours, local_systems

# Neighbours that say how far an inducing variable is determined by the others, for the first variances.
_START_NEIGHBOURS, _START_ROWS = 16, 1024


class Variables(NamedTuple):
    """Everything that has a row for each inducing input.

    Attributes
    ----------
    mean : Array of shape (M, C)
    spread : Array of shape (M, C), or (M, C, M)
        Logarithm of the variance; or rows of the lower factor of the covariance, their last entry as a logarithm.
    Z : Array of shape (M, d)
    """

    mean: Float[Array, "r C"]
    spread: Float[Array, "r C"] | Float[Array, "r C M"]
    Z: Float[Array, "r d"]


class SwsgpState(NamedTuple):
    """What a step changes.

    Attributes
    ----------
    variables : Variables
    first, second : Variables
        Adam's averages of gradients and of their squares. Rows of inducing inputs that a step does not touch stay as
        they are.
    touched : Array of shape (M,)
        Steps that have touched each inducing input: Adam's corrections for its start count these.
    hyper : tuple of (Kernel, Likelihood)
        Logarithms of the hyperparameters.
    hyper_first, hyper_second : tuple
    steps : Array of shape ()
    metric : Array of shape (d,)
        Lengthscales by which neighbours were last searched.
    anchors : Array of shape (M, d), or (0, d)
        Inducing inputs as they were then, where they move.
    searches : Array of shape ()
        How often neighbours were searched.
    stale : Array of shape ()
        Share of neighbours that had changed at the last comparison.
    """

    variables: Variables
    first: Variables
    second: Variables
    touched: Int[Array, " M"]
    hyper: Any
    hyper_first: Any
    hyper_second: Any
    steps: Int[Array, ""]
    metric: Float[Array, " d"]
    anchors: Float[Array, "a d"]
    searches: Int[Array, ""]
    stale: Float[Array, ""]


def start_state(
    kernel: Kernel,
    likelihood: Likelihood,
    Z: np.ndarray,
    options: SwsgpOptions,
    metric: np.ndarray,
    dtype: str,
) -> SwsgpState:
    """Return where training starts: mean zero, and the covariance that the prior alone would choose."""
    size, functions = len(Z), likelihood.num_latent
    if options.covariance == "full":
        spread = _prior_factor(kernel, Z, options.least_jitter(dtype))
        spread = np.broadcast_to(spread[:, None, :], (size, functions, size))
    else:
        variances = conditional_variances(kernel, Z, metric, options.least_jitter("float64"))
        spread = np.broadcast_to(np.log(variances)[:, None], (size, functions))
    variables = Variables(
        jnp.zeros((size, functions), dtype), jnp.asarray(spread, dtype), jnp.asarray(Z, dtype)
    )
    hyper = jax.tree.map(lambda value: jnp.log(jnp.asarray(value, dtype)), (kernel, likelihood))

    def zeros(tree: Any) -> Any:
        # each an array of its own, as all are given away together
        return jax.tree.map(jnp.zeros_like, tree)

    return SwsgpState(
        variables,
        zeros(variables),
        zeros(variables),
        jnp.zeros(size, jnp.int32),
        hyper,
        zeros(hyper),
        zeros(hyper),
        jnp.zeros((), jnp.int32),
        jnp.asarray(metric, dtype),
        jnp.array(Z if options.move else Z[:0], dtype),
        jnp.ones((), jnp.int32),
        jnp.zeros((), dtype),
    )


def factor_rows(spread: Float[Array, "r C M"], numbers: Int[Array, " r"]) -> Float[Array, "r C M"]:
    """Return rows of the lower factor, by their numbers, from how they are stored."""
    columns = jnp.arange(spread.shape[2])
    own = columns == numbers[:, None]
    below = columns < numbers[:, None]
    # the logarithm alone where it stands: elsewhere it is no exponent
    diagonal = jnp.exp(jnp.where(own[:, None, :], spread, 0.0))
    return jnp.where(own[:, None, :], diagonal, jnp.where(below[:, None, :], spread, 0.0))


def _prior_factor(kernel: Kernel, Z: np.ndarray, jitter: float) -> np.ndarray:
    K = np.asarray(kernel_matrix(kernel, jnp.asarray(Z), jnp.asarray(Z)), np.float64)
    found = factorize(
        K, jitter * float(kernel.total_variance()), what="the matrix of the inducing inputs"
    )
    lower = np.tril(found.lower)
    np.fill_diagonal(lower, np.log(np.diagonal(lower)))
    return lower


def conditional_variances(
    kernel: Kernel, Z: np.ndarray, metric: np.ndarray, jitter: float
) -> np.ndarray:
    """Return the prior variance of each inducing variable given its nearest others, ``1 / (K^-1)_jj`` of a patch."""
    count = min(_START_NEIGHBOURS, len(Z) - 1)
    if count == 0:
        return prior_variances(kernel, Z)
    index = NeighbourIndex(Z, metric)
    found = index.query(Z, count + 1)
    own = np.arange(len(Z))[:, None]
    # a point is its own nearest one, but for others at the same place
    found = np.where(found == own, found[:, -1:], found)[:, :count]
    variances = np.empty(len(Z))
    tile = min(_START_ROWS, len(Z))
    for start in range(0, len(Z), tile):
        rows = np.minimum(np.arange(start, start + tile), len(Z) - 1)
        values = _patch_variances(kernel, jnp.asarray(Z[rows]), jnp.asarray(Z[found[rows]]), jitter)
        variances[rows] = np.asarray(values)
    return variances


@run_alone
@jax.jit
def _patch_variances(
    kernel: Any, X: Float[Array, "n d"], Z: Float[Array, "n h d"], jitter: Any
) -> Float[Array, " n"]:
    blank = jnp.zeros((*Z.shape[:2], 1), Z.dtype)
    near = Neighbours(Z, jnp.ones(Z.shape[:2], bool), blank, blank)
    K, k = local_systems(kernel, X, near, jitter)
    left = kernel.diag(X) - jnp.sum(k * solve_each(K, k), axis=1)
    return jnp.maximum(left, 0.0) + jitter * kernel.total_variance()
