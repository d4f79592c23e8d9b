"""GPflow's natural-gradient SVGP (Salimbeni et al. 2018, as in its documentation), timed as `../step_time.py` says."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras


def main() -> None:
    """Time steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    dtype = np.dtype(asked.dtype)
    gpflow.config.set_default_float(dtype.type)
    gpflow.config.set_default_jitter(1e-6)
    with np.load(Path(os.environ["VASTGP_DATA"]) / "mnist.npz") as stored:
        X, y = stored["X"].astype(dtype) / dtype.type(255.0), stored["y"]
    C = asked.classes if asked.classes > 2 else 1
    y = y.reshape(-1, 1).astype(np.int64) if C > 1 else (y % 2).reshape(-1, 1).astype(dtype)
    likelihood = (
        gpflow.likelihoods.Softmax(C) if C > 1 else gpflow.likelihoods.Bernoulli(tf.nn.sigmoid)
    )
    Z = X[np.random.default_rng(0).permutation(len(X))[:100]].copy()
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=5.0),
        likelihood,
        Z,
        num_latent_gps=C,
        num_data=len(X),
    )
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    data = tf.data.Dataset.from_tensor_slices((X, y)).repeat().shuffle(2000).batch(200)
    batches = iter(data)
    loss = model.training_loss_closure(batches)
    natural = gpflow.optimizers.NaturalGradient(gamma=0.03)
    adam = tf_keras.optimizers.Adam(0.03)
    variables = model.trainable_variables

    @tf.function
    def step() -> None:
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        adam.minimize(loss, variables)

    step()
    seconds = []
    for _ in range(150):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    elbo = float(np.mean([-loss().numpy() for _ in range(10)]))
    result = {
        "program": "gpflow", "method": "SVGP", "classes": asked.classes, "dtype": asked.dtype, "inducing": 100,
        "batch": 200, "seconds_per_step": float(np.median(seconds[20:])),
        "fastest_step": float(np.min(seconds)), "elbo": elbo, "steps": 151,
        "gpflow": gpflow.__version__, "tensorflow": tf.__version__,
    }  # fmt: skip
    with asked.out.open("a") as lines:
        lines.write(json.dumps(result) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
