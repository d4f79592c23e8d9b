"""Every likelihood against SciPy's densities and adaptive quadrature."""

from math import lgamma

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln, log_expit, log_ndtr, logsumexp, ndtr

from likelihoods.conformance import LikelihoodConformance, _double, average  # noqa: F401
from vastgp._precision import precision
from vastgp.likelihoods import (
    Bernoulli,
    Gaussian,
    Laplace,
    Likelihood,
    NegativeBinomial,
    Poisson,
    PoissonLogNormal,
    StudentT,
    from_name,
    from_spec,
    to_spec,
)

# the reference for sites at tiny variances asks for more digits than there are
pytestmark = [
    pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning"),
    pytest.mark.little_work,
]


class TestGaussian(LikelihoodConformance):
    def make(self):
        return Gaussian(0.3)

    def log_law(self, y, f):
        return -0.5 * (y - f) ** 2 / 0.3 - 0.5 * np.log(0.6 * np.pi)

    def conditional_moments(self, f):
        return f, 0.3


class TestLaplace(LikelihoodConformance):
    scale = 0.4

    def make(self):
        return Laplace(self.scale)

    def log_law(self, y, f):
        return -abs(y - f) / self.scale - np.log(2 * self.scale)

    def conditional_moments(self, f):
        return f, 2 * self.scale**2

    def test_its_density_where_the_tails_cancel(self):
        """Latent deviation 100 times the scale: each factor is e^5000, its product with the other ordinary."""
        found = Laplace(0.05).log_density(1.0, 0.0, 25.0)
        assert found == pytest.approx(stats.norm.logpdf(1.0, 0.0, 5.0), abs=1e-3)


class TestStudentT(LikelihoodConformance):
    scale, nu = 0.3, 4.0
    tolerance = 1e-5

    def make(self):
        return StudentT(self.scale, self.nu)

    def log_law(self, y, f):
        a = 0.5 * self.nu
        normaliser = lgamma(a + 0.5) - lgamma(a) - 0.5 * np.log(np.pi * self.nu)
        return (
            normaliser
            - np.log(self.scale)
            - 0.5 * (self.nu + 1) * np.log1p(((y - f) / self.scale) ** 2 / self.nu)
        )

    def conditional_moments(self, f):
        return f, self.scale**2 * self.nu / (self.nu - 2)

    def breaks(self, y):
        return y - 0.6, y, y + 0.6

    def test_many_degrees_of_freedom(self):
        """The normaliser changes its formula at 40."""
        for nu in (0.7, 39.0, 41.0, 1e4):
            y = np.linspace(-9, 9, 37)
            np.testing.assert_allclose(
                StudentT(0.3, nu).log_prob(y, 0.5),
                stats.t.logpdf(y, nu, loc=0.5, scale=0.3),
                rtol=1e-9,
            )

    def test_the_bound_is_reweighted_least_squares(self):
        """Minus twice its slope by the variance is ``(nu+1) / (nu s^2 + E(y-f)^2)``; beta itself may be negative."""
        likelihood, (y, m, v) = self.make(), self.grid()
        slope = jax.grad(lambda v: likelihood.site_bound(y, m, v).sum())(jnp.array(v))
        weight = (self.nu + 1) / (self.nu * self.scale**2 + (y - m) ** 2 + v)
        np.testing.assert_allclose(-2 * slope, weight, rtol=1e-9)
        assert (np.asarray(likelihood.sites(y, m, v)[1]) < 0).any()

    def test_gaussian_in_the_limit(self):
        robust, plain, (y, m, v) = StudentT(0.5, 1e7), Gaussian(0.25), self.grid()
        for name in ("log_prob", "expected_log_prob", "log_density", "predictive_variance"):
            given = {"log_prob": (y, m), "predictive_variance": (m, v)}.get(name, (y, m, v))
            np.testing.assert_allclose(
                getattr(robust, name)(*given), getattr(plain, name)(*given), rtol=1e-3
            )

    @pytest.mark.parametrize("nu", [1.0, 2.0])
    def test_heavy_tails_have_no_variance(self, nu):
        assert StudentT(0.5, nu).predictive_variance(0.0, 1.0) == np.inf


