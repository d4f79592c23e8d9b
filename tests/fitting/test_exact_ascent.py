"""L-BFGS on an exact evidence: where it ends, and what it says."""

import numpy as np
import pytest

from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.fitting.best_fit import log_density
from vastgp.fitting.exact_ascent import climb_exact_evidence
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian
from vastgp.solvers.basis_evidence import BasisEvidence


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=60)
    return X, (y - y.mean()) / y.std()


def test_it_says_converged_at_the_top_and_only_there(data):
    evidence, start = ExactEvidence(*data), (RBF([3.0]), Gaussian(1.0))
    given = {"noise_floor": 1e-3, "tol": 1e-4}
    kernel, noise, loop = climb_exact_evidence(evidence, start, Run(), steps=100, **given)
    assert loop.converged and loop.reason.startswith("converged: ")
    top = log_density(evidence, (kernel, Gaussian(noise)))
    for by in (0.97, 1.03):
        assert log_density(evidence, (kernel, Gaussian(noise * by))) < top
        near = RBF(np.asarray(kernel.lengthscales) * by, float(kernel.variance))
        assert log_density(evidence, (near, Gaussian(noise))) < top
    _, _, loop = climb_exact_evidence(evidence, start, Run(), steps=2, **given)
    assert not loop.converged and loop.num_iter == 2
    assert loop.reason == "2 steps of learning did not end in slopes of 0.0001 or less for each row"


def test_the_evidence_of_a_basis_is_that_of_its_own_precision(data):
    # frequencies are drawn in the precision of the features: other ones are another model
    X, y = data
    basis = RandomFourierBasis(RBF([0.5]), seed_key(3), 40)
    values = [
        BasisEvidence(X, y, basis, dtype)(RBF([0.5]), 0.1) for dtype in ("float32", "float64")
    ]
    assert abs(values[0] - values[1]) > 0.1
