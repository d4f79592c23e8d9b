"""DIRECT: a small Bayesian network whose evidence bound is computed exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import OneOf, Positive, is_number
from vastgp.data import Rows
from vastgp.estimators.arguments import CheckpointLike, MaxSeconds, Seed, Tolerance, Verbose
from vastgp.estimators.few_rows import FEW_ROWS
from vastgp.estimators.first_hyperparameters import Beginning, find_first
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.estimators.searches import Subset
from vastgp.fitting.run import Answer, Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.likelihoods import Gaussian
from vastgp.methods.direct.network_polynomial import (
    NetworkTerms,
    network_cost,
    network_products,
    network_terms,
)
from vastgp.methods.direct.network_posterior import DiscreteNetworkPosterior
from vastgp.methods.direct.network_training import NetworkPlan, climb
from vastgp.methods.direct.options import SupportArgument, as_support
from vastgp.methods.direct.training import softmax

_BLOCK_ROWS = 16_384
# Of the budget: the search for the process that few rows are averaged with.
_SEARCH = 0.25


class DirectNetworkRegressor(BaseGPRegressor):
    """Bayesian network with quadratic activations and discrete weights, for small tables and small devices.

    One or two hidden layers of units ``(sum_i w_i x_i)^2`` and a linear output: a polynomial of the weights, so that
    the evidence bound of independent discrete weights is a finite sum of products of their moments (appendix E of the
    thesis). It is computed exactly and maximised by L-BFGS from several starts; mean and variance of predictions are
    exact, too. Rows enter by sums over the monomials of the inputs, so that after one pass the time does not depend on
    their number. Up to 500 rows a process is found beside it: where they leave open what function they are of, or the
    network is behind a line in its eyes, an average of both is the answer. Of more rows a tenth (a twentieth from 2000
    on) is kept out, to hold the network against a line. The time grows fast with the network: with ``h`` monomials of
    the weights, ``h (h + 1) / 2`` products.
    One hidden layer of ``u`` units on ``d`` inputs has ``h = u (d + 1) (d + 2) / 2 + 1``; two have the fourth power
    where this has the second. The cost is computed first, and refused beyond ``max_pairs``.

    Parameters
    ----------
    hidden : int or tuple of int, default 3
        Units of the one or two hidden layers.
    support : int, array-like or Support, default 15
        As in `DirectRegressor`, in standard deviations of the prior: one over the square root of the number of inputs
        of a unit. Spacings are not learned, and the prior has one part.
    restarts : int, default 6
        Starts of L-BFGS, from the most probable ones of 128 hypotheses that no change of one weight improves; the
        highest bound is kept.
    max_pairs : int, default 1,000,000
        Largest network: products of pairs of monomials, some 100 bytes and 20 operations each.
    noise_floor : float, default 1e-4
        Least noise variance relative to that of the target. The noise has 15 values from there to twice the variance
        of the target, with equal prior masses.
    max_iter : int, default 500
        Most iterations of each start.
    tol : float, default 1e-6
        Converged when twenty iterations raise the bound by less than so many nats per row each, and no other
        distribution of a single weight, or of the noise, raises it by as much.
    max_seconds : float, optional
        Wall-clock budget of ``fit``.
    checkpoint : path or SaveTo, optional
        As in `DirectRegressor`.
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

    _posterior_class = DiscreteNetworkPosterior
    _beside_posterior = ("elbo",)
    # more rows have no process beside them: some are kept out, to hold the network against a line
    _least_to_spare: ClassVar[int] = FEW_ROWS + 1
    _moved: ClassVar[Mapping[str, str]] = {
        "prior": "support=Support(prior=...)",
        "max_products": "max_pairs",
    }

    def __init__(
        self,
        hidden: Any = 3,
        *,
        support: SupportArgument = 15,
        restarts: Annotated[int, Positive(integer=True)] = 6,
        max_pairs: Annotated[int, Positive(integer=True)] = 1_000_000,
        noise_floor: Annotated[float, Positive()] = 1e-4,
        max_iter: Annotated[int, Positive(integer=True)] = 500,
        tol: Tolerance = 1e-6,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Annotated[str, OneOf("float64")] = "float64",
        verbose: Verbose = False,
    ) -> None:
        self.hidden = hidden
        self.support = support
        self.restarts = restarts
        self.max_pairs = max_pairs
        self.noise_floor = noise_floor
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        self._layers()
        support = as_support(self.support)
        parts = len(support.masses().log_weights)
        if parts > 1 or support.learn:
            raise ValueError(
                f"support of a network has a prior of one part and no learned spacings, received {parts} parts and "
                f"learn={support.learn!r}."
            )

    def _layers(self) -> tuple[int, ...]:
        given = self.hidden if isinstance(self.hidden, (tuple, list)) else (self.hidden,)
        whole = all(is_number(units, whole=True) and units > 0 for units in given)
        if not 1 <= len(given) <= 2 or not whole:
            raise ValueError(
                f"hidden must be the number of units of one hidden layer, or of two as a tuple; received "
                f"{self.hidden!r}."
            )
        return tuple(int(units) for units in given)

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        layers = self._layers()
        self._check_cost(rows.d, layers)
        if rows.n <= FEW_ROWS:
            # a network knows no process: whether few rows are of a linear function, or tell of none, is asked of one
            search = Subset(rows=FEW_ROWS, noise_floor=self.noise_floor)
            beginning = Beginning(search, None, rows, self.standardizer_, run, _SEARCH)
            find_first(beginning, lambda _: Gaussian(1.0))
        terms = network_terms(rows.d, layers)
        products, support = network_products(terms), as_support(self.support)
        # one over the square root of the number of inputs of a unit
        scale = np.asarray(terms.layer_sizes, np.float64)[terms.layer_of] ** -0.5
        plan = NetworkPlan(
            terms, products, scale[:, None] * support.levels(), support.masses(),
            self.noise_floor, self.restarts, self.max_iter, self.tol,
        )  # fmt: skip
        for best, reason, converged in climb(plan, self._gather(rows, terms), run):
            q, of_noise = softmax(best.params.weights[0]), softmax(best.params.noise)
            tables = (terms, products)
            yield Answer(
                None,
                Gaussian(float(of_noise @ plan.noise)),
                partial(DiscreteNetworkPosterior, rows.d, layers, plan.values, q, tables),
                max(best.num_iter, 1),
                reason,
                converged,
                best.history,
                f"give more time (max_seconds), or raise max_iter (now {self.max_iter}) or tol (now {self.tol:g}).",
                {
                    "elbo_": float(best.value),
                    "noise_values_": plan.noise * self.standardizer_.y_scale**2,
                    "noise_probabilities_": of_noise,
                },
            )

    def _check_cost(self, num_inputs: int, layers: tuple[int, ...]) -> None:
        self.cost_ = network_cost(num_inputs, layers)
        if self.cost_.products > self.max_pairs:
            raise ValueError(
                f"a network of {num_inputs} inputs and hidden={layers} has {self.cost_.weights} weights, "
                f"{self.cost_.terms:,} monomials and {self.cost_.products:,} pairs of them, more than "
                f"max_pairs={self.max_pairs:,} (some {100 * self.cost_.products / 1e9:.2g} GB). Give fewer "
                "units, layers or inputs, or raise max_pairs."
            )

    def _gather(self, rows: Rows, terms: NetworkTerms) -> SufficientStatistics:
        total = SufficientStatistics.empty(len(terms.inputs))
        for X, y in rows.batches(_BLOCK_ROWS):
            assert y is not None
            psi = terms.input_features(self.standardizer_.transform_X(X))
            total = total + SufficientStatistics.of(psi, self.standardizer_.transform_y(y))
        return total

    def sparsity(self) -> float:
        """Return the expected share of zeros among the weights of a posterior sample."""
        check_is_fitted(self, "posterior_")
        self._check_own("sparsity")
        return self.posterior_.sparsity()

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = super()._state()
        arrays |= {"noise": self.noise_values_, "noise_probabilities": self.noise_probabilities_}
        return state, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.cost_ = network_cost(self.posterior_.num_inputs, self.posterior_.hidden)
        self.noise_values_ = arrays["noise"]
        self.noise_probabilities_ = arrays["noise_probabilities"]
