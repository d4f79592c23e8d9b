"""What `test_processes` runs in one process, or in several at once: number, how many, port, folder of data, results."""

import sys

import jax
import numpy as np

number, count, port = (int(word) for word in sys.argv[1:4])
folder, out = sys.argv[4:]
if count > 1:
    jax.distributed.initialize(
        coordinator_address=f"127.0.0.1:{port}", num_processes=count, process_id=number
    )

import vastgp  # noqa: E402
from vastgp.data import Standardizer, processes, without  # noqa: E402
from vastgp.data.shared_rows import as_shared_rows  # noqa: E402
from vastgp.options import Block, Fixed, LocalSteps, Natural, Nearest, Subset  # noqa: E402

found: dict[str, np.ndarray] = {}


def message_of(call) -> np.ndarray:
    """What a call that must fail says."""
    try:
        call()
    except ValueError as error:
        return np.array(str(error))
    raise AssertionError("nothing was refused")


# rows: any of them, with some left out, and the parts that processes have
rows = as_shared_rows(folder, "y", min_rows=2, require_y=True)
some = np.random.default_rng(0).choice(rows.n, 500)
found["taken"] = np.column_stack([*rows.take(some)])
found["slice"] = rows.X[16_000:17_000]
kept = without(rows, np.arange(10, 30_000, 7))
found["kept"] = kept.take(np.array([0, 9, 10, 20_000, kept.n - 1]))[0]
found["local"] = np.concatenate(processes.gathered(kept.local.X[: kept.local.n]))
before = sum(int(n) for n in processes.gathered(np.int64(kept.local.n))[:number])
found["first"] = np.array(kept.first - before)
scaling = Standardizer().fit(rows)
found["scaling"] = np.concatenate(
    [scaling.x_mean, scaling.x_scale, *scaling.x_range, [scaling.y_mean, scaling.y_scale]]
)

# fits, one of each way to talk: sums, compiled products, steps; other methods in threads (estimators/test_several_*)
kernel = vastgp.RBF([0.5, 0.8], variance=2.0)
fixed = Fixed(noise_std=0.1)
few = Subset(rows=100)
models = {
    "grief": vastgp.GriefRegressor("rbf", 20, hyperparameters=few),
    "blocks": vastgp.DirectRegressor(kernel, 20, hyperparameters=fixed),
    "functions": vastgp.QSGPRegressor(kernel, 60, hyperparameters=fixed, dtype="float64"),
    "tsvgp": vastgp.TSVGPRegressor(kernel, 15, solver=Natural(max_steps=3)),
    "swsgp": vastgp.SWSGPRegressor(
        kernel, 60, 8, solver=LocalSteps(row_batch=200, max_steps=20), hyperparameters=fixed
    ),
    # of rows that are equally near the earlier count; a rough kernel, as of a smooth one some rows tell more than these
    "nearest": vastgp.SWSGPRegressor(
        vastgp.Matern12([0.05, 0.05], 2.0), 20_000, 32, solver=Nearest(), hyperparameters=fixed
    ),
}
new = np.random.default_rng(1).uniform(size=(20, 2))
for name, model in models.items():
    model.fit(folder, "y")
    # those of the nearest rows are made together, each process those that it asks for
    asked = new if name != "nearest" else new[number * 7 :]
    found[name] = np.stack(model.predict(asked, return_std=True))
    assert name != "nearest" or model.answer_ == "own", model.stop_reason_
    if name in {"tsvgp", "swsgp"}:
        # what steps came to, whatever predicts better
        found[f"{name}, history"] = np.array(model.history_.objective)

# products of tiles; to a residual far below what is compared
few_rows = folder + ".npz"
iterative = vastgp.IterativeGPRegressor(
    kernel, hyperparameters=fixed, rank=20, num_samples=8, tol=1e-11, dtype="float64"
)  # fmt: skip
found["iterative"] = np.stack(iterative.fit(few_rows).predict(new, return_std=True))

# each process gives its own part
generator = np.random.default_rng(2)
X = generator.uniform(size=(120, 2))
y = np.sin(5.0 * X[:, 0]) + 0.1 * generator.normal(size=120)
mine = slice(number * 120 // count, (number + 1) * 120 // count)
in_rows = vastgp.QSGPRegressor(
    kernel, 3000, solver=Block(rank=30), hyperparameters=fixed, dtype="float64", tol=1e-6
)
found["rows"] = np.stack(in_rows.fit(X[mine], y[mine]).predict(new, return_std=True))

# a process has no row, or one, of a table; a file that only the last one reads is damaged, or has a gap
of_each = {
    "GRIEF": lambda: vastgp.GriefRegressor("rbf", 20, hyperparameters=few, dtype="float64"),
    "QSGP": lambda: vastgp.QSGPRegressor(
        kernel, 60, hyperparameters=fixed, dtype="float64", tol=1e-9
    ),
    "t-SVGP": lambda: vastgp.TSVGPRegressor(kernel, 15, hyperparameters=fixed, dtype="float64"),
}
for name, make in of_each.items():
    for rest in (0, 1):
        own = slice(0, 120 - rest) if number == 0 else slice(120 - rest, 120)
        own = own if count > 1 else slice(0, 120)
        answer = make().fit(X[own], y[own]).predict(new, return_std=True)
        found[f"{name}, {rest} rows"] = np.stack(answer)
    for fault in ("damaged", "gap") if count > 1 else ():
        place = f"{folder}-{fault}"
        found[f"{name}, {fault}"] = message_of(
            lambda make=make, place=place: make().fit(place, "y")
        )

if count > 1:
    found["sample"] = message_of(lambda: models["nearest"].sample_y(new))
    found["saved"] = message_of(lambda: models["nearest"].save(out + ".vastgp"))
    found["exact"] = message_of(lambda: vastgp.ExactGPRegressor().fit(X[mine], y[mine]))
    found["noise"] = message_of(
        lambda: vastgp.TSVGPRegressor().fit(X[mine], y[mine], noise_std=np.ones(60))
    )
    bad = np.where(number == 1, np.nan, X[mine])
    found["nan"] = message_of(lambda: vastgp.GriefRegressor().fit(bad, y[mine]))
    wide = X[mine] if number else X[mine][:, :1]
    found["columns"] = message_of(lambda: vastgp.GriefRegressor().fit(wide, y[mine]))
np.savez(out, **found)
