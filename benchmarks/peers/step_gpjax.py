"""GPJax's natural gradients (`fit_natgrads`), timed as `../step_time.py` says; two classes, as it has no more.

The whole loop is compiled each time, so the time of a step is that of a long run less that of a short one.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial
from pathlib import Path

import jax

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dtype", default="float64")
parser.add_argument("--family", default="whitened", choices=("whitened", "dual"))
parser.add_argument("--out", type=Path, required=True)
asked = parser.parse_args()
jax.config.update("jax_enable_x64", asked.dtype == "float64")

import gpjax as gpx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402


def main() -> None:
    """Time steps."""
    with np.load(Path(os.environ["VASTGP_DATA"]) / "mnist.npz") as stored:
        X = jnp.asarray(stored["X"] / 255.0, asked.dtype)
        y = jnp.asarray(stored["y"] % 2, asked.dtype).reshape(-1, 1)
    data = gpx.Dataset(X=X, y=y)
    Z = X[np.random.default_rng(0).permutation(len(X))[:100]]
    prior = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Zero(),
        kernel=gpx.kernels.RBF(lengthscale=5.0),
        jitter=1e-6,
    )
    family = {
        "whitened": gpx.variational_families.WhitenedVariationalGaussian,
        "dual": gpx.variational_families.DualVariationalGaussian,
    }[asked.family]
    q = family(model=prior * gpx.likelihoods.Bernoulli(), inducing_inputs=Z)
    run = partial(
        gpx.fit_natgrads, model=q, objective=lambda q, d: -gpx.objectives.elbo(q, d), train_data=data,
        optim=optax.adam(0.03), natgrad_lr=0.03, batch_size=200, verbose=False, safe=False,
    )  # fmt: skip
    seconds = []
    for _ in range(2):
        spent = []
        for steps in (420, 20):
            began = time.perf_counter()
            history = jax.block_until_ready(run(num_iters=steps)[1])
            spent.append(time.perf_counter() - began)
            if steps == 420:
                values = -np.asarray(history)[140:150]
        seconds.append((spent[0] - spent[1]) / 400)
    result = {
        "program": "gpjax", "method": f"SVGP, {asked.family}", "classes": 2, "dtype": asked.dtype, "inducing": 100,
        "batch": 200, "seconds_per_step": float(np.median(seconds)), "elbo": float(np.mean(values)), "steps": 150,
        "gpjax": gpx.__version__, "jax": jax.__version__,
    }  # fmt: skip
    with asked.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
