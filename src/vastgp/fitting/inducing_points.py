"""Where inducing points start: among the rows, or between them."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import prior_variances
from vastgp.kernels.metric import metric_lengthscales

METHODS = ("kmeans", "greedy", "random")


def select_inducing(
    method: str, kernel: Kernel, X: np.ndarray, count: int, seed: int = 0
) -> np.ndarray:
    """Return starting values of inducing points.

    Parameters
    ----------
    method : {"kmeans", "greedy", "random"}
        ``"kmeans"``: centres of k-means, started by k-means++, in inputs divided by their lengthscales; each of the
        places that rows have, and some again, where these are no more than ``count``. ``"greedy"``:
        at each step the row whose variance given those chosen is largest, which is the pivot of a Cholesky
        factorisation (Burt et al. 2020). ``"random"``: rows.
    kernel : Kernel
    X : ndarray of shape (n, d)
        Some rows; ``n >= count``.
    count : int
        Number m of inducing points.
    seed : int, default 0

    Returns
    -------
    ndarray of shape (count, d)
    """
    generator = np.random.default_rng(seed)
    if method == "greedy":
        return X[greedy_variance(kernel, X, count)]
    if method == "random" or count >= len(X):
        return X[np.sort(generator.choice(len(X), size=count, replace=False))]
    # inputs without influence, whose lengthscales are far beyond their range, do not tell rows apart
    scales = metric_lengthscales(kernel, X.shape[1])
    _, places = np.unique(X / scales, axis=0, return_index=True)
    if len(places) <= count:
        # every place once: some rows at random would leave places out, and have others several times
        rest = np.setdiff1d(np.arange(len(X)), places)
        more = generator.choice(rest, size=count - len(places), replace=False)
        return X[np.sort(np.concatenate([places, more]))]
    from sklearn.cluster import KMeans  # a tenth of the time of importing all else

    found = KMeans(count, init="k-means++", n_init=1, max_iter=30, random_state=seed % 2**32)
    return found.fit(X / scales).cluster_centers_ * scales


def greedy_variance(kernel: Kernel, X: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers of the rows that a Cholesky factorisation with complete pivoting takes first.

    O(n m^2) time and O(n m) memory. Where fewer rows leave no variance, the rest are the first of the others.
    """
    left = prior_variances(kernel, X)
    factor = np.zeros((count, len(X)))
    least = 1e-12 * np.max(left)
    chosen: list[int] = []
    for j in range(min(count, len(X))):
        pivot = int(np.argmax(left))
        if left[pivot] <= least:
            break
        chosen.append(pivot)
        with precision("float64"):
            column = np.asarray(_column(kernel, X[pivot : pivot + 1], X))
        factor[j] = (column - factor[:j, pivot] @ factor[:j]) / left[pivot] ** 0.5
        left = np.maximum(left - factor[j] ** 2, 0.0)
        left[pivot] = 0.0
    others = np.setdiff1d(np.arange(len(X)), chosen)[: count - len(chosen)]
    return np.concatenate([np.asarray(chosen, np.int64), others])


@jax.jit
def _column(kernel: Kernel, x: Float[Array, "1 d"], X: Float[Array, "n d"]) -> Float[Array, " n"]:
    return kernel(x, X)[0]
