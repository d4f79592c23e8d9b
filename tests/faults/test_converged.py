"""What says "converged" is where ten times the work would end, within what ``tol`` promises."""

import jax
import numpy as np
import pytest

from hard_tables import Table
from longer_fits import LONGER, moved
from vastgp.fitting.best_fit import fit_evidence
from vastgp.fitting.candidates import bounds_of
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian


def standardised(table, seed=0):
    X, y, new, _ = table.draw(seed)
    center, scale = X.mean(axis=0), X.std(axis=0)
    return (X - center) / scale, (y - y.mean()) / y.std(), (new[:100] - center) / scale


@pytest.mark.parametrize(
    "table", [Table(20, useful=2, level=0.2), Table(40, useful=2, level=0.001)]
)
def test_the_evidence_is_flat_where_learning_says_that_it_is(table):
    """By central differences of it and its prior, in every logarithm; slopes of 2 to 8 ``tol`` passed as none."""
    X, y, _ = standardised(table)
    evidence, floor, tol = ExactEvidence(X, y), 1e-6, 1e-5
    start = RBF([1.0, 1.0]), Gaussian(0.1)
    found = fit_evidence(evidence, start, noise_floor=floor, tol=tol)
    leaves, structure = jax.tree.flatten(found.params)
    logs = np.log(np.concatenate([np.ravel(leaf) for leaf in leaves]))
    low, high = (
        np.log(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(bound)]))
        for bound in bounds_of(start, floor)
    )
    prior = HyperparameterPrior(2)

    def value(point):
        parts = np.split(np.exp(point), np.cumsum([np.size(leaf) for leaf in leaves])[:-1])
        shaped = [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
        params = jax.tree.unflatten(structure, shaped)
        return evidence.objective(params)[0] + prior(params)[0]

    steps = 1e-4 * np.eye(len(logs))
    slope = np.array([value(logs + step) - value(logs - step) for step in steps]) / 2e-4 / len(y)
    inside = np.clip(logs + slope, low, high) - logs
    assert found.converged
    assert np.max(np.abs(inside)) <= tol * 1.01


@pytest.mark.parametrize("name", ["ExactGPRegressor", "QSGPRegressor, block", "DirectRegressor"])
def test_ten_times_the_work_moves_predictions_by_less_than_tol(name):
    case = LONGER[name]
    X, y, new = standardised(Table(60, useful=2, level=0.2))
    short, long = case.fits(X, y)
    assert short.converged_ and (long.converged_ or case.rule)
    assert long.n_iter_ >= short.n_iter_
    assert -1e-9 <= moved(short, long, new) <= case.allowed(len(y))


@pytest.mark.parametrize("name", ["DirectClassifier", "SVGPClassifier"])
def test_ten_times_the_work_moves_probabilities_by_less_than_tol(name):
    case = LONGER[name]
    X, y, new, _ = Table(60, useful=2, target="classes", level=0.3).draw(0)
    short, long = case.fits(X, y)
    assert short.converged_ and (long.converged_ or case.rule)
    assert -1e-9 <= moved(short, long, new[:100]) <= case.allowed(len(y))
