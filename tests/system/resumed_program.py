"""A fit with a checkpoint for `test_resumed`: number, how many, port, data, checkpoint, results, product of the kill.

With a product, the last process is killed before it: by signal 9, as where memory is short.
"""

import math
import os
import signal
import sys
from unittest import mock

import jax
import numpy as np


def fit(data, checkpoint, kill_before=0):
    """Return predictions, and how many products were made."""
    import vastgp
    from vastgp.fitting import checkpoint as checkpoints
    from vastgp.options import Block, Fixed, SaveTo
    from vastgp.solvers.row_system import RowSystem

    product, made = RowSystem.product, []

    def counted(self, V):
        made.append(self)
        if len(made) == kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        return product(self, V)

    model = vastgp.QSGPRegressor(
        vastgp.RBF([0.5, 0.8], variance=2.0), 3000, solver=Block(rank=5),
        hyperparameters=Fixed(noise_std=0.1), dtype="float64", tol=1e-10,
        checkpoint=SaveTo(checkpoint, 1e-6),
    )  # fmt: skip
    # written at every record, however slow the disk is
    with (
        mock.patch.object(RowSystem, "product", counted),
        mock.patch.object(checkpoints, "_MOST_SHARE_OF_TIME", math.inf),
    ):
        model.fit(data)
    new = np.random.default_rng(1).uniform(size=(20, 2))
    return np.stack(model.predict(new, return_std=True)), len(made)


if __name__ == "__main__":
    number, count, port = (int(word) for word in sys.argv[1:4])
    data, checkpoint, out, kill_before = sys.argv[4:]
    jax.distributed.initialize(
        coordinator_address=f"127.0.0.1:{port}", num_processes=count, process_id=number
    )
    found, products = fit(data, checkpoint, int(kill_before) if number == count - 1 else 0)
    np.savez(out, found=found, products=products)
