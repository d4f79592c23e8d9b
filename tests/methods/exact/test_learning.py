"""Of how many rows an exact process's hyperparameters are learned."""

from __future__ import annotations

import numpy as np
import pytest

from vastgp import ExactGPRegressor
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.options import Learn


@pytest.mark.parametrize("kernel", ["rbf", None])
def test_no_more_rows_than_asked_for_are_learned_on(monkeypatch, kernel):
    generator = np.random.default_rng(0)
    X = generator.uniform(-3.0, 3.0, (150, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * generator.normal(size=150)
    learned: list[int] = []
    gradient = ExactEvidence.value_and_gradient
    monkeypatch.setattr(
        ExactEvidence,
        "value_and_gradient",
        lambda self, *params: (learned.append(self.num_rows), gradient(self, *params))[1],
    )
    model = ExactGPRegressor(kernel, restarts=1, hyperparameters=Learn(rows=40)).fit(X, y)
    assert set(learned) == {40}
    assert model.stop_reason_ == "kernel and noise are those of 40 rows"
    assert len(model.posterior_.X) == 150
    assert model.score(X, y) > 0.9
