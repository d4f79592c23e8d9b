"""`DirectRegressor`: the promises of every regressor, and those of discrete weights."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import vastgp
from estimators.regressor_conformance import RegressorConformance, small_data
from estimators.sklearn_checks import checks_of_a_method
from vastgp import RBF, DirectRegressor
from vastgp.methods.direct.posterior import DiscretePosterior
from vastgp.options import Fixed, Learn, MeanField, Mixture, Subset, Support

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PLAIN = Support(learn=False)
QUICK = {"kernel": "rbf", "num_basis": 200, "support": PLAIN}


@checks_of_a_method([DirectRegressor("rbf", 20, support=PLAIN, hyperparameters=Subset(rows=40))])
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


class TestDirect(RegressorConformance):
    units_tolerance = 1e-4  # float32
    resumed_with = (
        {"num_basis": 20},
        {
            "num_basis": 20,
            "family": Mixture(components=2, objective="unbiased", draws=4, max_steps=60),
        },
    )

    def make(self, **params):
        return DirectRegressor(**(QUICK | params))


def wave(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


NEW = wave(200, seed=1)


def made(num_basis, **params):
    """An estimator whose hyperparameters are known, as their search is not what is tested."""
    given = {"hyperparameters": Fixed(noise_std=0.1), "support": PLAIN}
    return DirectRegressor(RBF([0.8, 2.0], 4.0), num_basis, **(given | params))


def error(model):
    return float(np.mean((model.predict(NEW[0]) - NEW[1]) ** 2) ** 0.5)


@pytest.fixture(scope="module")
def plain():
    return made(200).fit(*wave())


def test_eigenfunctions_of_a_grid_are_a_basis_too(tmp_path):
    model = made(60, basis="grief").fit(*wave())
    assert model.num_basis_ == 60
    # two inputs: they tell more than as many random features
    assert error(model) < 0.8 * error(made(60).fit(*wave()))
    inside = (
        np.abs(model.predict(NEW[0]) - NEW[1]) < 1.96 * model.predict(NEW[0], return_std=True)[1]
    )
    assert 0.85 < np.mean(inside) <= 1.0
    model.save(tmp_path / "model.vgp")
    again = vastgp.load(tmp_path / "model.vgp")
    np.testing.assert_array_equal(again.predict(NEW[0]), model.predict(NEW[0]))
    with pytest.raises(ValueError, match="only random Fourier features can be exported"):
        model.to_integer()
    X, y = wave(50, seed=2)
    half = made(60, basis="grief").fit(X, y).partial_fit(*wave())
    assert error(half) < error(model) + 0.05


def test_all_eigenfunctions_of_a_grid_are_the_process_on_it():
    # a grid on the data themselves: with every eigenfunction and fine weights the exact process is left
    grid = np.stack(np.meshgrid(np.linspace(-2, 2, 7), np.linspace(-1, 1, 5)), -1).reshape(-1, 2)
    y = np.sin(2.0 * grid[:, 0]) + grid[:, 1]
    given = {"hyperparameters": Fixed(noise_std=0.1)}
    kernel = RBF([0.8, 2.0], 2.0)
    exact = vastgp.ExactGPRegressor(kernel, **given).fit(grid, y).predict(grid)
    model = DirectRegressor(kernel, 1000, basis="grief", support=255, dtype="float64", **given).fit(
        grid, y
    )
    assert model.num_basis_ <= 35
    assert np.max(np.abs(model.predict(grid) - exact)) < 0.05


def test_weights_of_four_bits_tell_the_function(plain):
    assert error(plain) < 0.25
    codes = plain.posterior_.codes(20, seed=0)
    assert codes.dtype == np.int8 and codes.min() >= 0 and codes.max() <= 14
    zeros = np.mean(plain.posterior_.sample_weights(400, seed=1) == 0.0)
    assert zeros == pytest.approx(plain.sparsity(), abs=0.01)


def test_learned_spacings_are_nearer_to_the_function(plain):
    model = made(200, support=15, family=MeanField(max_iter=150)).fit(*wave())
    assert error(model) < error(plain)
    # all values of a weight are multiples of one spacing
    steps = np.diff(model.posterior_.values, axis=1)
    np.testing.assert_allclose(steps, np.repeat(steps[:, :1], 14, axis=1), rtol=1e-9)


def test_the_start_of_the_thesis_has_no_higher_bound(plain):
    model = made(200, family=MeanField(start="prior")).fit(*wave())
    assert model.elbo_ <= plain.elbo_ + 1.0


@pytest.mark.parametrize("objective", ["bound", "unbiased"])
def test_a_mixture_gains_at_most_the_logarithm_of_its_size(plain, objective):
    """Its bound exceeds the best one of its components by no more than their entropy, ``log r``."""
    limit = {"draws": 8, "max_steps": 200} if objective == "unbiased" else {}
    mixture = Mixture(components=3, objective=objective, max_iter=200, **limit)
    model = made(200, family=mixture).fit(*wave())
    assert model.posterior_.mixture.shape == (3,)
    assert model.elbo_ < plain.elbo_ + np.log(3.0) + 3.0
    assert error(model) < 0.5
    if objective == "bound":
        assert model.elbo_ > plain.elbo_ - 8.0
    else:
        bounds, errors = model.history_.objective, model.history_.objective_se
        # it starts at the best single component: steps may not lose what it had
        assert errors[-1] > 0.0
        assert bounds[-1] > bounds[0] - 3.0 * np.hypot(errors[0], errors[-1])


def test_learned_noise_is_found_where_there_are_many_rows():
    model = made(100, family=MeanField(learn_noise=True)).fit(*wave(3000))
    assert model.noise_probabilities_.sum() == pytest.approx(1.0)
    assert len(model.noise_values_) > 5
    assert 0.08 < model.likelihood_.noise_std < 0.6


def test_rows_that_come_later_count_as_those_that_were_there(plain):
    X, y = wave()
    model = made(200).fit(X[:200], y[:200])
    first = model.statistics_
    model.partial_fit(X[200:300], y[200:300]).partial_fit(X[300:], y[300:])
    assert model.statistics_.num_rows == 400 and first.num_rows == 200
    assert error(model) < 1.1 * error(plain)
    # the sums are those of one pass with the same scaling and basis
    from vastgp._precision import precision
    from vastgp.data import as_rows
    from vastgp.fitting.sufficient_statistics import gather_statistics

    with precision("float32"):
        whole = gather_statistics(
            as_rows(X, y), model.standardizer_, model.posterior_.basis, dtype="float32"
        )
    np.testing.assert_allclose(model.statistics_.gram, whole.gram, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(model.statistics_.target, whole.target, rtol=1e-9, atol=1e-9)


def test_a_budget_that_ends_within_the_rows_leaves_the_model_of_those_that_were_read(monkeypatch):
    monkeypatch.setattr("vastgp.estimators.statistics.block_rows_of", lambda size: 64)
    model = made(40, max_seconds=1e-6).fit(*wave(200))
    assert model.statistics_.num_rows == 64 and not model.converged_
    assert model.stop_reason_.endswith("max_seconds was used up, by 64 of 200 rows")
    whole = made(40, family=MeanField(max_iter=5)).fit(*wave(200)).statistics_
    assert whole.num_rows == 200
    monkeypatch.undo()
    at_once = made(40, family=MeanField(max_iter=5)).fit(*wave(200)).statistics_
    np.testing.assert_allclose(whole.moments, at_once.moments, rtol=1e-12, atol=1e-12)


def test_a_loaded_model_takes_more_rows(tmp_path):
    X, y = small_data(120)
    model = DirectRegressor(**QUICK).fit(X[:80], y[:80])
    model.save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    for each in (model, loaded):
        each.partial_fit(X[80:], y[80:])
    np.testing.assert_array_equal(model.predict(X), loaded.predict(X))
    compact = DirectRegressor(**QUICK).fit(X, y)
    del compact.statistics_
    with pytest.raises(ValueError, match="sums over the rows of the fit were deleted"):
        compact.partial_fit(X, y)
    compact.save(tmp_path / "compact.vastgp")
    sizes = [(tmp_path / f"{name}.vastgp").stat().st_size for name in ("compact", "model")]
    assert sizes[0] < sizes[1]


def test_moments_are_those_of_samples(plain):
    """Third and fourth moments within 5 standard errors of 20,000 samples; the first two are those of predict."""
    X = NEW[0][:3]
    moments = plain.moments(X, 4)
    assert np.all(np.abs(moments[0]) < 1e-9)
    np.testing.assert_allclose(
        moments[1] ** 0.5, plain.predict(X, return_std="latent")[1], rtol=1e-4
    )
    drawn = plain.sample_y(X, 20_000, random_state=3)
    centred = drawn - plain.predict(X)[:, None]
    for order in (2, 3, 4):
        powers = centred**order
        spread = powers.std(axis=1) / 20_000**0.5
        assert np.all(np.abs(powers.mean(axis=1) - moments[order - 1]) < 5.0 * spread)
    with pytest.raises(ValueError, match="order must be a positive integer"):
        plain.moments(X, 0)


def test_samples_of_many_values_have_the_posterior_moments():
    # 200 values: their numbers are more than eight bits with a sign hold
    rng = np.random.default_rng(0)
    values = np.tile(np.linspace(-3.0, 3.0, 200), (4, 1))
    probabilities = rng.dirichlet(np.full(200, 0.1), (3, 4))
    own = DiscretePosterior(
        None, values, probabilities, np.array([0.5, 0.2, 0.3]), np.empty((0, 1))
    )
    second = np.einsum("r,rbk,bk->b", own.mixture, probabilities, values**2)
    error = np.sqrt((second - own.weight_mean**2) / 4000)
    for stratified in (False, True):
        drawn = own.sample_weights(4000, 0, stratified)
        assert np.max(np.abs(drawn.mean(axis=0) - own.weight_mean) / error) < 4.0
    assert own.codes(50, seed=0).min() >= 0


@pytest.mark.parametrize("values", [15, 95, 189, [*np.arange(-3.0, 3.1, 0.2)]])
def test_the_value_between_those_of_both_signs_is_zero(values):
    levels = Support(values).levels()
    assert levels[len(levels) // 2] == 0.0
    np.testing.assert_allclose(levels, np.linspace(-3.0, 3.0, len(levels)), atol=1e-13)


def test_an_unfactorised_prior_and_one_of_ones_own():
    X, y = wave(200)
    values = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
    wide, narrow = np.exp(-0.5 * values**2), np.exp(-2.0 * values**2)
    for prior, weights in ((wide, None), (np.stack([wide, narrow]), [0.3, 0.7]), ("uniform", None)):
        support = Support(values, prior=prior, prior_weights=weights)
        model = made(60, support=support).fit(X, y)
        assert np.all(np.isfinite(model.predict(X)))
        np.testing.assert_allclose(np.unique(model.posterior_.values), values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: 1, "support=1: a weight needs at least two values"),
        (lambda: 1000, "at most 256"),
        (lambda: [0.5], "support has 1 values of which 1 are distinct"),
        (lambda: [0.0, 1.0, 1.0], "support has 3 values of which 2 are distinct"),
        (lambda: "many", "support must be a number of values, or an array"),
        (lambda: [0.0, np.nan], "support must be a number of values, or an array"),
        (lambda: [0.0, 1.0, 90.0], "prior has the mass 0 at the value 90 of support"),
        (lambda: Support(3, prior=[0.5, 0.5, 0.0]), "prior has the mass 0 at the value 3 of support"),
        (lambda: Support(prior=[0.5, 0.5]), "prior must be 'gaussian', 'uniform', or masses of the 15"),
        (lambda: Support(prior="flat"), "prior must be one of"),
        (lambda: Support(prior_weights=[1.0, 2.0]), "prior_weights must be 1 positive numbers"),
        (lambda: Support(prior="uniform", learn=True), "learn=True moves the values"),
        (lambda: Support(learn=1), "learn must be True or False"),
    ],
)  # fmt: skip
def test_bad_supports_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        DirectRegressor(**(QUICK | {"support": make()})).fit(*wave(30))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"family": "full"}, r"family must be one of .* or MeanField\(...\), Mixture\(...\)"),
        (lambda: {"family": MeanField(start="zero")}, "start must be one of"),
        (lambda: {"family": Mixture(objective="elbo")}, "objective must be one of"),
        (lambda: {"family": Mixture(draws=8)}, "draws=8 has no effect with objective='bound'"),
        (lambda: {"family": Mixture(draws=1)}, "draws must be an integer of at least 2"),
        (lambda: {"family": Mixture(components=0)}, "components must be a positive integer"),
        (lambda: {"family": MeanField(logistic_bound="quadratic")}, "logistic_bound='quadratic'.*no effect"),
        (lambda: {"num_basis": 7}, "num_basis must be even"),
        (lambda: {"basis": "wavelets"}, "basis must be"),
        (lambda: {"basis": "grief", "kernel": RBF(1.0) + RBF(2.0)}, "does not factor over the inputs"),
        (lambda: {"hyperparameters": Fixed(), "kernel": RBF()}, "needs noise_std"),
        (lambda: {"hyperparameters": Learn()}, "hyperparameters must be one of"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        DirectRegressor(**(QUICK | make())).fit(*wave(30))


def test_arguments_that_have_moved_say_where_to():
    for name, message in (
        ("learn_support", r"write support=Support\(learn=...\)"),
        ("q", "write family"),
        ("keep_statistics", "del model.statistics_"),
    ):
        with pytest.raises(TypeError, match=message):
            DirectRegressor(**{name: None})


def test_given_hyperparameters_are_used():
    X, y = wave(300)
    model = made(200).fit(X, y)
    np.testing.assert_allclose(model.kernel_.lengthscales, [0.8, 2.0], rtol=1e-6)
    assert model.likelihood_.noise_std >= 0.1 - 1e-9
    assert error(model) < 0.5
