"""Starting values from the evidence of a few rows."""

import time
from dataclasses import replace

import jax
import numpy as np
import pytest

from vastgp.fitting.best_fit import fit_evidence
from vastgp.fitting.candidates import BOUNDS, bounds_of, candidate_kernels, default_values
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.fitting.start import _highest, start_from_exact_gp
from vastgp.kernels import RBF, Matern12, Matern32, RationalQuadratic
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError


def draw(kernel, noise_variance, n, d, seed):
    """Return rows of a Gaussian process with these hyperparameters."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    from vastgp._precision import precision

    with precision("float64"):
        A = np.asarray(kernel(jax.numpy.asarray(X), jax.numpy.asarray(X)))
    return X, np.linalg.cholesky(A + noise_variance * np.eye(n)) @ rng.normal(size=n)


def test_it_recovers_what_the_data_were_drawn_from():
    truth = RBF([0.8, 2.5], 1.4)
    X, y = draw(truth, 0.04, 250, 2, seed=0)
    kernel, noise_variance, evidence, cut = start_from_exact_gp("rbf", X, y)
    assert not cut
    np.testing.assert_allclose(kernel.lengthscales, truth.lengthscales, rtol=0.25)
    assert noise_variance == pytest.approx(0.04, rel=0.25)
    assert evidence == pytest.approx(ExactEvidence(X, y)(kernel, noise_variance), rel=1e-9)
    assert evidence >= ExactEvidence(X, y)(truth, 0.04)


def test_none_keeps_the_kernel_of_highest_evidence():
    X, y = draw(Matern32([0.8, 2.5], 1.4), 0.001, 150, 2, seed=1)
    chosen = start_from_exact_gp(None, X, y)
    each = {name: start_from_exact_gp(name, X, y) for name in ("rbf", "matern52", "matern32")}
    assert isinstance(chosen.kernel, Matern32)
    assert chosen.log_evidence == pytest.approx(
        max(start.log_evidence for start in each.values()), abs=0.01
    )
    assert each["matern32"].log_evidence > each["rbf"].log_evidence + 1.0


def test_own_values_far_from_the_data_do_not_trap_it():
    X, y = draw(RBF([0.8, 2.5]), 0.01, 100, 2, seed=2)
    far = start_from_exact_gp(RBF(1e-6), X, y)
    assert far.log_evidence == pytest.approx(
        start_from_exact_gp("rbf", X, y).log_evidence, abs=0.01
    )


def test_own_values_count_where_they_are_better():
    # Two maxima: the default start ends in the lower one. (Of one part, a shorter one finds the other.)
    rng = np.random.default_rng(17)
    X = rng.uniform(-4.0, 4.0, size=(12, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=12)
    X, y = (X - X.mean()) / X.std(), (y - y.mean()) / y.std()
    default = start_from_exact_gp("rbf + constant", X, y)
    best = start_from_exact_gp("rbf + constant", X, y, restarts=8)
    assert start_from_exact_gp("rbf", X, y).log_evidence > default.log_evidence + 0.5
    own = start_from_exact_gp(best.kernel, X, y)
    assert own.log_evidence > default.log_evidence + 0.5
    assert own.log_evidence == pytest.approx(best.log_evidence, abs=0.01)


def test_the_noise_has_a_floor():
    X = np.linspace(-1.7, 1.7, 40)[:, None]
    y = np.sin(X[:, 0]) * 2.0**0.5
    for floor in (1e-4, 1e-2):
        noise_variance = start_from_exact_gp("rbf", X, y, noise_floor=floor).noise_variance
        assert noise_variance == pytest.approx(floor, rel=1e-9)


def test_inputs_without_influence_stay_inside_the_bounds():
    X, y = draw(RBF([0.8, 1e6, 1e6]), 0.01, 120, 3, seed=3)
    kernel, *_ = start_from_exact_gp("rbf", X, y)
    assert kernel.lengthscales[0] < 2.0
    assert np.all(kernel.lengthscales[1:] > 5.0)
    low, high = BOUNDS["lengthscales"]
    assert np.all((kernel.lengthscales >= low) & (kernel.lengthscales <= high))


def test_more_rows_than_asked_for_are_sampled_by_the_seed():
    X, y = draw(RBF([0.8, 2.5]), 0.01, 90, 2, seed=4)
    first = start_from_exact_gp("rbf", X, y, max_rows=40, seed=5)
    again = start_from_exact_gp("rbf", X, y, max_rows=40, seed=5)
    other = start_from_exact_gp("rbf", X, y, max_rows=40, seed=6)
    assert first.log_evidence == again.log_evidence != other.log_evidence
    whole = start_from_exact_gp("rbf", X, y)
    assert abs(first.log_evidence) < abs(whole.log_evidence)


def test_a_budget_ends_it_after_one_iteration_of_one_kernel():
    X, y = draw(RBF([0.8, 2.5]), 0.01, 90, 2, seed=4)
    start_from_exact_gp(None, X, y, max_seconds=0.0)  # compiles
    began = time.perf_counter()
    start = start_from_exact_gp(None, X, y, max_seconds=0.0)
    assert isinstance(start.kernel, RBF) and np.isfinite(start.log_evidence)
    assert start.cut
    assert time.perf_counter() - began < 1.0


@pytest.mark.parametrize(("n", "constant"), [(2, False), (30, True)])
def test_data_with_nothing_to_say_give_finite_values(n, constant):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    X[:, 1] = 0.0  # a constant input, standardised
    y = np.zeros(n) if constant else rng.normal(size=n)
    start = start_from_exact_gp(None, X, y)
    assert np.isfinite(start.log_evidence)
    for leaf in jax.tree.leaves(start.kernel):
        assert np.all(np.isfinite(leaf)) and np.all(leaf > 0.0)


# ---------------------------------------------------------------- default values


def test_defaults_fit_standardised_data_and_tell_parts_apart():
    kernel = default_values(RBF(7.0, 3.0).with_ard(9), 9)
    np.testing.assert_allclose(kernel.lengthscales, np.full(9, 3.0))
    assert kernel.total_variance() == pytest.approx(1.0)
    for kernel in (RBF() + Matern12(), RBF() * RationalQuadratic(alpha=5.0), RBF() * RBF() + RBF()):
        default = default_values(kernel.with_ard(4), 4)
        assert float(default.total_variance()) == pytest.approx(1.0)
        scales = [leaf[0] for leaf in jax.tree.leaves(default) if np.shape(leaf)]
        assert len(set(np.round(scales, 6))) == len(scales)
        assert np.exp(np.mean(np.log(scales))) == pytest.approx(2.0)


def test_bounds_have_the_form_of_the_kernel():
    kernel = (RBF() + RationalQuadratic()).with_ard(3)
    (low, low_noise), (high, high_noise) = bounds_of((kernel, Gaussian(0.1)), 1e-3)
    assert jax.tree.structure(low) == jax.tree.structure(kernel) == jax.tree.structure(high)
    for small, value, large in zip(*map(jax.tree.leaves, (low, kernel, high)), strict=True):
        assert np.shape(small) == np.shape(value) == np.shape(large)
        assert np.all(small < value) and np.all(value < large)
    assert float(low_noise.noise_variance) == 1e-3 < float(high_noise.noise_variance)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("gauss", "kernel must be one of 'rbf'"),
        (RBF, "kernel must be a Kernel such as vastgp.Matern32"),
        (1.0, "received 1.0"),
        (RBF([1.0, 2.0]), "kernel has 2 lengthscales but the data have 3 features"),
    ],
)
def test_what_is_no_kernel_is_named(bad, message):
    with pytest.raises(ValueError, match=message):
        candidate_kernels(bad, 3)


def test_parts_are_compared_and_refined_on_all_rows(monkeypatch):
    """The fit to several parts has the evidence of the best of them on all rows, or more."""
    from vastgp.fitting import start

    monkeypatch.setattr(start, "_PART_ROWS", 60)
    monkeypatch.setattr(start, "_BY_CHANCE", -np.inf)  # whatever the second part says
    X, y = draw(Matern32([0.8, 2.5], 1.4), 0.05, 200, 2, seed=5)
    parts = []
    fit_best = start.fit_best

    def watched(*arguments, **options):
        parts.append(fit_best(*arguments, **options))
        return parts[-1]

    monkeypatch.setattr(start, "fit_best", watched)
    found = start_from_exact_gp("matern32", X, y)
    assert len(parts) == 3
    before = [
        ExactEvidence(X, y)(kernel, float(likelihood.noise_variance))
        for kernel, likelihood in (part.params for part in parts)
    ]
    assert max(before) - min(before) > 0.5  # they differ, so that the choice matters
    assert found.log_evidence > max(before) + 0.1
    assert found.log_evidence == pytest.approx(
        ExactEvidence(X, y)(found.kernel, found.noise_variance), rel=1e-9
    )


@pytest.mark.parametrize(("away", "refined"), [(0.5, False), (50.0, True)])
def test_an_evidence_of_the_model_refines_where_it_differs_from_the_exact_one(away, refined):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(150, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=150)
    asked = []

    class Shifted(ExactEvidence):
        """The exact evidence less so many nats."""

        def solve(self, kernel, noise_variance):
            asked.append(kernel)
            value, *rest = super().solve(kernel, noise_variance)
            return value - away, *rest

    found = start_from_exact_gp(RBF(1.0), X, y, evidence=lambda X, y, rate: Shifted(X, y))
    alone = start_from_exact_gp(RBF(1.0), X, y)
    assert (len(asked) > 1) == refined
    assert found.log_evidence == pytest.approx(alone.log_evidence - away * refined, abs=0.2)
    np.testing.assert_allclose(found.kernel.lengthscales, alone.kernel.lengthscales, rtol=0.1)


def test_an_evidence_of_the_model_that_fails_gives_way_to_the_exact_one_and_says_so():
    X, y = draw(RBF([0.8, 2.5]), 0.01, 120, 2, seed=4)

    class Failing(ExactEvidence):
        def solve(self, kernel, noise_variance):
            raise FactorizationError("not positive definite")

    with pytest.warns(RuntimeWarning, match="exact evidence.*not positive definite"):
        found = start_from_exact_gp("rbf", X, y, evidence=lambda X, y, rate: Failing(X, y))
    assert found.log_evidence == start_from_exact_gp("rbf", X, y).log_evidence


def test_fits_are_compared_at_the_amplitude_and_noise_that_suit_all_rows():
    """Right lengthscales with far too little noise lose against calling everything noise, until both are rescaled."""
    X, y = draw(Matern32([0.8, 2.5], 1.4), 0.3, 200, 2, seed=5)
    right = fit_evidence(
        ExactEvidence(X, y), (Matern32([0.8, 2.5], 1.4), Gaussian(0.3)), noise_floor=1e-4
    )
    hasty = replace(right, params=(Matern32([0.8, 2.5], 0.7), Gaussian(2e-3)))
    timid = replace(right, params=(Matern32([30.0, 30.0], 0.5), Gaussian(1.3)))
    evidence = ExactEvidence(X, y)

    def value(fit):
        return evidence(fit.params[0], float(fit.params[1].noise_variance))

    assert value(hasty) < value(timid) - 50.0
    prior = HyperparameterPrior(2)
    best = _highest(evidence, [timid, hasty], prior, 1e-4, None)
    np.testing.assert_allclose(best.params[0].lengthscales, [0.8, 2.5])
    assert value(best) + prior(best.params)[0] == pytest.approx(best.value)
    assert value(best) > value(timid) + 10.0
    assert best.value > right.value - 10.0


def test_forms_that_are_clearly_behind_on_few_rows_are_not_fitted_to_all(monkeypatch):
    """Of three, 300 rows of a rough function rule out the smoothest; the best of the others goes on alone."""
    X, y = draw(Matern32([0.8, 2.5], 1.4), 0.001, 600, 2, seed=1)
    asked = []
    evaluate = ExactEvidence.value_and_gradient

    def counted(self, kernel, noise_variance):
        asked.append((type(kernel).__name__, self.num_rows))
        return evaluate(self, kernel, noise_variance)

    monkeypatch.setattr(ExactEvidence, "value_and_gradient", counted)
    found = start_from_exact_gp(None, X, y)
    on_few = {name for name, rows in asked if rows == 300}
    on_all = [name for name, rows in asked if rows == 600]
    assert on_few == {"RBF", "Matern52", "Matern32"}
    assert "RBF" not in on_all and isinstance(found.kernel, Matern32)
    alone = start_from_exact_gp("matern32", X, y)
    assert found.log_evidence == pytest.approx(alone.log_evidence, abs=0.05)


@pytest.mark.parametrize(("left", "asked"), [(2.0, 0), (60.0, 1)])
def test_another_evidence_is_asked_where_there_is_time_to_compile_it(monkeypatch, left, asked):
    X, y = draw(Matern32([0.8, 2.5], 1.4), 0.3, 200, 2, seed=5)
    monkeypatch.setattr("vastgp.fitting.start.seconds_until", lambda deadline: left)
    made = []
    found = start_from_exact_gp(
        "matern32", X, y, max_seconds=100.0, evidence=lambda X, y, rate: made.append(rate)
    )
    assert len(made) == asked
    assert found.kernel.lengthscales[0] < found.kernel.lengthscales[1]


def test_of_fits_that_are_compared_late_the_first_is_left(monkeypatch):
    X, y = draw(Matern32([0.8, 2.5], 1.4), 0.3, 200, 2, seed=5)
    fit = fit_evidence(
        ExactEvidence(X, y), (Matern32([0.8, 2.5], 1.4), Gaussian(0.3)), noise_floor=1e-4
    )
    worse = replace(fit, params=(Matern32([30.0, 30.0], 0.5), Gaussian(1.3)))
    compare = [ExactEvidence(X, y), [worse, fit], HyperparameterPrior(2), 1e-4]
    assert _highest(*compare, None).params[0].lengthscales[0] < 5.0
    assert _highest(*compare, 0.0).params[0].lengthscales[0] == 30.0


def test_two_parts_that_agree_are_enough(monkeypatch):
    """Of one law they find the same optimum but for chance, and end as high as three; of two optima they do not."""
    from vastgp.fitting import start

    monkeypatch.setattr(start, "_PART_ROWS", 100)
    X, y = draw(Matern32([0.8, 2.5], 1.4), 0.05, 300, 2, seed=5)
    fit_best, counts, found = start.fit_best, [], []
    for by_chance in (start._BY_CHANCE, -np.inf):
        monkeypatch.setattr(start, "_BY_CHANCE", by_chance)
        counts.append(0)

        def watched(*arguments, **options):
            counts[-1] += 1
            return fit_best(*arguments, **options)

        monkeypatch.setattr(start, "fit_best", watched)
        found.append(start_from_exact_gp("matern32", X, y))
    assert counts == [2, 3]
    assert found[0].log_evidence == pytest.approx(found[1].log_evidence, abs=0.01)
    monkeypatch.undo()
    noise = fit_best(
        [RBF(np.ones(2))],
        X[:100],
        3.0 * np.random.default_rng(0).normal(size=100),
        noise_floor=1e-4,
        restarts=1,
        generator=np.random.default_rng(0),
    )
    own = fit_best(
        [RBF(np.ones(2))],
        X[:100],
        y[:100],
        noise_floor=1e-4,
        restarts=1,
        generator=np.random.default_rng(0),
    )
    evidence = ExactEvidence(X[:100], y[:100])
    assert start._agree(evidence, own, own) and not start._agree(evidence, own, noise)
