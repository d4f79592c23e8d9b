"""Columns that are one input: one lengthscale, one scale, and kernels of categories that come of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp import ExactGPRegressor, QSGPRegressor, SWSGPRegressor, TSVGPRegressor, load
from vastgp.bases import RandomFourierBasis
from vastgp.data import Rows, Standardizer
from vastgp.fitting.candidates import candidate_kernels
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import RBF, Linear, Matern32, Matern52, RationalQuadratic, from_spec, to_spec
from vastgp.kernels.matrices import covariance
from vastgp.kernels.metric import metric_lengthscales, tied_columns
from vastgp.options import Fixed, Learn, Subset

INPUTS = (0, 1, 1, 2, 1)
KERNELS = [RBF, Matern32, Matern52, RationalQuadratic]


def _rows(n=40, seed=0):
    return np.random.default_rng(seed).normal(size=(n, len(INPUTS)))


def _categories(n, levels, seed=0):
    """One number, then the indicators of a category."""
    generator = np.random.default_rng(seed)
    chosen = generator.integers(levels, size=n)
    x = generator.normal(size=n)
    effect = generator.normal(size=levels)
    y = np.sin(x) + effect[chosen] + 0.05 * generator.normal(size=n)
    return np.column_stack([x, np.eye(levels)[chosen]]), y, chosen


@pytest.mark.parametrize("form", KERNELS)
def test_a_tied_kernel_is_the_untied_one_with_equal_lengthscales(form):
    X, scales = _rows(), np.array([0.7, 1.3, 2.1])
    tied, untied = form(scales, 1.7, inputs=INPUTS), form(scales[list(INPUTS)], 1.7)
    np.testing.assert_array_equal(covariance(tied, X, X), covariance(untied, X, X))
    Z = jnp.asarray(X, jnp.float32)
    np.testing.assert_array_equal(tied(Z, Z[:3]), untied(Z, Z[:3]))
    np.testing.assert_array_equal(metric_lengthscales(tied, 5), metric_lengthscales(untied, 5))


@pytest.mark.parametrize("form", KERNELS)
def test_its_evidence_has_the_sum_of_the_slopes(form):
    X, scales = _rows(), np.array([0.7, 1.3, 2.1])
    y = np.sin(X @ np.arange(1.0, 6.0))
    evidence = ExactEvidence(X, y)
    value, (tied, by_noise) = evidence.value_and_gradient(form(scales, inputs=INPUTS), 0.1)
    same, (untied, other) = evidence.value_and_gradient(form(scales[list(INPUTS)]), 0.1)
    assert value == same and by_noise == other
    np.testing.assert_allclose(
        tied.lengthscales, np.bincount(INPUTS, untied.lengthscales), rtol=1e-12
    )
    np.testing.assert_allclose(tied.variance, untied.variance, rtol=1e-12)


def test_compiled_slopes_are_summed_as_well():
    X, scales = jnp.asarray(_rows(), jnp.float32), np.array([0.7, 1.3, 2.1])
    total = jax.grad(lambda kernel: kernel(X, X).sum())
    tied, untied = total(Matern52(scales, inputs=INPUTS)), total(Matern52(scales[list(INPUTS)]))
    np.testing.assert_allclose(
        tied.lengthscales, np.bincount(INPUTS, untied.lengthscales), rtol=1e-5
    )


def test_random_waves_are_those_of_the_untied_kernel():
    scales, key = np.array([0.7, 1.3, 2.1]), jax.random.PRNGKey(0)
    X = jnp.asarray(_rows(), jnp.float32)
    of_tied, of_untied = (
        RandomFourierBasis(kernel, key, 64).features(X, jnp.arange(64))
        for kernel in (RBF(scales, inputs=INPUTS), RBF(scales[list(INPUTS)]))
    )
    np.testing.assert_array_equal(of_tied, of_untied)


def test_levels_of_a_category_are_as_far_apart_whatever_their_frequency():
    levels = np.eye(4)
    K = covariance(Matern32([2.0], inputs=(0, 0, 0, 0)), levels, levels)
    apart = K[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(apart, apart[0], rtol=1e-12)


def test_columns_of_an_input_are_scaled_together():
    X, _, _ = _categories(500, 5)
    scaling = Standardizer(inputs=(0, 1, 1, 1, 1, 1)).fit(Rows(X))
    Z = scaling.transform_X(X)
    np.testing.assert_allclose(Z[:, 0].var(), 1.0)
    np.testing.assert_allclose(Z[:, 1:].var(axis=0).sum(), 1.0)
    assert len(set(scaling.x_scale[1:])) == 1
    assert Standardizer.from_dict(scaling.to_dict()).x_scale.tolist() == scaling.x_scale.tolist()


def test_a_level_never_seen_does_not_spoil_the_scale():
    X = np.column_stack([np.eye(3)[np.arange(60) % 3], np.zeros(60)])
    scaling = Standardizer(inputs=(0, 0, 0, 0)).fit(Rows(X))
    np.testing.assert_allclose(scaling.x_scale, (3 * (1 / 3) * (2 / 3)) ** 0.5)
    constant = Standardizer(inputs=(0, 0)).fit(Rows(np.ones((5, 2))))
    np.testing.assert_array_equal(constant.x_scale, 1.0)


def test_given_lengthscales_of_columns_meet_at_their_geometric_mean():
    (found,) = candidate_kernels(RBF([1.0, 2.0, 8.0]), 3, (0, 1, 1))
    np.testing.assert_allclose(found.lengthscales, [1.0, 4.0])
    assert found.inputs == (0, 1, 1)
    assert candidate_kernels(found, 3, (0, 1, 1))[0].lengthscales.tolist() == [1.0, 4.0]


def test_a_line_keeps_a_slope_for_every_column():
    (found,) = candidate_kernels(Linear() + RBF(), 3, (0, 1, 1))
    linear, rbf = found.parts
    assert linear.slope_variances.shape == (3,) and rbf.lengthscales.shape == (2,)


def test_in_units_and_in_files():
    kernel = Matern32([1.0, 2.0], inputs=(0, 1, 1))
    scaled = kernel.in_units(np.array([3.0, 5.0, 5.0]), 2.0)
    np.testing.assert_array_equal(scaled.lengthscales, [3.0, 10.0])
    again = from_spec(*to_spec(scaled))
    assert again.inputs == (0, 1, 1) and again.lengthscales.tolist() == [3.0, 10.0]
    assert "inputs" not in repr(RBF()) and "inputs=[0, 1, 1]" in repr(kernel)


@pytest.mark.parametrize(
    ("estimator", "search"),
    [(ExactGPRegressor, Learn), (TSVGPRegressor, Subset), (QSGPRegressor, Subset)],
)
def test_a_category_is_learned_with_one_lengthscale(estimator, search, tmp_path):
    levels = 6
    X, y, _ = _categories(400, levels)
    tied = [tuple(range(1, levels + 1))]
    model = estimator(kernel="rbf", hyperparameters=search(tied=tied)).fit(X[:300], y[:300])
    assert model.kernel_.lengthscales.shape == (2,)
    mean, std = model.predict(X[300:], return_std=True)
    assert np.sqrt(np.mean((mean - y[300:]) ** 2)) < 0.1
    # a level never seen: none of the indicators
    unseen = np.zeros((1, levels + 1))
    assert model.predict(unseen, return_std=True)[1][0] > 3 * np.median(std)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X[300:]), model.predict(X[300:]))


def test_fixed_hyperparameters_take_groups_too():
    X, y, _ = _categories(80, 3)
    params = {"kernel": RBF([1.0, 1.0]), "max_rows": 100}
    tied = ExactGPRegressor(**params, hyperparameters=Fixed(noise_std=0.1, tied=[(1, 2, 3)]))
    untied = ExactGPRegressor(
        kernel=RBF([1.0, 1.0, 1.0, 1.0]), hyperparameters=Fixed(noise_std=0.1)
    )
    np.testing.assert_allclose(
        tied.set_params(kernel=RBF([1.0, 1.0], inputs=(0, 1, 1, 1))).fit(X, y).predict(X),
        untied.fit(X, y).predict(X),
        atol=1e-9,
    )


def _unlike(n=60, seed=0):
    """Rows whose columns have deviations of 0.3, 27 and 2."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3)) * np.array([0.3, 27.0, 2.0])
    y = np.sin(X[:, 0] / 0.3) + 0.05 * X[:, 1] + 0.3 * X[:, 2] + 0.1 * generator.normal(size=n)
    return X, y


