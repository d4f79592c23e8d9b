"""Seconds for an E-step and an M-step on MNIST, batch 200, 100 inducing points, beside peers that run in `peers/`.

VASTGP_DATA=/path/to/npz python benchmarks/step_time.py --classes 10 --dtype float32
VASTGP_DATA=/path/to/npz /path/to/gpflow/bin/python benchmarks/peers/step_gpflow.py --dtype float64 --out FILE

Ten classes have ten functions and softmax; `--classes 2` is odd against even with one function, as GPJax has no
likelihood for more. Every program learns one lengthscale, the amplitude and all inducing points by Adam and its
posterior by natural gradients, on images in 0..1 that are already in memory. Seconds are the median over 130 steps, and
the fastest of them, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import numpy as np

from mnist import digits
from run import machine_rates
from table import RESULTS
from vastgp._precision import precision
from vastgp.data import Standardizer, as_rows
from vastgp.kernels import RBF
from vastgp.likelihoods import Bernoulli, Softmax
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.training import Trainer


def main() -> None:
    """Time steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--hold", default="sites", choices=("sites", "whitened"))
    parser.add_argument("--out", type=Path, default=RESULTS / "step_time.jsonl")
    asked = parser.parse_args()
    X, y, _, _ = digits(asked.classes == 10)
    y = y.astype(float) if asked.classes == 10 else np.where(y, 1.0, -1.0)
    rows = as_rows(X, y)
    scaling = Standardizer(common=True).fit(dataclasses.replace(rows, y=None))
    start = RBF(np.full(1, 5.0), 1.0).in_units(1.0 / scaling.x_scale[:1], 1.0)
    likelihood = Softmax(10) if asked.classes == 10 else Bernoulli("logit")
    options = SVGPOptions(
        row_batch=asked.batch, step_rate=0.03, learning_rate=0.03, jitter=1e-6, hold=asked.hold
    )
    rates = machine_rates()
    with precision(asked.dtype):
        trainer = Trainer(rows, scaling, likelihood, options, 0, asked.dtype)
        chosen = np.random.default_rng(0).permutation(rows.n)[: asked.inducing]
        Z = scaling.transform_X(rows.take(chosen)[0])
        state = trainer.start(start, likelihood, Z)
        seconds, bounds = [], []
        with trainer.runner(150) as runner:
            for step in range(0, 150, 10):
                began = time.perf_counter()
                state, found = runner(state, step, 10)
                seconds.append((time.perf_counter() - began) / 10)
                bounds.append(found["objective"])
    result = {
        "program": "vastgp", "method": "t-SVGP" if asked.hold == "sites" else "SVGP",
        "classes": asked.classes, "dtype": asked.dtype, "inducing": asked.inducing, "batch": asked.batch,
        "seconds_per_step": float(np.median(seconds[2:])), "fastest_step": float(np.min(seconds)),
        "elbo": float(bounds[-1]), "steps": 150,
        "damped": int(state.damped), "jax": jax.__version__, **rates,
    }  # fmt: skip
    with asked.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
