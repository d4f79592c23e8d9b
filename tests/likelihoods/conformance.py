"""What every likelihood promises. A new one gives a constructor, its law by SciPy, and targets."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from vastgp._precision import precision
from vastgp.likelihoods import from_name, from_spec, to_spec
from vastgp.likelihoods.quantiles import quantiles

MEANS = (-2.0, 0.3, 1.5)
VARIANCES = (1e-6, 0.01, 0.7, 4.0, 25.0)


@pytest.fixture(autouse=True)
def _double():
    with precision("float64"):
        yield


def average(function, mean, variance, breaks=(), reach=14.0):
    """E[function(f)], f ~ N(mean, variance), by adaptive quadrature that knows where the function bends."""
    std = np.sqrt(variance)
    near = [-6.0, -2.0, 2.0, 6.0, *((b - mean) / std for b in breaks)]
    points = sorted({z for z in near if abs(z) < reach - 1e-9})
    return quad(
        lambda z: function(mean + std * z) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi),
        -reach, reach, points=points, limit=2000, epsabs=1e-13, epsrel=1e-11,
    )[0]  # fmt: skip


@functools.cache
def _program(name):
    return jax.jit(lambda likelihood, *given: getattr(likelihood, name)(*given))


class Compiled:
    """A likelihood whose methods are programs, one for a kind of likelihood: operation by operation costs tenfold."""

    def __init__(self, likelihood):
        self.likelihood = likelihood

    def __getattr__(self, name):
        if name in self.likelihood.in_numpy:
            return getattr(self.likelihood, name)
        return functools.partial(_program(name), self.likelihood)


class LikelihoodConformance:
    """Inherit, and give `make`, `log_law`, `conditional_moments` and `targets`."""

    targets: tuple = (-1.3, 0.3, 4.0)
    tolerance = 1e-9  # of averages with a closed form
    log_density_tolerance = 1e-6
    means = MEANS
    variances = VARIANCES

    def make(self):
        raise NotImplementedError

    def compiled(self):
        return Compiled(self.make())

    def log_law(self, y, f):
        """log p(y | f) by SciPy."""
        raise NotImplementedError

    def conditional_moments(self, f):
        """Mean and variance of y given f."""
        raise NotImplementedError

    def breaks(self, y):
        """Where log p(y | f) bends, for the reference quadrature."""
        return (y,)

    def total(self, log_density):
        """Sum of a density over all targets."""
        return quad(lambda y: np.exp(log_density(y)), -np.inf, np.inf, limit=500)[0]

    def grid(self):
        y, m, v = np.meshgrid(self.targets, self.means, self.variances, indexing="ij")
        return y.ravel(), m.ravel(), v.ravel()

    # ------------------------------------------------------------ averages
    def test_the_law(self):
        y, f = (part.ravel() for part in np.meshgrid(self.targets, np.linspace(-7, 7, 29)))
        np.testing.assert_allclose(
            self.compiled().log_prob(y, f), self.log_law(y, f), rtol=1e-9, atol=1e-15
        )

    def test_expected_log_prob(self):
        y, m, v = self.grid()
        found = self.compiled().expected_log_prob(y, m, v)
        wanted = [
            average(lambda f, y=a: self.log_law(y, f), b, c, self.breaks(a))
            for a, b, c in zip(y, m, v, strict=True)
        ]
        np.testing.assert_allclose(found, wanted, rtol=self.tolerance, atol=self.tolerance)

    def test_sites(self):
        """Against Stein's identities ``E[g'] = E[g z] / s`` and ``E[g''] = E[g (z^2 - 1)] / v``."""
        y, m, v = self.grid()
        alpha, beta = self.compiled().sites(y, m, v)
        first, second = [], []
        for a, b, c in zip(y, m, v, strict=True):
            g = lambda f, y=a, b=b: self.log_law(y, f) - self.log_law(y, b)  # noqa: E731
            breaks = self.breaks(a)
            z = lambda f, b=b, c=c: (f - b) / np.sqrt(c)  # noqa: E731
            first.append(average(lambda f, g=g, z=z: g(f) * z(f), b, c, breaks) / np.sqrt(c))
            second.append(average(lambda f, g=g, z=z: g(f) * (1 - z(f) ** 2), b, c, breaks) / c)
        # the reference divides the rounding of 1e-15 by the variance
        np.testing.assert_allclose(alpha, first, rtol=10 * self.tolerance, atol=1e-6)
        np.testing.assert_allclose(beta, second, rtol=10 * self.tolerance, atol=1e-6)

    def test_sites_are_the_gradients(self):
        likelihood, (y, m, v) = self.compiled(), self.grid()
        by_mean, by_variance = jax.jit(
            jax.grad(lambda m, v: likelihood.expected_log_prob(y, m, v).sum(), argnums=(0, 1))
        )(jnp.array(m), jnp.array(v))
        alpha, beta = likelihood.sites(y, m, v)
        np.testing.assert_allclose(by_mean, alpha, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(by_variance, -0.5 * beta, rtol=1e-9, atol=1e-9)

    def test_log_density(self):
        y, m, v = self.grid()
        found = self.compiled().log_density(y, m, v)
        wanted = []
        for a, b, c in zip(y, m, v, strict=True):
            f = b + np.sqrt(c) * np.linspace(-13, 13, 4001)
            height = self.log_law(a, f) - 0.5 * (f - b) ** 2 / c
            peak, shift = f[np.argmax(height)], self.log_law(a, f).max()
            integral = average(
                lambda f, y=a, shift=shift: np.exp(self.log_law(y, f) - shift),
                b, c, (*self.breaks(a), peak),
            )  # fmt: skip
            wanted.append(np.log(integral) + shift)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=self.log_density_tolerance)

    def test_the_density_sums_to_one(self):
        density = self.compiled().log_density
        for mean, variance in ((0.3, 0.2), (-1.0, 1.0)):
            found = self.total(lambda y, m=mean, v=variance: np.asarray(density(y, m, v)))
            assert float(found) == pytest.approx(1.0, abs=2e-6)

    def test_predictive_moments(self):
        likelihood = self.compiled()
        for mean in self.means:
            for variance in self.variances:
                conditional = [
                    lambda f: self.conditional_moments(f)[0],
                    lambda f: self.conditional_moments(f)[1] + self.conditional_moments(f)[0] ** 2,
                ]
                first, second = (
                    average(g, mean, variance, self.breaks(0.0), reach=22.0) for g in conditional
                )
                found = likelihood.predictive_mean(mean, variance)
                assert float(found) == pytest.approx(first, rel=1e-6, abs=1e-9)
                found = likelihood.predictive_variance(mean, variance)
                assert float(found) == pytest.approx(second - first**2, rel=1e-5)

    # ------------------------------------------------------------ distribution functions
    def test_the_distribution_function_is_the_sum_of_the_density(self):
        """Between targets by Gauss-Legendre, of counts by their masses; with the median's value where it is known."""
        likelihood = self.make()
        m, v = (part.ravel() for part in np.meshgrid(self.means, self.variances))
        if likelihood.counts:
            y = np.arange(8.0)[:, None]
            mass = np.exp(self.compiled().log_density(y, m, v))
            found = likelihood.distribution(y, m, v)
            np.testing.assert_allclose(found, np.cumsum(mass, axis=0), atol=7e-4)
            assert not likelihood.distribution(-1.0, m, v).any()
            return
        np.testing.assert_allclose(likelihood.distribution(m, m, v), 0.5, atol=1e-7)
        nodes, weights = np.polynomial.legendre.leggauss(200)
        # from the centre outwards, where a density may be narrow, by y = m + sinh(u)^3
        u = 0.6 * (1.0 + nodes[:, None])
        y, slope = m + np.sinh(u) ** 3, 3.0 * np.sinh(u) ** 2 * np.cosh(u)
        density = np.exp(self.compiled().log_density(y, m, v))
        wanted = 0.6 * weights @ (density * slope)
        end = m + np.sinh(1.2) ** 3
        np.testing.assert_allclose(likelihood.distribution(end, m, v) - 0.5, wanted, atol=2e-6)

    def test_quantiles_invert_the_distribution_function(self):
        likelihood = self.make()
        m, v = (part.ravel() for part in np.meshgrid(self.means, self.variances))
        near = np.asarray(likelihood.predictive_mean(m, v)), np.full_like(m, 0.1)
        p = [0.001, 0.025, 0.5, 0.975]
        found = quantiles(likelihood, p, m, v, near)
        reached = likelihood.distribution(found, m, v)
        if likelihood.counts:
            assert (found == np.floor(found)).all() and (found >= 0).all()
            before = likelihood.distribution(found - 1.0, m, v)
            p = np.array(p)[:, None]
            assert (reached >= p - 1e-7).all() and (before <= p + 1e-7).all()
        else:
            np.testing.assert_allclose(reached, np.array(p)[:, None] + 0.0 * m, atol=1e-6)

    # ------------------------------------------------------------ limits and gradients
    def test_without_latent_variance(self):
        likelihood, (y, m, _) = self.compiled(), self.grid()
        law = self.log_law(y, m)
        for method in (likelihood.expected_log_prob, likelihood.log_density):
            np.testing.assert_allclose(method(y, m, 1e-14), law, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(method(y, m, 0.0), law, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(
            likelihood.predictive_mean(m, 0.0), self.conditional_moments(m)[0], rtol=1e-9
        )

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_gradients_are_finite(self, dtype):
        """Also without variance, at the target itself, and far from it."""
        with precision(dtype):
            y = jnp.array([self.targets[0], self.targets[-1]] * 3, dtype=dtype)
            mean = y + jnp.array([0.0, 0.0, 1.0, -1.0, 30.0, -30.0], dtype)
            slopes = {
                name: jax.jit(
                    jax.grad(
                        lambda likelihood, m, v, name=name: getattr(likelihood, name)(
                            y, m, v
                        ).sum(),
                        argnums=(0, 1, 2),
                    )
                )
                for name in ("expected_log_prob", "log_density")
            }
            for variance in (0.0, 1e-12, 1.0):
                for name in ("expected_log_prob", "log_density"):
                    grads = slopes[name](
                        jax.tree.map(jnp.asarray, self.make()), mean, jnp.full_like(mean, variance)
                    )
                    for leaf in jax.tree.leaves(grads):
                        assert np.isfinite(leaf).all(), (name, variance)

    def test_single_precision(self):
        y, m, v = self.grid()
        methods = ("expected_log_prob", "log_density")
        wanted = [getattr(self.compiled(), name)(y, m, v) for name in methods]
        with precision("float32"):
            given = [jnp.asarray(part, jnp.float32) for part in (y, m, v)]
            found = [getattr(self.compiled(), name)(*given) for name in methods]
            assert all(part.dtype == jnp.float32 for part in found)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)

    def test_gradients_by_hyperparameters(self):
        likelihood, (y, m, v) = self.make(), self.grid()
        y, m, v = (part[v > 1e-3] for part in (y, m, v))
        logs, build = jax.tree.flatten(jax.tree.map(np.log, likelihood))
        for name in ("expected_log_prob", "log_density"):

            def total(logs, name=name):
                made = jax.tree.map(jnp.exp, jax.tree.unflatten(build, logs))
                return getattr(made, name)(y, m, v).sum()

            total = jax.jit(total)
            slopes = jax.jit(jax.grad(total))([jnp.asarray(entry) for entry in logs])
            for k, slope in enumerate(slopes):
                ends = [
                    total([entry + h * (j == k) for j, entry in enumerate(logs)])
                    for h in (1e-4, -1e-4)
                ]
                assert float(slope) == pytest.approx(
                    float(ends[0] - ends[1]) / 2e-4, rel=max(1e-5, self.tolerance), abs=1e-5
                )

    def test_site_bound(self):
        """A lower bound of the expectation whose sites are never negative: it falls with the variance."""
        likelihood, (y, m, v) = self.compiled(), self.grid()
        bound = likelihood.site_bound(y, m, v)
        exact = likelihood.expected_log_prob(y, m, v)
        slope = jax.jit(jax.grad(lambda v: likelihood.site_bound(y, m, v).sum()))(jnp.array(v))
        assert (np.asarray(slope) <= 0).all()
        if self.make().log_concave:
            np.testing.assert_array_equal(bound, exact)
        else:
            assert (np.asarray(bound - exact) <= 1e-9).all()

    def test_most_curvature(self):
        """The largest precision of a site, reached somewhere where it is finite."""
        likelihood, f = self.compiled(), np.linspace(-40, 40, 1601)
        most = self.make().most_curvature()
        found = max(np.max(likelihood.sites(y, f, 0.0)[1]) for y in self.targets)
        assert found <= most * (1 + 1e-9)
        if np.isfinite(most):
            assert found == pytest.approx(most, rel=0.01)

    # ------------------------------------------------------------ targets, units, files
    def test_the_target_in_other_units(self):
        likelihood = self.make()
        scaled = likelihood.in_units(10.0)
        y, m, v = self.grid()
        if not likelihood.scales_target:
            assert scaled is likelihood
            return
        np.testing.assert_allclose(
            Compiled(scaled).log_density(10 * y, 10 * m, 100 * v),
            np.asarray(self.compiled().log_density(y, m, v)) - np.log(10.0),
            rtol=1e-9,
        )

    def test_targets_are_checked(self):
        likelihood = self.make()
        likelihood.check_targets(np.array(self.targets))
        with pytest.raises(
            ValueError, match=r"^y must hold .*received 1 other value, the first nan"
        ):
            likelihood.check_targets(np.array([*self.targets, np.nan]))

    def test_a_file_keeps_it(self):
        likelihood = self.make()
        again = from_spec(json.loads(json.dumps(to_spec(likelihood))))
        assert type(again) is type(likelihood)
        assert repr(again) == repr(likelihood)
        assert jax.tree.structure(again) == jax.tree.structure(likelihood)
        assert jax.tree.leaves(again) == jax.tree.leaves(likelihood)

    def test_its_name(self):
        made = from_name(self.make().name)
        assert type(made) is type(self.make())
        assert all(leaf > 0 for leaf in jax.tree.leaves(made))

    def test_traced_values_pass(self):
        likelihood = self.make()
        assert jax.jit(lambda given: (jax.tree.leaves(given) and repr(given) and 1.0) or 1.0)(
            likelihood
        )