def _by_hand(kernel, noise_std, X, y, new):
    A = covariance(kernel, X, X) + noise_std**2 * np.eye(len(X))
    return y.mean() + covariance(kernel, new, X) @ np.linalg.solve(A, y - y.mean())


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(3.0, 1.0, inputs=(0, 0, 1)),
        Matern32([4.0, 1.0], 1.0, inputs=(0, 0, 1)) + RBF([5.0, 20.0], 0.5, inputs=(0, 1, 1)),
        RBF([3.0, 2.0], 1.0, inputs=(0, 0, 1)) * Matern52([1.0, 30.0, 4.0], 2.0),
    ],
)
@pytest.mark.parametrize(
    "estimator",
    [
        ExactGPRegressor,
        lambda **given: SWSGPRegressor(num_neighbors=60, solver="nearest", **given),
        lambda **given: TSVGPRegressor(inducing_inputs=_unlike()[0], **given),
    ],
)
def test_a_given_kernel_that_ties_columns_is_that_kernel_whatever_their_units(estimator, kernel):
    X, y = _unlike()
    given = {"kernel": kernel, "hyperparameters": Fixed(noise_std=0.3)}
    model, new = estimator(**given).fit(X, y), _unlike(9, seed=1)[0]
    np.testing.assert_allclose(model.predict(new), _by_hand(kernel, 0.3, X, y, new), atol=1e-5)


