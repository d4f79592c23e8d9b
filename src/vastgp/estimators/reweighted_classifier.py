"""Two classes with a fixed basis: Markov chains over hyperparameters and latent values."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.estimators.arguments import check_positive, seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.classifier import BaseGPClassifier
from vastgp.estimators.first_hyperparameters import start_rows
from vastgp.estimators.fixed_basis import FixedBasis
from vastgp.estimators.reweighted_fits import Features
from vastgp.estimators.statistics import gather_with_progress
from vastgp.kernels import Kernel
from vastgp.likelihoods import Bernoulli
from vastgp.objectives.reweighted_evidence import prepare
from vastgp.training.dual_start import start_from_dual_evidence
from vastgp.training.hyperparameter_chains import HyperPosterior
from vastgp.training.latent_chains import LatentRows, draw_latent_hyperparameters
from vastgp.training.progress import Progress

# Rows whose latent values a step renews: as many as cost about what the step of the hyperparameters does.
_ROWS_PER_STEP = 500


class ReweightedBasisClassifier(BaseGPClassifier, FixedBasis):
    """Classification in two classes with a basis that stays fixed, averaged over hyperparameters.

    ``P(second class | x) = Phi(f(x))``, with the normal distribution function. A label is the sign of a latent value
    ``f(x) + eps``; given these values the model is the regression of `ReweightedBasisRegressor`. Chains alternate
    between the hyperparameters given all latent values, and new values for some rows: one pass over the rows, and steps
    whose cost does not depend on their number. Needs ``pip install vastgp[mcmc]``.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        What the basis is made for, at the hyperparameters of highest evidence bound of ``start_rows`` rows. None: RBF.
    num_basis : int, optional
        Functions ``m``. None: 500, or fewer where there are not so many.
    basis : {"random-fourier", "laplace", "interpolation", "relevance", "grief"}, default "interpolation"
        See `ReweightedBasisRegressor`.
    prior : {"kernel", "diagonal", "orthogonal", "spectral"}, default "orthogonal"
        See `ReweightedBasisRegressor`; a step takes O(m) with ``"orthogonal"``, O(m^3) with the first two.
    rows_per_step : int, default 500
        Rows whose latent values a step renews, at most all. With ten times as many rows or more raise ``num_steps``,
        too, so that all are renewed some thousand times.
    num_reflections, box_margin
        See `ReweightedBasisRegressor`.
    sampler : {"mala", "nuts"}, default "mala"
        Of the hyperparameters. They and the latent values hold each other, so that many short steps get further than
        few long ones.
    num_chains, num_warmup, num_steps, thin, num_components
        See `GriefRegressor`.
    start_rows : int, default 1000
    noise_floor : float, default 1e-4
        Of the search for the first hyperparameters.
    max_seconds, random_state, dtype, verbose
        See `GriefRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels, sorted; the function is that of the second one.
    posterior_
        All draws of the hyperparameters (``arviz.InferenceData``; ``xarray.DataTree`` from ArviZ 1 on).
    r_hat_, ess_ : float
        Largest R-hat and smallest effective sample size of the hyperparameters.

    References
    ----------
    Albert, J. H., Chib, S. (1993). Bayesian analysis of binary and polychotomous response data. JASA 88.
    Evans, T. W. (2022), doctoral thesis, section 5.3.5.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import ReweightedBasisClassifier
    >>> X = np.random.default_rng(0).uniform(-3, 3, (100, 1))
    >>> y = np.where(np.sin(X[:, 0]) > 0, "above", "below")
    >>> model = ReweightedBasisClassifier("rbf", 20, num_steps=5000).fit(X, y)
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    """

    def __init__(
        self,
        kernel: Any = None,
        num_basis: Any = None,
        *,
        basis: Any = "interpolation",
        prior: Any = "orthogonal",
        rows_per_step: Any = _ROWS_PER_STEP,
        num_reflections: Any = 4,
        box_margin: Any = 0.5,
        sampler: Any = "mala",
        num_chains: Any = 4,
        num_warmup: Any = None,
        num_steps: Any = None,
        thin: Any = None,
        num_components: Any = 50,
        start_rows: Any = 1000,
        noise_floor: Any = 1e-4,
        max_seconds: Any = None,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.prior = prior
        self.rows_per_step = rows_per_step
        self.num_reflections = num_reflections
        self.box_margin = box_margin
        self.sampler = sampler
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_steps = num_steps
        self.thin = thin
        self.num_components = num_components
        self.start_rows = start_rows
        self.noise_floor = noise_floor
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_params(self) -> None:
        self._check_chains()
        self._check_basis()
        check_positive("rows_per_step", self.rows_per_step, integer=True)
        self._check_libraries()

    def _open_training(self, X: Any, y: Any) -> Rows:
        rows = super()._open_training(X, y)
        if len(self.classes_) > 2:
            # the words that scikit-learn's checks look for come first
            raise ValueError(
                f"Only binary classification is supported: y holds {len(self.classes_)} classes. Wrap the estimator in "
                "sklearn.multiclass.OneVsRestClassifier, or use TSVGPClassifier or QSGPClassifier."
            )
        return rows

    # ------------------------------------------------------------ fit

    def _make_features(self, rows: Rows) -> Features:
        X, y = start_rows(self, rows, self._seed)
        start = start_from_dual_evidence(
            self._wanted_kernel(), Bernoulli("probit"), X, y, max_rows=self.start_rows, seed=self._seed,
            noise_floor=self.noise_floor, max_seconds=self._seconds_left(self.max_seconds),
        )  # fmt: skip
        # the noise of the latent values
        return Features(*self._make_basis(start.kernel, rows), 1.0)

    def _fit_rows(self, rows: Rows) -> Fit:
        self._seed = seed_from(self.random_state)
        self._features = self._make_features(rows)
        basis = self._features.basis
        statistics = gather_with_progress(self, rows, basis)
        with precision("float64"):
            data = prepare(statistics)
        prior = self._make_prior(self._features, data)
        self._target = HyperPosterior(prior, data)
        latent = LatentRows(rows, self.standardizer_, basis, data, self.dtype)
        with Progress("chains", bool(self.verbose)) as progress:
            chains = draw_latent_hyperparameters(
                prior, data, latent, self._plan(), rows_per_step=int(self.rows_per_step), seed=self._seed,
                max_seconds=self._seconds_left(self.max_seconds), on_chunk=progress.update,
            )  # fmt: skip
        mixed = self._use(chains, np.zeros(statistics.num_basis))
        kernel: Kernel = self._kernel_of(self._predictor.theta)
        return Fit(
            kernel, Bernoulli("probit"), self._inference_data(), chains.num_steps, mixed, chains.reason,
            chains.history,
        )  # fmt: skip
