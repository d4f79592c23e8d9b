"""Of how many rows an exact process's hyperparameters are learned."""

from __future__ import annotations

import numpy as np
import pytest

from vastgp import ExactGPRegressor
from vastgp.fitting import start
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.run import Run
from vastgp.methods.exact import learning
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


def test_a_stage_that_follows_does_what_the_start_would_do_last(monkeypatch):
    """All rows are climbed once, and as high as after a start that was refined; sums are climbed on fewer."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-3.0, 3.0, (340, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * generator.normal(size=340)
    climbed: list[tuple[int, str]] = []
    gradient = ExactEvidence.value_and_gradient

    def value_and_gradient(self, kernel, noise_variance):
        climbed.append((self.num_rows, type(kernel).__name__))
        return gradient(self, kernel, noise_variance)

    monkeypatch.setattr(ExactEvidence, "value_and_gradient", value_and_gradient)
    for module, name, number in (
        (start, "_PART_ROWS", 200), (learning, "START_ROWS", 200), (learning, "_COMPARED_ROWS", 300),
        (learning, "_SUM_ROWS", (300, 200)),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, number)
    found, by_start = [], []
    for soon in (learning._SOON, 0.0):
        climbed.clear()
        monkeypatch.setattr(learning, "_SOON", soon)
        search = learning.Search(None, Learn(rows=340, noise_floor=1e-6), 1, 60, 1e-4)
        found.append(learning.learn_by_stages(search, X, y - y.mean(), Run(), None)[0].value)
        by_start.append(sum(rows == 300 for rows, _ in climbed))
        assert any(kind == "Sum" for rows, kind in climbed if rows == 200)
    assert found[0] == pytest.approx(found[1], abs=0.05)
    assert by_start[0] == 0 and by_start[1] > 10
