"""What `test_devices` runs with so many devices of the processor: how many, which models, where answers go."""

import os
import sys

count, group, out = sys.argv[1:]
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"

import jax  # noqa: E402
import numpy as np  # noqa: E402

import vastgp  # noqa: E402
from vastgp.data import devices  # noqa: E402
from vastgp.fitting import accumulate, minibatch_runner  # noqa: E402
from vastgp.options import Adam, Fixed, Learn, LocalSteps, Natural, Stochastic  # noqa: E402
from vastgp.solvers import basis_system  # noqa: E402

# problems of a test are worth one device
devices.LEAST_WORK = 1
KERNEL, FIXED = vastgp.RBF([0.5, 0.8], variance=2.0), Fixed(noise_std=0.1)
LEARN, PAIRS = Learn(rows=60), 480
generator = np.random.default_rng(0)
X = generator.uniform(size=(1200, 2))
Y = np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=len(X))
CLASSES = np.digitize(Y, [-0.3, 0.3])


def neighbours(prior, covariance):
    steps = LocalSteps(row_batch=64, max_steps=20, prior=prior, covariance=covariance)
    return vastgp.SWSGPRegressor(
        KERNEL, 96, 8, hyperparameters=LEARN, solver=steps, dtype="float64"
    )


def sampled(kind, search=FIXED, **options):
    sizes = {"row_batch": 60, "basis_batch": 320, "control_rank": 40, "max_steps": 60}
    return kind(
        KERNEL,
        2 * PAIRS,
        hyperparameters=search,
        solver=Stochastic(**(sizes | options)),
        dtype="float64",
    )


def block(search):
    return vastgp.QSGPRegressor(
        KERNEL, 60, hyperparameters=search, solver="block", dtype="float64", tol=1e-6
    )


SVGP, QSGP = vastgp.SVGPRegressor, vastgp.QSGPRegressor
MODELS = {
    "sums": {
        "QSGP, block": lambda: block(FIXED),
        "QSGP, block, learned": lambda: block(Learn(60, steps=2)),
        "GRIEF": lambda: vastgp.GriefRegressor(num_eigenfunctions=40, dtype="float64"),
        "random features": lambda: vastgp.RandomFeatureGPRegressor(KERNEL, 40, dtype="float64"),
        "re-weighted": lambda: vastgp.ReweightedBasisRegressor(num_basis=40, dtype="float64"),
        "relevance": lambda: vastgp.RelevanceVectorRegressor(KERNEL),
    },
    "steps": {
        "t-SVGP": lambda: SVGP(
            KERNEL, 64, hyperparameters=LEARN, solver=Natural(row_batch=400, max_steps=20), dtype="float64"
        ),
        "SVGP, Adam": lambda: SVGP(
            KERNEL, 64, hyperparameters=LEARN, solver=Adam(row_batch=400, max_steps=20), dtype="float64"
        ),
        "SVGP, all rows": lambda: SVGP(KERNEL, 64, hyperparameters=LEARN, solver=Natural(row_batch=2000, max_steps=20)),
        "SVGP, float32": lambda: SVGP(
            KERNEL, 64, hyperparameters=LEARN, solver=Natural(row_batch=400, max_steps=20), dtype="float32"
        ),
        "SWSGP": lambda: neighbours("ordered", "diagonal"),
        "SWSGP, neighbourhoods": lambda: neighbours("neighborhoods", "full"),
    },
    "functions": {
        "QSGP": lambda: sampled(QSGP),
        "QSGP, learned": lambda: sampled(QSGP, LEARN, freeze_steps=10, learn_every=1),
        "QSGP, dense columns": lambda: sampled(QSGP, dense_columns=6, column_batch=3, control_rank=300),
        "QSGP, as in the paper": lambda: sampled(QSGP, optimizer="adagrad", control="rows", target_control=True),
        "QSGP, classes": lambda: sampled(vastgp.QSGPClassifier, Fixed(noise_std=None)),
    },
}  # fmt: skip

# of rows that are summed over: how many there are, on which device, how many of them; of a step: operations of a
# device, and how many numbers of its state are as long as the basis
seen, operations, numbers = set(), {}, {}


def noted(rows):
    seen.update((len(rows), shard.device.id, len(shard.data)) for shard in rows.addressable_shards)


def noting(function):
    def call(blocks, rows, *rest):
        noted(rows)
        return function(blocks, rows, *rest)

    return call


def dealing(rows, work, of_rows=accumulate.rows_over_devices):
    found = of_rows(rows, work)
    if count != "1":
        noted(found)
    return found


def chunk_program(options=(), made=minibatch_runner.chunk_program):
    program = made(options)

    def call(*given):
        if name not in operations:
            compiled = program.lower(*given).compile()
            operations[name] = compiled.cost_analysis()["flops"]
            arrays = jax.tree.leaves(compiled.output_shardings[0]), jax.tree.leaves(given[4])
            parts = [
                int(np.prod(own.shard_shape(leaf.shape)))
                for own, leaf in zip(*arrays, strict=True)
                if leaf.shape[-1:] == (PAIRS,)
            ]
            numbers[name] = sum(parts)
        return program(*given)

    call.lower = program.lower
    return call


basis_system.normal_product = noting(basis_system.normal_product)
accumulate.rows_over_devices = dealing
minibatch_runner.chunk_program = chunk_program
found = {}
for name, make in MODELS[group].items():
    model = make()
    if name == "QSGP, classes":
        found[name] = model.fit(X, CLASSES).predict_proba(X[:50])
    else:
        found[name] = np.array(model.fit(X, Y).predict(X[:50], return_std=True))
    if group == "steps":
        # small fits may be answered by another posterior than that of the steps
        found[f"{name}, bound"] = np.array(model.history_["objective"])
names = list(operations)
np.savez(
    out, devices=jax.device_count(), seen=sorted(seen), names=names,
    operations=[operations[each] for each in names], numbers=[numbers[each] for each in names],
    **{f"found {each}": values for each, values in found.items()},
)  # fmt: skip
