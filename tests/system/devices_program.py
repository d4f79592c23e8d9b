"""What `test_devices` runs with so many devices of the processor: how many, which models, where answers go."""

import os
import sys

count, group, out = sys.argv[1:]
flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}"

import jax  # noqa: E402
import numpy as np  # noqa: E402

import vastgp  # noqa: E402
from vastgp._precision import precision  # noqa: E402
from vastgp.bases import RandomFourierBasis, seed_key  # noqa: E402
from vastgp.data import devices  # noqa: E402
from vastgp.fitting import accumulate, minibatch_runner  # noqa: E402
from vastgp.kernels import products  # noqa: E402
from vastgp.methods.iterative import posterior as pathwise  # noqa: E402
from vastgp.methods.iterative.kernel_system import KernelSystem  # noqa: E402
from vastgp.methods.qsgp.stochastic import setup  # noqa: E402
from vastgp.options import (  # noqa: E402
    CG,
    Adam,
    Fixed,
    Inducing,
    Learn,
    LocalSteps,
    Mixture,
    Natural,
    Stochastic,
)  # fmt: skip
from vastgp.solvers import basis_system  # noqa: E402
from vastgp.solvers import block as block_solver  # noqa: E402
from vastgp.solvers import neighbour_posterior as local  # noqa: E402
from vastgp.solvers.distinct_rows import known_rows  # noqa: E402

# problems of a test are worth one device
devices.LEAST_WORK = 1
KERNEL, FIXED = vastgp.RBF([0.5, 0.8], variance=2.0), Fixed(noise_std=0.1)
LEARN, PAIRS = Learn(rows=60), 480
generator = np.random.default_rng(0)
X = generator.uniform(size=(1200, 2))
Y = np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=len(X))
X_ODD, Y_ODD = X[:601], Y[:601]  # not as many on each of four devices
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


def inducing(**sizes):
    basis = Inducing(row_batch=64, control_rank=48, max_steps=20, max_direct=0, **sizes)
    return vastgp.QSGPRegressor(KERNEL, basis=basis, hyperparameters=FIXED, dtype="float64")


def iterative(search=LEARN, **options):
    options = {"num_samples": 8, "tol": 1e-7, "dtype": "float64"} | options
    return vastgp.IterativeGPRegressor(KERNEL, hyperparameters=search, **options)


SVGP, QSGP = vastgp.SVGPRegressor, vastgp.QSGPRegressor
MODELS = {
    "sums": {
        "QSGP, block": lambda: block(FIXED),
        "QSGP, block, learned": lambda: block(Learn(60, steps=2)),
        "GRIEF": lambda: vastgp.GriefRegressor(num_eigenfunctions=40, dtype="float64"),
        "random features": lambda: vastgp.RandomFeatureGPRegressor(KERNEL, 40, dtype="float64"),
        "re-weighted": lambda: vastgp.ReweightedBasisRegressor(num_basis=40, dtype="float64"),
        "relevance": lambda: vastgp.RelevanceVectorRegressor(KERNEL),
        "nearest rows": lambda: vastgp.SWSGPRegressor(
            KERNEL, num_neighbors=16, solver="nearest", likelihood="heteroskedastic", hyperparameters="subset"
        ),
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
            KERNEL, 64, hyperparameters=LEARN, solver=Natural(row_batch=400, max_steps=10), dtype="float32"
        ),
        "SWSGP": lambda: neighbours("ordered", "diagonal"),
        "SWSGP, neighbourhoods": lambda: neighbours("neighborhoods", "full"),
        # not from a maximum: there the first steps of Adam follow the signs of rounded slopes
        "DIRECT": lambda: vastgp.DirectRegressor(
            KERNEL, 60, hyperparameters=FIXED, dtype="float64",
            family=Mixture(components=3, objective="unbiased", draws=16, max_steps=30, max_iter=2),
        ),
        "QSGP, rows as inducing inputs": lambda: inducing(basis_batch=600),
        "QSGP, inducing inputs": lambda: inducing(inputs=X[:480] + 0.01, basis_batch=160),
        "iterative": lambda: iterative(Learn(rows=60, steps=2), rank=50, tol=1e-6),
    },
    "rows": {
        "low rank": lambda: iterative(Learn(60, steps=2), rank=50),
        "matrix": lambda: iterative(Learn(60, steps=2)),
        "none": lambda: iterative(Learn(60, steps=2), rank=0, tol=1e-10, solver=CG(iterations=2)),
        "low rank, float32": lambda: iterative(Fixed(noise_std=0.3), rank=50, tol=2e-4, dtype="float32"),
        "matrix, float32": lambda: iterative(Fixed(noise_std=0.3), tol=2e-4, dtype="float32"),
    },
    "functions": {
        "QSGP": lambda: sampled(QSGP),
        "QSGP, learned": lambda: sampled(QSGP, LEARN, freeze_steps=10, learn_every=1),
        "QSGP, dense columns": lambda: sampled(QSGP, dense_columns=6, column_batch=3, control_rank=300),
        "QSGP, as in the paper": lambda: sampled(QSGP, optimizer="adagrad", control="rows", target_control=True),
        "QSGP, classes": lambda: sampled(vastgp.QSGPClassifier, Fixed(noise_std=None), row_batch=8),
    },
}  # fmt: skip