class TestHeavyStudentT(TestStudentT):
    """Cauchy-like and narrow: the hardest for quadrature."""

    scale, nu = 0.05, 1.5
    tolerance = 1e-3
    log_density_tolerance = 1e-6

    def breaks(self, y):
        return y - 0.5, y - 0.06, y, y + 0.06, y + 0.5

    def total(self, log_density):
        u = np.linspace(-16, 16, 4001)  # y = sinh u: the tail beyond 4e6 holds 1e-12
        return np.trapezoid(np.exp(log_density(np.sinh(u))) * np.cosh(u), u)

    test_predictive_moments = None


class BernoulliConformance(LikelihoodConformance):
    targets = (-1.0, 1.0)
    test_the_distribution_function_is_the_sum_of_the_density = None
    test_quantiles_invert_the_distribution_function = None
    tolerance = 2e-6
    log_density_tolerance = 1e-5
    means = (-7.0, -2.0, 0.3, 1.5)

    def breaks(self, y):
        return (-2.0, 0.0, 2.0)

    def total(self, log_density):
        return np.exp(log_density(-1.0)) + np.exp(log_density(1.0))

    def conditional_moments(self, f):
        p = np.exp(self.log_law(1.0, f))
        return p, p * (1 - p)

    def test_labels_are_minus_one_and_one(self):
        with pytest.raises(ValueError, match=r"labels -1 and \+1 .*2 other values, the first 0"):
            self.make().check_targets(np.array([0, 1, 0]))

    def test_its_median_is_the_probability_at_the_latent_mean(self):
        f = np.linspace(-3, 3, 7)
        np.testing.assert_allclose(self.make().median(f), np.exp(self.log_law(1.0, f)), rtol=1e-10)


class TestLogit(BernoulliConformance):
    def make(self):
        return Bernoulli()

    def log_law(self, y, f):
        return log_expit(y * f)

    @pytest.mark.parametrize("mean", [-30.0, -8.0, 0.0, 1.0, 12.0])
    def test_probabilities_under_a_wide_latent(self, mean):
        found = Bernoulli().predictive_mean(mean, 100.0)
        assert found == pytest.approx(average(expit, mean, 100.0, (-2.0, 0.0, 2.0)), abs=1e-6)

    def test_no_probability_is_above_one(self):
        """What is left of one is the probability of the other class: it was -2e-16 where weights sum to 1 + 2e-16."""
        mean, variance = np.meshgrid(np.linspace(-80.0, 80.0, 201), np.geomspace(1e-6, 1e4, 60))
        found = np.asarray(Bernoulli().predictive_mean(mean, variance))
        assert np.all((found >= 0.0) & (found <= 1.0))


class TestProbit(BernoulliConformance):
    def make(self):
        return Bernoulli("probit")

    def log_law(self, y, f):
        return log_ndtr(y * f)

    def test_closed_form(self):
        assert Bernoulli("probit").predictive_mean(1.0, 3.0) == pytest.approx(ndtr(0.5))

    def test_the_link_is_named(self):
        with pytest.raises(ValueError, match=r"link must be one of .*received 'cloglog'"):
            Bernoulli("cloglog")


class TestPoisson(LikelihoodConformance):
    targets = (0.0, 3.0, 40.0)
    means = (-2.0, 0.3, 3.0)
    rate = 1.7

    def make(self):
        return Poisson(self.rate)

    def log_law(self, y, f):
        return y * (f + np.log(self.rate)) - self.rate * np.exp(f) - gammaln(y + 1)

    def conditional_moments(self, f):
        return self.rate * np.exp(f), self.rate * np.exp(f)

    def breaks(self, y):
        return (np.log((y + 0.5) / self.rate),)

    def total(self, log_density):
        return np.exp(log_density(np.arange(6000.0))).sum()

    def test_log_density_of_large_counts(self):
        found = self.make().log_density(2000.0, 5.0, 4.0)
        wanted = average(lambda f: np.exp(self.log_law(2000.0, f)), 5.0, 4.0, (7.0, 7.1, 7.2))
        assert found == pytest.approx(np.log(wanted), abs=1e-6)

    def test_its_median(self):
        counts = np.r_[np.geomspace(1e-3, 2e3, 400), np.log(2.0) + np.array([-1e-6, 1e-6])]
        found = Poisson(2.0).median(np.log(counts / 2.0))
        np.testing.assert_array_equal(found, stats.poisson.median(counts))

    @pytest.mark.parametrize("bad", [-1.0, 0.5, np.inf])
    def test_counts_are_whole(self, bad):
        with pytest.raises(ValueError, match=r"counts 0, 1, 2, .*1 other value.*'gaussian'"):
            self.make().check_targets(np.array([0.0, 2.0, bad]))


