"""What `test_devices` runs with so many devices of the processor: how many, where to write what was found."""

import os
import sys

count, out = sys.argv[1:]
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"

import jax  # noqa: E402
import numpy as np  # noqa: E402

import vastgp  # noqa: E402
from vastgp.options import Fixed, Learn  # noqa: E402
from vastgp.solvers import basis_system  # noqa: E402

# how many devices a tile's rows are on, and how many of the rows each has
seen = set()
product = basis_system.normal_product


def noted(blocks, X, *rest):
    seen.update((len(X), shard.device.id, len(shard.data)) for shard in X.addressable_shards)
    return product(blocks, X, *rest)


basis_system.normal_product = noted
generator = np.random.default_rng(0)
X = generator.uniform(size=(3000, 2))
y = np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=len(X))
found = []
for search in (Fixed(noise_std=0.1), Learn(60, steps=2)):
    model = vastgp.QSGPRegressor(
        vastgp.RBF([0.5, 0.8], variance=2.0), 60, hyperparameters=search, solver="block", dtype="float64", tol=1e-6
    )  # fmt: skip
    found.append(model.fit(X, y).predict(X[:50], return_std=True))
np.savez(out, found=np.array(found), seen=sorted(seen), devices=jax.device_count())
