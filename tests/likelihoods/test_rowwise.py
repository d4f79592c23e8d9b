"""Methods of likelihoods at many rows."""

import numpy as np
import pytest

from compiled_programs import count_programs
from likelihoods.conformance import Compiled
from vastgp._precision import precision
from vastgp.likelihoods import Gaussian, HeteroskedasticGaussian, Softmax, StudentT, rowwise
from vastgp.likelihoods.rowwise import by_rows

pytestmark = pytest.mark.little_work


def moments(functions, n, seed=0):
    rng = np.random.default_rng(seed)
    shape = (functions, n) if functions > 1 else (n,)
    return rng.normal(size=shape), rng.uniform(0.1, 9.0, shape)


@pytest.mark.parametrize("n", [1, 16, 37])
@pytest.mark.parametrize(
    "likelihood", [Gaussian(0.3), StudentT(0.5, 4.0), HeteroskedasticGaussian(0.5), Softmax(3)]
)
def test_values_are_those_of_the_method(likelihood, n, monkeypatch):
    monkeypatch.setattr(rowwise, "_TILE", 16)
    mean, variance = moments(likelihood.num_latent, n)
    y = np.random.default_rng(1).integers(0, 3, n).astype(float)
    with precision("float64"):
        for method, arguments in [
            ("predictive_mean", (mean, variance)),
            ("log_density", (y, mean, variance)),
            ("sites", (y, mean, variance)),
        ]:
            expected = getattr(Compiled(likelihood), method)(*arguments)
            found = by_rows(likelihood, method, *arguments)
            if method != "sites":
                expected, found = (expected,), (found,)
            for a, b in zip(expected, found, strict=True):
                assert np.shape(a) == b.shape
                np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)


def test_one_program_serves_all_sizes():
    likelihood = Softmax(4)
    given = {n: moments(4, n) for n in (200, 201, 255, 130, 300)}
    made = []
    with precision("float64"):
        for arguments in given.values():
            with count_programs() as programs:
                by_rows(likelihood, "predictive_mean", *arguments)
                made.append(programs())
    assert made[0] >= 1 and made[1:4] == [0, 0, 0]
    assert made[4] == 1
