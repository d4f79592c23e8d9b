"""Products of a matrix with itself, by blocks that threads of our own work at, each with one thread of BLAS.

See `vastgp.linalg.tiled_factor` for why. NumPy's own ``A^T A`` takes as long where the cores are idle (of 2000 x 1000
numbers 23 ms both), but its threads go on spinning after it, beside whatever program comes next.
"""

from __future__ import annotations

import numpy as np

from vastgp.linalg.threads import dealing_threads, own_threads

# Columns of a block: with fewer the packing of blocks for the product shows, by a third at 128.
_BLOCK = 512


def gram(A: np.ndarray) -> np.ndarray:
    """Return ``A^T A``, of which half is computed; to the bit the same by any number of threads.

    Parameters
    ----------
    A : ndarray of shape (n, p)
    """
    p = A.shape[1]
    product = np.empty((p, p), A.dtype)
    blocks = [slice(first, min(first + _BLOCK, p)) for first in range(0, p, _BLOCK)]
    # those of the diagonal last, which are half the work
    parts = [(i, j) for k, i in enumerate(blocks) for j in blocks[:k]]
    parts += [(block, block) for block in blocks]

    def work(part: tuple[slice, slice]) -> None:
        i, j = part
        np.matmul(A[:, i].T, A[:, j], out=product[i, j])
        if i is not j:
            product[j, i] = product[i, j].T

    with dealing_threads(own_threads() if len(blocks) > 1 else 1) as deal:
        deal(work, parts)
    return product