class TestPoissonLogNormal(LikelihoodConformance):
    targets = (0.0, 7.0)
    means = (-2.0, 2.0)
    variances = (0.01, 0.7, 4.0)
    tolerance = 1e-5
    rate, variance = 1.7, 0.4

    def make(self):
        return PoissonLogNormal(self.rate, self.variance)

    def log_law(self, y, f):
        y, f = (np.asarray(part, float)[..., None] for part in (y, f))
        # the average over eps, even nodes over all that the normal or the counts leave of it
        z = np.linspace(-20.0, 20.0, 801)
        eps = z * self.variance**0.5
        logs = -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) + np.log(z[1] - z[0])
        count = self.rate * np.exp(f + eps)
        logs = logs + y * np.log(count) - count - gammaln(y + 1)
        return logsumexp(logs, axis=-1)

    def conditional_moments(self, f):
        count = self.rate * np.exp(f + 0.5 * self.variance)
        return count, count + count**2 * np.expm1(self.variance)

    def breaks(self, y):
        return (np.log((y + 0.5) / self.rate),)

    def total(self, log_density):
        return np.exp(log_density(np.arange(20_000.0))).sum()

    def test_without_variance_it_is_the_poisson_law(self):
        y, f = np.arange(12.0), np.linspace(-1.0, 2.0, 12)
        found = PoissonLogNormal(self.rate, 1e-9)
        for name in ("log_prob", "predictive_mean", "predictive_variance", "log_density"):
            given = {"log_prob": (y, f), "log_density": (y, f, 0.3)}.get(name, (f, 0.3))
            wanted = getattr(Poisson(self.rate), name)(*given)
            np.testing.assert_allclose(getattr(found, name)(*given), wanted, rtol=1e-6)

    def test_fewer_nodes_for_minibatches(self):
        y, m, v = self.grid()
        rough = self.make().rough().expected_log_prob(y, m, v)
        np.testing.assert_allclose(rough, self.make().expected_log_prob(y, m, v), rtol=1e-4)


