"""First hyperparameters that the clock cut short: a fit that goes on with more time looks for them again."""

from itertools import count

import numpy as np
import pytest

from vastgp import ExactGPRegressor, QSGPRegressor, TSVGPRegressor
from vastgp.fitting import lbfgs
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.methods.exact import learning
from vastgp.options import Learn

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ENOUGH = 1e6  # seconds, which no fit takes


class Killed(Exception):
    """Stands for the end of the process: nothing after it runs."""


def rows(counts=False):
    generator = np.random.default_rng(0)
    X = generator.uniform(-2.0, 2.0, size=(80, 3))
    f = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1]
    return X, generator.poisson(np.exp(f)) if counts else f + 0.1 * generator.normal(size=80)


def fit(make, data, monkeypatch, *, hurried=False, dies=False, **given):
    """Return a model; hurried, each climb has time for one evaluation; one that dies does so at its first record."""
    whole = Checkpoint.write

    def write(file):
        whole(file)
        if dies:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "due", lambda file: "first hyperparameters" in file.phases)
        patched.setattr(Checkpoint, "write", write)
        if hurried:
            patched.setattr(lbfgs, "now", map(float, count(step=10 * int(ENOUGH))).__next__)
        return make(**given).fit(*data)


def qsgp(**given):
    return QSGPRegressor("rbf", num_basis=60, **given)


def tsvgp(**given):
    return TSVGPRegressor("rbf", num_inducing=20, likelihood="poisson", **given)


def exact(**given):
    return ExactGPRegressor("rbf", hyperparameters=Learn(rows=40), **given)


@pytest.mark.parametrize("make", [qsgp, tsvgp, exact])
def test_a_search_cut_by_the_clock_is_whole_where_there_is_more_time(make, tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "START_ROWS", 40)
    data, path = rows(counts=make is tsvgp), tmp_path / "fit"
    new = rows()[0][:7] + 0.1

    def predicted(model):
        return np.array(model.predict(new, return_std=True))

    def cut_short():
        path.unlink(missing_ok=True)
        with pytest.raises(Killed):
            fit(make, data, monkeypatch, hurried=True, dies=True, max_seconds=ENOUGH, checkpoint=path)  # fmt: skip

    plain = predicted(fit(make, data, monkeypatch))
    cut = predicted(fit(make, data, monkeypatch, hurried=True, max_seconds=ENOUGH))
    assert np.abs(cut - plain).max() > 1e-3
    # with no more time than there was it is the fit that was left alone
    cut_short()
    again = fit(make, data, monkeypatch, hurried=True, max_seconds=ENOUGH, checkpoint=path)
    np.testing.assert_array_equal(predicted(again), cut)
    for more in (None, 2.0 * ENOUGH):
        cut_short()
        longer = fit(make, data, monkeypatch, max_seconds=more, checkpoint=path)
        np.testing.assert_array_equal(predicted(longer), plain)
        assert longer.converged_ and not path.exists()
