"""A report of invented sales, with names that try to break the page."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from vastgp.auto.calibration_record import calibration_record
from vastgp.auto.report import ReportData, effects, permutation_importance, surprises

EVIL = "<script>alert('x')</script> & \"co\" $a$"


def case():
    rng = np.random.default_rng(0)
    n = 800
    X = np.stack([rng.uniform(20, 240, n), rng.uniform(1900, 2024, n), rng.integers(0, 4, n)], 1)
    kinds = np.array(["flat", "house", EVIL, "loft"])
    truth = 900 * X[:, 0] + 40_000 * np.sin(X[:, 1] / 20) + 30_000 * (X[:, 2] == 1)
    std = 8000 + 60 * X[:, 0]
    y = truth + std * rng.standard_t(4, n) / np.sqrt(1.6)

    def predict(rows):
        mean = 900 * rows[:, 0] + 40_000 * np.sin(rows[:, 1] / 20) + 30_000 * (rows[:, 2] == 1)
        return mean, np.full(len(rows), 4000.0)

    def log_density(rows, targets):
        mean, spread = predict(rows)[0], 8000 + 60 * rows[:, 0]
        return -0.5 * ((targets - mean) / spread) ** 2 - np.log(spread) - 0.919

    u = ndtr((y - truth) / std)
    groups = {"living area": [0], "year": [1], EVIL: [2]}
    table = np.stack(
        [X[:, 0].astype(object), X[:, 1].astype(object), kinds[X[:, 2].astype(int)]], 1
    )
    lengthscales = {"living area": 1.3, "year": 0.21, EVIL: 2.8}
    importance = permutation_importance(log_density, X, y, groups)
    return ReportData(
        title="House prices",
        target="price ($)",
        rows=15_200,
        columns=[
            ("living area", "number", "standardised"),
            ("year", "number", "standardised; 120 missing values filled with 1978 and marked"),
            (
                EVIL,
                "category, 4 levels",
                "one lengthscale; a level never seen is as far as the prior says",
            ),
            ("advert_id", "identifier", "left out: every value is different"),
        ],
        model=[
            "A Gaussian process with a Matérn 5/2 kernel and one lengthscale for each input, fitted to all "
            "15,200 rows by QSGP with 20,000 basis functions.",
            "Noise: a deviation of 8,200 around the function.",
        ],
        leaderboard=[
            {
                "method": "QSGPRegressor",
                "rows": 15_200,
                "seconds": 41.2,
                "nlpd": 11.32,
                "nlpd_error": 0.04,
                "rmse": 14_210,
                "coverage": 0.948,
                "kept": True,
            },
            {
                "method": "TSVGPRegressor",
                "rows": 15_200,
                "seconds": 18.0,
                "nlpd": 11.41,
                "nlpd_error": 0.04,
                "rmse": 15_050,
                "coverage": 0.956,
            },
            {
                "method": "GriefRegressor",
                "rows": 4000,
                "seconds": 6.1,
                "note": "failed: the grid of 12 inputs is too large",
            },
        ],
        baselines=[
            {
                "method": "linear regression",
                "rows": 15_200,
                "seconds": 0.2,
                "nlpd": 12.3,
                "nlpd_error": 0.05,
                "rmse": 41_000,
                "coverage": 0.951,
            },
            {
                "method": "mean and deviation of the target",
                "nlpd": 13.1,
                "nlpd_error": 0.03,
                "rmse": 72_000,
                "coverage": 0.944,
            },
        ],
        calibration=calibration_record(y, truth, std, u, table, list(groups)),
        calibrated="Levels are calibrated on 800 held-out rows by one factor of the deviation, 1.08.",
        y=y,
        mean=truth,
        std=std,
        u=u,
        importance=[(*one, lengthscales[one[0]]) for one in importance],
        effects=effects(predict, X, groups, {EVIL: lambda v: kinds[v[:, 0].astype(int)]}),
        surprises=surprises(
            y,
            truth,
            std,
            u,
            lambda k: dict(zip(groups, table[k], strict=True)),
            np.arange(n) + 15_200,
        ),
        advice=[
            "More time: the race ended before TSVGPRegressor had all rows; max_seconds=300 gives it them.",
            "Heavy tails: try likelihood='student-t'.",
        ],
        phases=[
            ("reading and encoding", 1.2),
            ("race", 22.0),
            ("winner on all rows", 34.0),
            ("calibration", 0.04),
        ],
        notes=["37 rows without a price were left out."],
        versions={"vastgp": "0.1", "jax": "0.10.2"},
        seed=0,
    )