# of rows that are summed over or predicted: how many there are, on which device, how many of them; of a step or pass:
# operations of a device, and how many of its numbers are as long as the basis; of loops over tiles: how many
# numbers a device makes of a kernel; of vectors and preconditioners: numbers of one device and of all
seen, predicted, operations, numbers, tiles, lying = set(), set(), {}, {}, {}, {}


def noted(rows, among=seen):
    among.update((len(rows), shard.device.id, len(shard.data)) for shard in rows.addressable_shards)


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
    return measured(made(options), lambda found: found[0], lambda: name)


def measured(program, state, what):
    """A program whose operations and state, of one device, are noted when it is called first."""

    def call(*given):
        if what() not in operations:
            lowered = program.lower(*given)
            compiled = lowered.compile()
            operations[what()] = compiled.cost_analysis()["flops"]
            arrays = (
                jax.tree.leaves(state(of)) for of in (compiled.output_shardings, lowered.out_info)
            )
            numbers[what()] = sum(
                int(np.prod(own.shard_shape(leaf.shape)))
                for own, leaf in zip(*arrays, strict=True)
                if leaf.shape[-1:] == (PAIRS,)
            )
        return program(*given)

    call.lower = program.lower
    return call


def tiling(n, made=products._tiling):
    tile_size.append(made(n)[0])
    return made(n)


def ends(share, pieces, made=products._ends):
    """Note how many numbers each device makes of a kernel, in every kind of loop over tiles."""
    loop, entries = sys._getframe(1).f_code.co_name, tile_size[-1] ** 2

    def note(first, last):
        each = int(last) - int(first)
        tiles[loop, pieces, each] = each * entries

    first, last = made(share, pieces)
    jax.debug.callback(note, first, last)
    return first, last


def advance(state, product, right, precondition, *rest, made=block_solver._advance):
    """Note how vectors and preconditioner lie over the devices."""
    found = made(state, product, right, precondition, *rest)
    if group != "rows":
        return found  # of the fits of other groups the vectors are whole
    for kind, arrays in (("vectors", (found, product, right)), ("preconditioner", precondition)):
        sizes = []
        for array in jax.tree.leaves(arrays):
            shards = {shard.device.id: shard.data.size for shard in array.addressable_shards}
            assert len(shards) == int(count) and len(set(shards.values())) == 1, array.shape
            if len(X_ODD) <= max(array.shape, default=0) < len(X_ODD) + 4:
                sizes.append((shards[0], array.size))
        if sizes:
            lying[name, kind] = np.sum(sizes, axis=0)
    return found


def goes_on_elsewhere():
    """What follows of a solution on its way by all devices, and when it goes on with one, and with all again."""

    def system():
        kernel = jax.tree.map(np.float64, KERNEL)
        basis = RandomFourierBasis(kernel, seed_key(0), 2048)
        observed = known_rows(X_ODD, Y_ODD)
        return KernelSystem(kernel, 0.01, observed, basis, num_samples=4, seed=0, rank=30)

    with precision("float64"):
        several, start = system(), []
        devices.LEAST_WORK = 1e30
        one = system()
        devices.LEAST_WORK = 1
        for _ in range(2):
            start.append(
                block_solver.advance(several, start[-1] if start else block_solver.begin(several))
            )
        if several.layout is None:
            return np.array([start[-1].solution] * 2)
        moved = jax.tree.map(jax.numpy.asarray, several.layout.to_file(start[0]))
        moved = block_solver.advance(one, moved)
        back = several.layout.from_file(several.layout.to_file(start[0]))
        back = several.layout.to_file(block_solver.advance(several, back))
        return np.array([np.asarray(each.solution)[:, : len(X_ODD)] for each in (moved, back)])


def rows_at_prediction(given, over, made=devices.over_devices):
    found = made(given, over)
    noted(found[0], predicted)
    return found


def explained(kernel, rows, *rest, made=pathwise.cross_product):
    noted(jax.numpy.asarray(rows), predicted)
    return made(kernel, rows, *rest)


basis_system.normal_product = noting(basis_system.normal_product)
accumulate.rows_over_devices, pathwise.cross_product = dealing, explained
minibatch_runner.chunk_program = chunk_program
products._ends, products._tiling, tile_size = ends, tiling, []
block_solver._advance = advance
local.over_devices = rows_at_prediction
setup.target_sums = measured(setup.target_sums, lambda found: found, lambda: "sums of targets")
found = {}
for name, make in MODELS[group].items():
    model = make()
    if group == "rows":
        found[name] = np.array(model.fit(X_ODD, Y_ODD).predict(X[:50], return_std=True))
    elif name == "QSGP, classes":
        found[name] = model.fit(X, CLASSES).predict_proba(X[:50])
    else:
        found[name] = np.array(model.fit(X, Y).predict(X[:50], return_std=True))
    if group != "sums":
        # small fits may be answered by another posterior than that of the steps
        found[f"{name}, bound"] = np.array(model.history_["objective"])
    if name == "iterative":
        jax.effects_barrier()
        operations[name], numbers[name] = sum(tiles.values()), len(tiles)
if group == "rows":
    block_solver._advance = block_solver._advance.__kwdefaults__["made"]
    found["goes on"] = goes_on_elsewhere()
    operations, numbers = ({kind: each[k] for kind, each in lying.items()} for k in (0, 1))
names = list(operations)
np.savez(
    out, devices=jax.device_count(), seen=sorted(seen), predicted=sorted(predicted), names=names,
    operations=[operations[each] for each in names], numbers=[numbers[each] for each in names],
    **{f"found {each}": values for each, values in found.items()},
)  # fmt: skip
