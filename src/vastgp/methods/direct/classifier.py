"""DIRECT: classification with discrete weights."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.estimators.arguments import check_choice, check_fixed, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.classifier import BaseGPClassifier
from vastgp.estimators.first_hyperparameters import start_rows
from vastgp.fitting.dual_start import start_from_dual_evidence
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.kernels import Kernel
from vastgp.likelihoods import Bernoulli, Likelihood, OneVsRest, Softmax
from vastgp.methods.direct.arguments import check_direct
from vastgp.methods.direct.fit import DirectFits, FittedWeights, left_of
from vastgp.methods.direct.logistic_training import (
    LabelledFeatures,
    Weights,
    fit_exponential,
    quadratic_likelihood,
    sweep,
    weights_moments,
)
from vastgp.methods.direct.posterior import DiscretePosterior
from vastgp.methods.direct.start import normal_weights
from vastgp.methods.direct.training import DiscreteFit, start_mean_field
from vastgp.solvers.sites import most_rows

# Most passes over the rows that renew the quadratic bound.
_MOST_PASSES = 60
# Numbers of the exponential bound: rows times weights times values.
_MOST_EXPONENTIAL = 1_000_000_000


class DirectClassifier(BaseGPClassifier, DirectFits):
    """Classification with random Fourier features whose weights take a few values each.

    Two classes: ``P(second class | x) = sigmoid(f(x))``. More: one function for each class against the rest, their
    probabilities brought to the sum of one. The posterior of the weights is as in `DirectRegressor`; the average of
    the logistic log-likelihood has no closed form and is bounded from below:

    - ``bound="quadratic"`` (Jaakkola and Jordan): a parabola for each row that touches where the function is
      expected. The weights see weighted sums like those of regression; some passes over the rows renew them.
    - ``bound="exponential"`` (Theorem 7.2 of the thesis): ``-exp(-y f)``, in log space. It falls exponentially on
      the wrong side, so that few wrong labels rule the fit, and every evaluation needs all rows, weights and values.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPClassifier`.
    num_basis : int, optional
        Basis functions; of random Fourier features an even number. None: 1000, or four per row where that is less.
    bound : {"quadratic", "exponential"}, default "quadratic"
    basis, support, learn_support, prior, prior_weights, start, isotropic, frequencies
        As in `DirectRegressor`.
    q, components, objective, draws
        As in `DirectRegressor`; mixtures need the quadratic bound.
    hyperparameters : {"subset", "fixed"}, default "subset"
        ``"subset"``: kernel of highest evidence bound on ``start_rows`` rows. ``"fixed"``: the one given.
    start_rows : int, default 1000
    noise_floor : float, default 1e-4
        As in the search for hyperparameters of the other estimators; classes have no noise of their own.
    max_iter : int, default 1000
        Most iterations of L-BFGS for each function.
    tol : float, default 1e-4
        Converged when a pass, and then an iteration, raises the bound by less than so many nats per row.
    max_seconds, random_state, dtype, verbose
        As in `DirectRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    elbo_ : float
        The bound of the evidence that was reached, in nats; of all functions together.

    References
    ----------
    Jaakkola, T. S., Jordan, M. I. (2000). Bayesian parameter estimation via variational methods. Statistics and
    Computing 10. Evans, T. W. (2022), doctoral thesis, section 7.4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import DirectClassifier
    >>> X = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    >>> model = DirectClassifier("rbf", 50).fit(X, np.where(np.sin(X[:, 0]) > 0, "above", "below"))
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    """

    _most_basis = 1000
    keep_statistics: Any = False

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        basis: Any = "fourier",
        bound: Any = "quadratic",
        support: Any = 15,
        learn_support: Any = False,
        prior: Any = "gaussian",
        prior_weights: Any = None,
        q: Any = "mean-field",
        components: Any = 5,
        objective: Any = "bound",
        draws: Any = 64,
        start: Any = "posterior",
        isotropic: Any = False,
        hyperparameters: Any = "subset",
        noise_floor: Any = 1e-4,
        start_rows: Any = 1000,
        frequencies: Any = "plain",
        max_iter: Any = 1000,
        tol: Any = 1e-4,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float32",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.bound = bound
        self.support = support
        self.learn_support = learn_support
        self.prior = prior
        self.prior_weights = prior_weights
        self.q = q
        self.components = components
        self.objective = objective
        self.draws = draws
        self.start = start
        self.isotropic = isotropic
        self.hyperparameters = hyperparameters
        self.noise_floor = noise_floor
        self.start_rows = start_rows
        self.frequencies = frequencies
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        check_direct(self)
        check_choice("bound", self.bound, ("quadratic", "exponential"))
        check_fixed(self, needs_noise=False)
        if self.bound == "exponential" and (self.q == "mixture" or np.ndim(self.prior) > 1):
            raise ValueError(
                "bound='exponential' is for q='mean-field' and a prior of one part. Set bound='quadratic'."
            )

    # ------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows) -> Fit:
        seed = seed_from(self.random_state)
        num_classes = len(self.classes_)
        self._check_cost(rows.n)
        kernel = self._first_kernel(rows, seed, num_classes)
        basis, kernel = self._make_basis(kernel, rows, seed)
        features = LabelledFeatures(rows, self.standardizer_, basis, self.dtype)
        kinds: list[int | None] = [None] if num_classes == 2 else list(range(num_classes))
        fit_one = self._fit_quadratic if self.bound == "quadratic" else self._fit_exponential
        found = [fit_one(features, which, seed) for which in kinds]
        fits = [each.fit for each in found]
        self._warn_unless_converged(fits)
        self.elbo_ = float(sum(fit.objective for fit in fits))
        one = len(found) == 1
        stacked = (
            np.stack([getattr(each, name) for each in found])
            for name in ("values", "probabilities", "mixture")
        )
        values, probabilities, mixture = (array[0] if one else array for array in stacked)
        likelihood: Likelihood = Bernoulli() if one else OneVsRest(num_classes)
        slowest = max(fits, key=lambda fit: fit.num_iter)
        late = next((fit for fit in fits if not fit.converged), slowest)
        return Fit(
            kernel,
            likelihood,
            DiscretePosterior(basis, values, probabilities, mixture, self._proof_rows(rows, seed)),
            slowest.num_iter,
            late.converged,
            late.reason,
            slowest.history,
        )

    def _check_cost(self, n: int) -> None:
        if self.bound != "exponential":
            return
        size = self._choose_basis(n)
        values = int(self.support) if np.ndim(self.support) == 0 else len(self.support)
        numbers = n * size * values
        if numbers > _MOST_EXPONENTIAL:
            raise ValueError(
                f"bound='exponential' evaluates {n} rows x {size} weights x {values} values = {numbers:.1e} "
                f"exponentials in each of up to {self.max_iter} iterations, more than {_MOST_EXPONENTIAL:.0e}. Set "
                "bound='quadratic', whose iterations do not know the rows, or give fewer of any of these."
            )

    def _first_kernel(self, rows: Rows, seed: int, num_classes: int) -> Kernel:
        if self.hyperparameters == "fixed":
            return self._given_kernel()
        likelihood: Likelihood = Bernoulli() if num_classes == 2 else Softmax(num_classes)
        X, y = start_rows(self, rows, seed)
        most = min(self.start_rows, most_rows(self.start_rows, likelihood))
        return start_from_dual_evidence(
            self._wanted_kernel(), likelihood, X, y, max_rows=most,
            seed=seed, isotropic=bool(self.isotropic), noise_floor=self.noise_floor,
            max_seconds=self._seconds_left(self.max_seconds),
        ).kernel  # fmt: skip

    def _fit_quadratic(
        self, features: LabelledFeatures, which: int | None, seed: int
    ) -> FittedWeights:
        """Fit one function: weights at a fixed quadratic bound, the bound at fixed weights, and so on."""
        rows, size = features.num_rows, features.num_basis
        left = self._seconds_left(self.max_seconds)
        began = time.perf_counter()
        deadline = None if left is None else began + left
        history = History()
        logits: Any = None
        bound = -np.inf
        reason, converged = f"stopped after {_MOST_PASSES} passes over the rows", False
        with precision("float64"):
            # the prior
            weights = Weights(np.zeros(size), np.ones(size))
            for step in range(1, _MOST_PASSES + 1):
                likelihood, constant = quadratic_likelihood(features, which, weights)
                model = self._discrete_model(likelihood, np.ones(1), np.zeros(1))
                if logits is None:
                    normal = normal_weights(likelihood, 1.0) if self.start == "posterior" else None
                    logits, _ = start_mean_field(
                        model, normal=normal, learn_spacing=self._learns_support(), tol=self.tol * rows,
                        deadline=deadline,
                    )  # fmt: skip
                before = bound
                logits, bound = sweep(logits, model)
                bound += constant
                weights = weights_moments(logits, model)
                history.append(step, time.perf_counter() - began, {"objective": bound})
                if bound - before < self.tol * rows:
                    reason, converged = "the bound rose by less than tol per row", True
                    break
                if deadline is not None and time.perf_counter() > deadline:
                    reason = OUT_OF_TIME
                    break
        found = self._fit_weights(likelihood, rows, 1.0, seed, warm=logits)
        last = found.fit
        history.append(
            len(history) + 1, time.perf_counter() - began, {"objective": last.objective + constant}
        )
        both = converged and last.converged
        fit = DiscreteFit(
            last.logits, last.objective + constant, len(history), both,
            reason if last.converged else last.reason, history,
        )  # fmt: skip
        return found._replace(fit=fit)

    def _fit_exponential(
        self, features: LabelledFeatures, which: int | None, seed: int
    ) -> FittedWeights:
        """Fit one function by Theorem 7.2, from where the quadratic bound under the prior leads."""
        size = features.num_basis
        left = self._seconds_left(self.max_seconds)
        deadline = None if left is None else time.perf_counter() + left
        with precision("float64"):
            weights = Weights(np.zeros(size), np.ones(size))
            likelihood, _ = quadratic_likelihood(features, which, weights)
            model = self._discrete_model(likelihood, np.ones(1), np.zeros(1))
            normal = normal_weights(likelihood, 1.0) if self.start == "posterior" else None
            logits, _ = start_mean_field(
                model, normal=normal, learn_spacing=self._learns_support(), tol=self.tol * features.num_rows,
                deadline=deadline,
            )  # fmt: skip
            fit = fit_exponential(
                features, which, model, logits, max_iter=int(self.max_iter), tol=self.tol, max_seconds=left_of(deadline)
            )  # fmt: skip
            return self._plain(fit, model, 0.0)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = super()._state()
        return state | {"elbo": self.elbo_}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.elbo_ = state["elbo"]
