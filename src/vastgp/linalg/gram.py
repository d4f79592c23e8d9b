"""Products of a matrix with itself, by blocks that threads of our own work at, each with one thread of BLAS.

See `vastgp.linalg.tiled_factor` for why. NumPy's own ``A^T A`` takes as long where the cores are idle (of 2000 x 1000
numbers 23 ms both), but its threads go on spinning after it, beside whatever program comes next.
"""

from __future__ import annotations

import numpy as np

from vastgp.linalg.threads import dealing_threads, own_threads

# Columns of a block at most: with fewer the packing of blocks for the product shows, by a third at 128. And operations
# that are worth a second block (2048 x 200 numbers: 2 ms both, x 400: 8 and 5).
_BLOCK, _WORTH_TWO = 512, 2e8


def gram(A: np.ndarray) -> np.ndarray:
    """Return ``A^T A``, of which half is computed; to the bit the same by any number of threads.

    Parameters
    ----------
    A : ndarray of shape (n, p)
    """
    n, p = A.shape
    product = np.empty((p, p), A.dtype)
    count = max(-(-p // _BLOCK), 2 if n * p * p > _WORTH_TWO else 1)
    size = max(-(-p // count), 1)
    blocks = [slice(first, min(first + size, p)) for first in range(0, p, size)]
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