@pytest.mark.parametrize(
    "params",
    [
        {"kernel": RBF(inputs=(0, 0, 1))},
        {"kernel": RBF(inputs=(0, 0, 1)) + Matern32()},
        {"kernel": "rbf", "hyperparameters": Learn(tied=[(0, 1)])},
    ],
)
def test_the_kernel_that_a_fit_reports_is_the_one_that_it_has(params):
    X, y = _unlike(520)
    new = _unlike(9, seed=1)[0]
    model = ExactGPRegressor(**params).fit(X, y)
    noise_std = float(model.likelihood_.noise_std)
    expected = _by_hand(model.kernel_, noise_std, X, y, new)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-4)
    again = ExactGPRegressor(model.kernel_, hyperparameters=Fixed(noise_std=noise_std)).fit(X, y)
    np.testing.assert_allclose(again.predict(new), model.predict(new), atol=1e-6)
    assert again.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-4)


def test_columns_are_one_input_where_any_part_ties_them():
    chain = RBF(inputs=(0, 0, 1, 2)) + RBF(inputs=(0, 1, 2, 2)) * Matern32()
    assert tied_columns(chain, 4) == (0, 0, 1, 1)
    assert tied_columns(chain + RBF(inputs=(0, 1, 1, 2)), 4) == (0, 0, 0, 0)
    assert tied_columns(RBF(inputs=(1, 0, 1)), 3) == (0, 1, 0)
    assert tied_columns(RBF(inputs=(1, 0)) + Linear(), 2) is None
    with pytest.raises(ValueError, match="for 2 columns but the data have 3 features"):
        ExactGPRegressor(RBF(inputs=(0, 0))).fit(*_unlike())


@pytest.mark.parametrize(
    ("tied", "message"),
    [
        ([(0, 9)], "must name columns from 0 to 3"),
        ([(0, 1), (1, 2)], "each in one group at most"),
        ([1, 2], "tied must be groups of numbers of columns"),
        ("ab", "tied must be groups of numbers of columns"),
    ],
)
def test_groups_that_cannot_be(tied, message):
    X, y, _ = _categories(30, 3)
    with pytest.raises(ValueError, match=message):
        TSVGPRegressor(hyperparameters=Subset(tied=tied)).fit(X, y)


def test_groups_beside_one_lengthscale_for_all_are_refused():
    X, y, _ = _categories(30, 3)
    with pytest.raises(ValueError, match="already ties all columns"):
        TSVGPRegressor(hyperparameters=Subset(tied=[(1, 2)], isotropic=True)).fit(X, y)


def test_numbers_of_inputs_have_no_gaps():
    with pytest.raises(ValueError, match="counted from 0 without gaps"):
        RBF(inputs=(0, 2))
    with pytest.raises(ValueError, match="2 features; give one number for each"):
        RBF(inputs=(0, 1, 1)).with_ard(2)
