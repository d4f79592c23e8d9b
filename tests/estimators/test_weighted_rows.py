"""Weights of labelled rows: a row counts as so many rows of its label would."""

import numpy as np
import pytest

import vastgp
from vastgp import TSVGPClassifier
from vastgp.kernels import RBF
from vastgp.likelihoods import Bernoulli, Gaussian, Softmax, Weighted, from_spec, to_spec
from vastgp.options import Classes

QUICK = {"kernel": RBF([0.8, 3.0], 4.0), "num_inducing": 12, "hyperparameters": "fixed"}


def labelled(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.where(np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=n) > 0.3, "a", "b")


@pytest.mark.little_work
@pytest.mark.parametrize("law", [Bernoulli(), Bernoulli("probit"), Softmax(3)])
def test_what_a_fit_averages_is_taken_as_often_as_the_row_counts(law):
    rng = np.random.default_rng(1)
    w, shape = rng.uniform(0.1, 5.0, 6), (6,) if law.num_latent == 1 else (3, 6)
    labels = rng.choice([-1.0, 1.0], 6) if law.num_latent == 1 else rng.integers(3, size=6) * 1.0
    mean, variance = rng.normal(size=shape), rng.uniform(0.1, 2.0, shape)
    both, weighted = np.column_stack([labels, np.log(w)]), Weighted(law)
    for method in ("expected_log_prob", "site_bound", "sites"):
        found = getattr(weighted, method)(both, mean, variance)
        wanted = getattr(law, method)(labels, mean, variance)
        for mine, plain in zip(np.atleast_2d(*[found]), np.atleast_2d(*[wanted]), strict=True):
            np.testing.assert_allclose(mine, plain * w, rtol=1e-5)
    for method in ("log_density", "log_prob"):
        args = (mean, variance) if method == "log_density" else (mean,)
        np.testing.assert_allclose(
            getattr(weighted, method)(both, *args), getattr(law, method)(labels, *args)
        )
    assert weighted.shift_invariant == law.shift_invariant and weighted.log_concave
    assert repr(from_spec(to_spec(weighted))) == repr(weighted)


def test_weights_of_rows_that_are_those_of_their_classes_are_these():
    X, y = labelled()
    first = y == "a"
    # of mean one
    of_class = {"a": 0.5, "b": (len(y) - 0.5 * first.sum()) / (~first).sum()}
    rows = TSVGPClassifier(**QUICK).fit(
        X, y, sample_weight=np.where(first, 5.0, 10 * of_class["b"])
    )
    classes = TSVGPClassifier(**QUICK, likelihood=Classes(class_weight=of_class)).fit(X, y)
    plain = TSVGPClassifier(**QUICK).fit(X, y)
    new = labelled(40, 5)[0]
    np.testing.assert_allclose(rows.predict_proba(new), classes.predict_proba(new), atol=1e-6)
    assert np.abs(rows.predict_proba(new) - plain.predict_proba(new)).max() > 0.02
    assert isinstance(rows.likelihood_, Bernoulli)
    np.testing.assert_allclose(rows.diagnosis_["bound"], classes.diagnosis_["bound"], rtol=1e-6)


def test_rows_of_weight_zero_are_left_out(tmp_path):
    X, y = labelled()
    left = np.arange(len(y)) % 3 > 0
    found = TSVGPClassifier(**QUICK).fit(X, y, sample_weight=7.0 * left)
    wanted = TSVGPClassifier(**QUICK).fit(X[left], y[left])
    new = labelled(40, 5)[0]
    np.testing.assert_array_equal(found.predict_proba(new), wanted.predict_proba(new))
    found.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    np.testing.assert_array_equal(again.predict_proba(new), found.predict_proba(new))
    with pytest.raises(ValueError, match="zero for all rows of the class 'a'"):
        TSVGPClassifier(**QUICK).fit(X, y, sample_weight=1.0 * (y == "b"))
    with pytest.raises(ValueError, match="sample_weight must hold finite numbers"):
        TSVGPClassifier(**QUICK).fit(X, y, sample_weight=np.where(left, 1.0, -1.0))
    with pytest.raises(ValueError, match="likelihood of labels"):
        Weighted(Gaussian(1.0))
