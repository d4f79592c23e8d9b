"""MNIST, ten digits with 100 inducing points, as in Table 1 of the t-SVGP paper: one JSON line.

VASTGP_DATA=/path/to/npz python benchmarks/mnist_sparse.py --e-steps 4 --m-steps 1 --seconds 280
"""

from __future__ import annotations

import argparse
import json
import warnings

from mnist import digits
from run import machine_rates, peak_mb
from table import RESULTS, put
from vastgp import TSVGPClassifier
from vastgp.metrics import classification_report
from vastgp.options import Learn, Natural

OUT = RESULTS / "mnist_sparse.jsonl"


def main() -> None:
    """Fit and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--e-steps", type=int, default=4)
    parser.add_argument("--m-steps", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--set", type=json.loads, default={}, help="constructor arguments as JSON")
    asked = parser.parse_args()
    X, y, X_test, y_test = digits(ten=True)
    solver = Natural(
        rate=0.03, row_batch=200, jitter=1e-6, max_steps=100_000, e_steps=asked.e_steps, m_steps=asked.m_steps
    )  # fmt: skip
    params = {
        "solver": solver, "hyperparameters": Learn(rows=200, rate=0.03, isotropic=True), "dtype": "float32",
        "inducing_inputs": "random",
    }  # fmt: skip
    params |= asked.set
    model = TSVGPClassifier("rbf", 100, max_seconds=asked.seconds, **params)
    rates = machine_rates()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    found = classification_report(y_test, model.predict_proba(X_test), classes=model.classes_)
    result = {
        "method": "vastgp TSVGPClassifier", "e_steps": asked.e_steps, "m_steps": asked.m_steps,
        "params": {name: str(value) for name, value in params.items()},
        "seconds": round(model.fit_seconds_, 1), "steps": model.n_iter_, "reason": model.stop_reason_,
        "learned": repr(model.kernel_), "diagnosis": model.diagnosis_,
        "test": {key: float(found[key]) for key in ("accuracy", "nlpd", "brier", "ece")},
        "history": {
            "seconds": model.history_.seconds[::20], "objective": model.history_.objective[::20],
        },
        "peak_mb": round(peak_mb()), **rates,
    }  # fmt: skip
    put(OUT, result, ("method", "e_steps", "m_steps"))
    print(
        json.dumps({key: result[key] for key in ("seconds", "steps", "reason", "test", "learned")})
    )


if __name__ == "__main__":
    main()
