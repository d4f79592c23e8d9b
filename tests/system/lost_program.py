"""What `test_processes` ends in the middle: number, how many, port, folder of data, checkpoint, what happens, result.

What happens at the tenth record of steps: ``kill`` process 0 while the other waits for it, or ``busy`` and that
has work of its own; ``abort`` process 1, as a fault of its own would; ``nothing``.
"""

import os
import signal
import sys
import time

import jax
import numpy as np

number, count, port = (int(word) for word in sys.argv[1:4])
folder, checkpoint, happens, out = sys.argv[4:]
if count > 1:
    jax.distributed.initialize(
        coordinator_address=f"127.0.0.1:{port}", num_processes=count, process_id=number
    )

import vastgp  # noqa: E402
from vastgp.fitting.checkpoint import Checkpoint  # noqa: E402
from vastgp.fitting.history import History  # noqa: E402
from vastgp.options import Learn, Natural  # noqa: E402

append, records = History.append, []


def noted(self, *record):
    if "damped" in record[2]:  # of steps, after the first hyperparameters
        records.append(record)
    if len(records) == 10:
        if number == 0 and happens in ("kill", "busy"):
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 1 and happens == "busy":
            time.sleep(300.0)
        if number == 1 and happens == "abort":
            os.abort()
    append(self, *record)


Checkpoint.due = lambda file: True
History.append = noted
kernel = vastgp.RBF([0.5, 0.8], variance=2.0)
model = vastgp.TSVGPRegressor(
    kernel, 16, hyperparameters=Learn(rows=60), solver=Natural(row_batch=200, max_steps=200),
    checkpoint=checkpoint, dtype="float64",
)  # fmt: skip
model.fit(folder, "y")
new = np.random.default_rng(1).uniform(size=(20, 2))
np.savez(out, found=np.array(model.predict(new, return_std=True)), records=len(records))
