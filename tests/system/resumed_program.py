"""A fit with a checkpoint for `test_resumed`: number, how many, port, data, checkpoint, results, product of the kill.

With a product, the last process is killed before it: by signal 9, as where memory is short.
"""

import os
import signal
import sys

import jax
import numpy as np

number, count, port = (int(word) for word in sys.argv[1:4])
data, checkpoint, out, last = sys.argv[4:]
if count > 1:
    jax.distributed.initialize(
        coordinator_address=f"127.0.0.1:{port}", num_processes=count, process_id=number
    )

import vastgp  # noqa: E402
from vastgp.options import Block, Fixed, SaveTo  # noqa: E402
from vastgp.solvers.row_system import RowSystem  # noqa: E402

product, done = RowSystem.product, 0


def counted(self, V):
    global done
    done += 1
    if done == int(last) and number == count - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return product(self, V)


RowSystem.product = counted
model = vastgp.QSGPRegressor(
    vastgp.RBF([0.5, 0.8], variance=2.0), 3000, solver=Block(rank=5),
    hyperparameters=Fixed(noise_std=0.1), dtype="float64", tol=1e-10,
    checkpoint=SaveTo(checkpoint, 1e-6),
)  # fmt: skip
model.fit(data)
new = np.random.default_rng(1).uniform(size=(20, 2))
np.savez(out, found=np.stack(model.predict(new, return_std=True)), products=done)