class TestNegativeBinomial(LikelihoodConformance):
    targets = (0.0, 3.0, 40.0)
    means = (-2.0, 0.3, 3.0)
    tolerance = 1e-5
    rate, size = 1.7, 0.8

    def make(self):
        return NegativeBinomial(self.rate, self.size)

    def log_law(self, y, f):
        # SciPy's own rounds to minus infinity far out
        u = f + np.log(self.rate / self.size)
        choose = gammaln(y + self.size) - gammaln(self.size) - gammaln(y + 1)
        return choose + y * u - (y + self.size) * np.logaddexp(0.0, u)

    def conditional_moments(self, f):
        count = self.rate * np.exp(f)
        return count, count + count**2 / self.size

    def breaks(self, y):
        return (np.log(self.size / self.rate), np.log((y + 0.5) / self.rate))

    def total(self, log_density):
        return np.exp(log_density(np.arange(40_000.0))).sum()

    @pytest.mark.parametrize("size", [0.05, 3.0, 19.9, 20.1, 4000.0])
    def test_its_law_at_any_size(self, size):
        y, f = np.meshgrid(np.arange(0.0, 200.0, 7.0), np.linspace(-3.0, 5.0, 9))
        count = np.exp(f)
        wanted = stats.nbinom.logpmf(y, size, size / (size + count))
        found = NegativeBinomial(1.0, size).log_prob(y, f)
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-7)
        with precision("float32"):
            found = NegativeBinomial(1.0, size).log_prob(
                *(jnp.asarray(part, jnp.float32) for part in (y, f))
            )
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-4)

    def test_a_large_size_is_the_poisson_law(self):
        y, f = np.arange(12.0), np.linspace(-1.0, 2.0, 12)
        found = NegativeBinomial(self.rate, 1e9)
        for name in ("log_prob", "predictive_mean", "predictive_variance", "log_density"):
            given = {"log_prob": (y, f), "log_density": (y, f, 0.3)}.get(name, (f, 0.3))
            wanted = getattr(Poisson(self.rate), name)(*given)
            np.testing.assert_allclose(getattr(found, name)(*given), wanted, rtol=1e-6)

    def test_its_median(self):
        counts = np.geomspace(1e-3, 2e3, 400)
        for size in (0.3, 2.0, 50.0):
            found = NegativeBinomial(2.0, size).median(np.log(counts / 2.0))
            wanted = stats.nbinom.median(size, size / (size + counts))
            np.testing.assert_array_equal(found, wanted)

    def test_fewer_nodes_for_minibatches(self):
        y, m, v = self.grid()
        rough = self.make().rough().expected_log_prob(y, m, v)
        np.testing.assert_allclose(rough, self.make().expected_log_prob(y, m, v), rtol=1e-3)


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (Gaussian(0.3), stats.norm(0.4, 0.3**0.5).logpdf),
        (Laplace(0.7), stats.laplace(0.4, 0.7).logpdf),
        (StudentT(0.3, 4.0), stats.t(4.0, 0.4, 0.3).logpdf),
        (Bernoulli(), lambda y: stats.logistic.logcdf(0.4 * y)),
        (Bernoulli("probit"), lambda y: stats.norm.logcdf(0.4 * y)),
        (Poisson(1.7), stats.poisson(1.7 * np.exp(0.4)).logpmf),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_scipys_densities(likelihood, law):
    y = {"bernoulli": np.array([-1.0, 1.0]), "poisson": np.arange(9.0)}.get(
        likelihood.name, np.linspace(-5, 5, 21)
    )
    np.testing.assert_allclose(likelihood.log_prob(y, 0.4), law(y), rtol=1e-10)


@pytest.mark.parametrize(
    "bad", [0.0, -1.0, np.nan, np.inf, [1.0, 2.0], "wide", None, jnp.array(-1.0), jnp.ones(2)]
)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Gaussian, "noise_variance"),
        (Laplace, "scale"),
        (StudentT, "scale"),
        (lambda value: StudentT(1.0, value), "degrees_of_freedom"),
        (Poisson, "rate"),
        (lambda value: PoissonLogNormal(1.0, value), "variance"),
        (lambda value: NegativeBinomial(1.0, value), "size"),
    ],
)
def test_hyperparameters_are_positive_numbers(make, name, bad):
    with pytest.raises(ValueError, match=f"^{name} must be one positive finite number, received"):
        make(bad)


@pytest.mark.parametrize("bad", [7, 20.0, True, "many"])
def test_nodes_are_counted(bad):
    with pytest.raises(ValueError, match="points must be an integer of at least 8"):
        Bernoulli(points=bad)


@pytest.mark.parametrize("bad", ["cauchy", None, 3])
def test_unknown_names(bad):
    with pytest.raises(ValueError, match=r"likelihood must be one of 'gaussian', .*'poisson'"):
        from_name(bad)


def test_files_of_other_versions():
    with pytest.raises(ValueError, match="holds a likelihood 'beta' that this version"):
        from_spec({"kind": "beta"})
    with pytest.raises(ValueError, match=r"gaussian likelihood with \['skew'\]"):
        from_spec({"kind": "gaussian", "noise_variance": 1.0, "skew": 2.0})


def test_a_foreign_likelihood_cannot_be_saved():
    class Mine(Gaussian):
        pass

    with pytest.raises(TypeError, match="Mine cannot be saved"):
        to_spec(Mine(1.0))


def test_texts():
    assert repr(StudentT(0.25, 4.0)) == "StudentT(scale=0.25, degrees_of_freedom=4)"
    assert repr(Bernoulli("probit")) == "Bernoulli(link='probit')"
    assert repr(Poisson(jnp.asarray(2.0))) == "Poisson(rate=2)"
    assert issubclass(Poisson, Likelihood)
