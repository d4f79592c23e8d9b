"""DIRECT: a small Bayesian network whose evidence bound is computed exactly."""

from __future__ import annotations

import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.estimators.arguments import check_choice, check_positive, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.fitting.lbfgs import LbfgsResult, best_of, maximise_real
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.progress import Progress
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.likelihoods import Gaussian
from vastgp.methods.direct.arguments import prior_of, support_values
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    DiscretePrior,
    QuadraticLikelihood,
)
from vastgp.methods.direct.network_polynomial import (
    NetworkProducts,
    NetworkTerms,
    network_cost,
    network_products,
    network_statistics,
    network_terms,
    network_value_and_slope,
)
from vastgp.methods.direct.network_posterior import DiscreteNetworkPosterior
from vastgp.methods.direct.network_start import descend

_BLOCK_ROWS = 16_384
_NOISE_VALUES, _MOST_NOISE = 15, 2.0
# Starts are this wide around their hypothesis, in spacings of the values: a weight that is certain has no slope. The
# log probability of a noise variance falls so fast with the distance from the one that the hypothesis leaves.
_WIDTH, _NOISE_SLOPE = 0.7, 4.0
# Values that are all but impossible keep this log probability beside the likeliest.
_LEAST_LOGIT = -40.0


class DirectNetworkRegressor(BaseGPRegressor):
    """Bayesian network with quadratic activations and discrete weights, for small tables and small devices.

    One or two hidden layers of units ``(sum_i w_i x_i)^2`` and a linear output: a polynomial of the weights, so that
    the evidence bound of independent discrete weights is a finite sum of products of their moments (appendix E of the
    thesis). It is computed exactly and maximised by L-BFGS from several starts; mean and variance of predictions are
    exact, too. Rows enter by sums over the monomials of the inputs, so that after one pass the time does not depend on
    their number. It grows fast with the network: with ``h`` monomials of the weights, ``h (h + 1) / 2`` products.
    One hidden layer of ``u`` units on ``d`` inputs has ``h = u (d + 1) (d + 2) / 2 + 1``; two have the fourth power
    where this has the second. The cost is computed first, and refused beyond ``max_products``.

    Parameters
    ----------
    hidden : int or tuple of int, default 3
        Units of the one or two hidden layers.
    support : int or array-like, default 15
        As in `DirectRegressor`, in standard deviations of the prior: one over the square root of the number of inputs
        of a unit.
    prior : {"gaussian", "uniform"} or array-like of shape (k,), default "gaussian"
    restarts : int, default 6
        Starts of L-BFGS, from the most probable ones of 128 hypotheses that no change of one weight improves; the
        highest bound is kept.
    max_products : int, default 1,000,000
        Largest network: products of pairs of monomials, some 100 bytes and 20 operations each.
    noise_floor : float, default 1e-4
        Least noise variance relative to that of the target. The noise has 15 values from there to twice the variance
        of the target, with equal prior masses.
    max_iter : int, default 500
        Most iterations of each start.
    tol : float, default 1e-6
        Converged when an iteration raises the bound by less than so many nats per row.
    max_seconds : float, optional
    random_state : int, RandomState or None, default 0
    dtype : {"float64"}, default "float64"
    verbose : bool, default False

    Attributes
    ----------
    cost_ : Cost
        Numbers of weights, monomials and products.
    elbo_ : float
        The evidence bound, in nats and standardised units.
    noise_values_, noise_probabilities_ : ndarray of shape (15,)
    kernel_ : None
        There is no kernel.

    References
    ----------
    Evans, T. W. (2022), doctoral thesis, appendix E.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import DirectNetworkRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = DirectNetworkRegressor(2).fit(X, X[:, 0] * X[:, 1])
    >>> model.cost_.weights, model.cost_.terms
    (9, 13)
    >>> bool(model.score(X, X[:, 0] * X[:, 1]) > 0.9)
    True
    """

    def __init__(
        self,
        hidden: Any = 3,
        *,
        support: Any = 15,
        prior: Any = "gaussian",
        restarts: Any = 6,
        max_products: Any = 1_000_000,
        noise_floor: Any = 1e-4,
        max_iter: Any = 500,
        tol: Any = 1e-6,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.hidden = hidden
        self.support = support
        self.prior = prior
        self.restarts = restarts
        self.max_products = max_products
        self.noise_floor = noise_floor
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    # not of networks, but of the prior that they share with DirectRegressor
    prior_weights: Any = None
    learn_support: Any = False

    def _check_params(self) -> None:
        check_choice("dtype", self.dtype, ("float64",))
        for name in ("noise_floor", "tol"):
            check_positive(name, getattr(self, name))
        for name in ("restarts", "max_iter", "max_products"):
            check_positive(name, getattr(self, name), integer=True)
        check_positive("max_seconds", self.max_seconds, none="no limit")
        self._layers()
        prior = prior_of(self, support_values(self.support))
        if len(prior.log_weights) > 1:
            raise ValueError(
                f"prior must have one part for a network, received {len(prior.log_weights)}."
            )

    def _layers(self) -> tuple[int, ...]:
        given = self.hidden if isinstance(self.hidden, (tuple, list)) else (self.hidden,)
        whole = [
            isinstance(units, (int, np.integer)) and not isinstance(units, bool) and units > 0
            for units in given
        ]
        if not 1 <= len(given) <= 2 or not all(whole):
            raise ValueError(
                f"hidden must be the number of units of one hidden layer, or of two as a tuple; received "
                f"{self.hidden!r}."
            )
        return tuple(int(units) for units in given)

    def _fit_rows(self, rows: Rows) -> Fit:
        layers = self._layers()
        self._check_cost(rows.d, layers)
        terms = network_terms(rows.d, layers)
        products = network_products(terms)
        statistics = self._gather(rows, terms)
        return self._fit_statistics(statistics, terms, products, rows.d, layers)

    def _check_cost(self, num_inputs: int, layers: tuple[int, ...]) -> None:
        self.cost_ = network_cost(num_inputs, layers)
        if self.cost_.products > self.max_products:
            raise ValueError(
                f"a network of {num_inputs} inputs and hidden={layers} has {self.cost_.weights} weights, "
                f"{self.cost_.terms:,} monomials and {self.cost_.products:,} products of them, more than "
                f"max_products={self.max_products:,} (some {100 * self.cost_.products / 1e9:.2g} GB). Give fewer "
                "units, layers or inputs, or raise max_products."
            )

    def _gather(self, rows: Rows, terms: NetworkTerms) -> SufficientStatistics:
        total = SufficientStatistics.empty(len(terms.inputs))
        for X, y in rows.batches(_BLOCK_ROWS):
            assert y is not None
            psi = terms.input_features(self.standardizer_.transform_X(X))
            total = total + SufficientStatistics.of(psi, self.standardizer_.transform_y(y))
        return total

    def _fit_statistics(
        self,
        sums: SufficientStatistics,
        terms: NetworkTerms,
        products: NetworkProducts,
        num_inputs: int,
        layers: tuple[int, ...],
    ) -> Fit:
        n = sums.num_rows
        own = support_values(self.support)
        scale = np.asarray(terms.layer_sizes, np.float64)[terms.layer_of] ** -0.5
        values = scale[:, None] * own
        noise = np.geomspace(
            self.noise_floor, max(_MOST_NOISE, 2 * self.noise_floor), _NOISE_VALUES
        )
        best = self._climb(sums, terms, products, values, noise)
        logits = best.params
        if not best.converged and best.message != OUT_OF_TIME:
            warnings.warn(
                f"DirectNetworkRegressor did not converge: {best.message}. Raise max_iter (now {self.max_iter}) or tol "
                f"(now {self.tol:g}).",
                ConvergenceWarning,
                stacklevel=5,
            )
        q = np.asarray(jax.nn.softmax(logits.weights[0]), np.float64)
        of_noise = np.asarray(jax.nn.softmax(logits.noise), np.float64)
        self.elbo_ = float(best.value)
        self.noise_values_ = noise * self.standardizer_.y_scale**2
        self.noise_probabilities_ = of_noise / of_noise.sum()
        posterior = DiscreteNetworkPosterior(
            num_inputs, layers, values, q / q.sum(axis=1, keepdims=True), (terms, products)
        )
        return Fit(
            None,
            Gaussian(float(self.noise_probabilities_ @ noise)),
            posterior,
            max(best.num_iter, 1),
            best.converged,
            best.message if n else "no rows",
            best.history,
        )

    def _climb(
        self,
        sums: SufficientStatistics,
        terms: NetworkTerms,
        products: NetworkProducts,
        values: np.ndarray,
        noise: np.ndarray,
    ) -> LbfgsResult:
        """Maximise the bound from several starts and return the best end."""
        n, seed = sums.num_rows, seed_from(self.random_state)
        left = self._seconds_left(self.max_seconds)
        deadline = None if left is None else time.perf_counter() + left
        ends: list[LbfgsResult] = []
        with precision("float64"), Progress("network", bool(self.verbose)) as progress:
            prior = prior_of(self, support_values(self.support))
            model = DiscreteModel(
                QuadraticLikelihood(
                    0.0, 0.0, jnp.zeros(len(values)), jnp.zeros((len(values),) * 2)
                ),
                jnp.asarray(values),
                DiscretePrior(*(jnp.asarray(part) for part in prior)),
                jnp.asarray(noise),
                jnp.full(len(noise), -np.log(len(noise))),
            )
            statistics = jax.tree.map(
                jnp.asarray,
                network_statistics(terms, products, n, sums.square, sums.target, sums.gram),
            )
            tables = tuple(
                jnp.asarray(table)
                for table in (terms.factors, terms.powers, products.factors, products.powers)
            )
            order = int(products.powers.max())

            def objective(point: DiscreteLogits) -> tuple[float, DiscreteLogits]:
                value, slope = network_value_and_slope(
                    jax.tree.map(jnp.asarray, point), model, statistics, tables, order=order
                )
                return float(value), slope

            log_mass = np.broadcast_to(prior.log_mass[0], values.shape)
            codes, variances = descend(terms, sums, values, log_mass, self.noise_floor, seed)
            index = np.arange(len(values))
            spacing = np.ptp(values, axis=1, keepdims=True) / (values.shape[1] - 1)
            for number in range(min(int(self.restarts), len(codes))):
                if ends and deadline is not None and time.perf_counter() > deadline:
                    break
                away = (values - values[index, codes[number]][:, None]) / spacing
                near = np.maximum(log_mass - 0.5 * (away / _WIDTH) ** 2, _LEAST_LOGIT)
                start = DiscreteLogits(
                    near[None],
                    np.zeros(1),
                    -_NOISE_SLOPE * np.abs(np.log(noise / variances[number])),
                )
                rest = None if deadline is None else max(deadline - time.perf_counter(), 0.0)
                end = maximise_real(
                    objective, start, max_iter=int(self.max_iter), tol=self.tol, scale=n, max_seconds=rest
                )  # fmt: skip
                ends.append(end)
                progress.update((number + 1) / self.restarts, f"bound {best_of(ends).value:.6g}")
        return best_of(ends)

    def sparsity(self) -> float:
        """Return the expected share of zeros among the weights of a posterior sample."""
        return self.posterior_.sparsity()

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        arrays |= {"noise": self.noise_values_, "noise_probabilities": self.noise_probabilities_}
        return state | {"elbo": self.elbo_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.posterior_ = DiscreteNetworkPosterior.from_state(state, arrays)
        self.elbo_ = state["elbo"]
        self.cost_ = network_cost(self.posterior_.num_inputs, self.posterior_.hidden)
        self.noise_values_ = arrays["noise"]
        self.noise_probabilities_ = arrays["noise_probabilities"]
