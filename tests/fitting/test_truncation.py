"""Laws of random truncations."""

import numpy as np
import pytest

from vastgp.fitting.truncation import Roulette, SingleTerm, roulette

LAW = Roulette(5, 60, 0.1)


def masses(law):
    j = np.arange(1, law.most + 1)
    p = np.where(j >= law.minimum, np.exp(-law.temperature * (j - law.minimum)), 0.0)
    return j, p / p.sum()


def test_survival_is_the_sum_of_the_tail_to_full_precision():
    j, p = masses(LAW)
    tails = np.cumsum(p[::-1])[::-1]  # from the small end
    np.testing.assert_allclose(LAW.survival(j), tails, rtol=1e-12)
    # a law whose tail is far below the rounding of one
    steep = Roulette(1, 400, 0.5)
    expected = np.exp(-0.5 * 379) / (1.0 - np.exp(-0.5 * 400)) * -np.expm1(-0.5 * 20)
    assert steep.survival(np.array([380 + 1 - 1]))[0] == pytest.approx(
        np.exp(-0.5 * 379) * np.expm1(-0.5 * 21) / np.expm1(-0.5 * 400), rel=1e-12
    )
    assert expected > 0.0


def test_draws_follow_the_law():
    j, p = masses(LAW)
    draws = LAW.draw(1.0 - np.random.default_rng(0).random(200_000))
    assert draws.min() == 5 and draws.max() <= 60
    shares = np.bincount(draws, minlength=61)[1:] / 200_000
    assert np.all(np.abs(shares - p) <= 4.5 * np.sqrt(p * (1 - p) / 200_000) + 1e-12)
    assert LAW.mean() == pytest.approx(float(j @ p))
    later = np.maximum(draws[:100_000], draws[100_000:])
    assert abs(later.mean() - LAW.mean_of_later()) < 4.0 * later.std() / 100_000**0.5
    assert LAW.draw(np.array([1.0]))[0] == 5 and LAW.draw(np.array([1e-300]))[0] == 60


def test_weights_have_expectation_one():
    j, p = masses(LAW)
    mean = sum(p[J - 1] * LAW.weights(int(J)) for J in j)
    np.testing.assert_allclose(mean, 1.0, rtol=1e-10)
    # the later of two
    cdf = np.cumsum(p)
    later = cdf**2 - np.append(0.0, cdf[:-1]) ** 2
    mean = sum(later[J - 1] * LAW.weights_of_later(int(J)) for J in j)
    np.testing.assert_allclose(mean, 1.0, rtol=1e-9)


def test_stopping_to_weight_where_the_sum_has_converged_is_biased():
    # "If the residual converges before the truncation, plain CG is exact and needs no reweighting": not so
    terms = np.where(np.arange(1, 61) <= 20, 0.8 ** np.arange(60), 0.0)  # complete after 20 terms
    j, p = masses(LAW)
    always = [LAW.weights(int(J)) @ terms for J in j]
    unless_converged = [terms.sum() if J >= 20 else LAW.weights(int(J)) @ terms for J in j]
    assert p @ always == pytest.approx(terms.sum(), rel=1e-12)
    assert abs(p @ unless_converged - terms.sum()) > 1e-3 * terms.sum()
    # but complete by the minimum, weights are one by themselves
    np.testing.assert_array_equal(LAW.weights(33)[:5], 1.0)


@pytest.mark.parametrize("expected", [1, 4, 20, 100])
def test_the_law_has_the_mean_asked_for(expected):
    law = roulette(expected, 0.05, 5000)
    assert law.mean_of_later() == pytest.approx(expected, abs=1.0)
    assert law.minimum >= expected // 4
    assert roulette(100, 0.05, 30).most == 30


def test_single_terms_follow_the_inverse_square():
    law = SingleTerm((20, 30, 40, 400))
    p = law.probabilities()
    np.testing.assert_allclose(p / p[0], [1.0, (20 / 30) ** 2, 0.25, 0.0025])
    assert p.sum() == pytest.approx(1.0)
    draws = [law.draw(u) for u in (np.arange(10_000) + 0.5) / 10_000]
    np.testing.assert_allclose(np.bincount(draws) / 10_000, p, atol=2e-4)
    assert law.mean() == pytest.approx(p @ np.array(law.sizes))
    assert law.draw(0.0) == 0 and law.draw(1.0 - 1e-16) == 3
