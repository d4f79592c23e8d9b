"""Classes with a fixed basis: Markov chains over hyperparameters and latent values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import logsumexp

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.estimators.arguments import seed_from
from vastgp.estimators.base import Fit
from vastgp.estimators.classifier import BaseGPClassifier
from vastgp.likelihoods import Bernoulli, MultinomialProbit, Softmax
from vastgp.likelihoods.rowwise import by_rows
from vastgp.methods.reweighted.fit import Features
from vastgp.methods.reweighted.latent_fits import ROWS_PER_STEP, LatentFits
from vastgp.methods.reweighted.latent_mixture import LatentMixture
from vastgp.methods.reweighted.latent_values import Largest, Signs


class ReweightedBasisClassifier(BaseGPClassifier, LatentFits):
    """Classification with a basis that stays fixed, averaged over hyperparameters.

    With two classes ``P(second class | x) = Phi(f(x))``, with the normal distribution function: a label is the sign of
    a latent value ``f(x) + eps``. With more, each class has a function, and a label is that of the largest latent value
    (multinomial probit). Given these values the model is the regression of `ReweightedBasisRegressor`. Chains alternate
    between the hyperparameters, which all functions share, given all latent values, and new values for some rows: one
    pass over the rows, and steps whose cost does not depend on their number. Needs ``pip install vastgp[mcmc]``.

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
    classes_ : ndarray of shape (C,)
        Labels, sorted. With two of them the function is that of the second one, with more there is one for each.
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
        rows_per_step: Any = ROWS_PER_STEP,
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

    def _check_params(self) -> None:
        self._check_chains()
        self._check_basis()
        self._check_rows_per_step()
        self._check_libraries()

    # ------------------------------------------------------------ fit

    def _make_features(self, rows: Rows) -> Features:
        count = len(self.classes_)
        # functions of the size that ours are of
        start = self._latent_start(rows, Bernoulli("probit") if count == 2 else Softmax(count))
        # the noise of the latent values
        return Features(*self._make_basis(start.kernel, rows), 1.0)

    def _fit_rows(self, rows: Rows) -> Fit:
        self._seed = seed_from(self.random_state)
        count = len(self.classes_)
        two = count == 2
        likelihood = Bernoulli("probit") if two else MultinomialProbit(count)
        latent = Signs() if two else Largest(count)
        return self._fit_latent(rows, self._make_features(rows), latent, likelihood)[0]

    # ------------------------------------------------------------ predictions

    def _probabilities(self, rows: Rows) -> np.ndarray:
        if len(self.classes_) == 2:
            return super()._probabilities(rows)
        return np.concatenate(
            [np.mean(each, axis=0) for each in self._each("predictive_mean", rows)], axis=-1
        )

    def _log_probabilities(self, rows: Rows, labels: np.ndarray) -> np.ndarray:
        if len(self.classes_) == 2:
            return super()._log_probabilities(rows, labels)
        logs = self._each("log_density", rows, labels)
        return np.concatenate([logsumexp(each, axis=0) - np.log(len(each)) for each in logs])

    def _each(
        self, method: str, rows: Rows, labels: np.ndarray | None = None
    ) -> Iterator[np.ndarray]:
        """Yield what the likelihood gives for every component, for one tile of rows after another.

        Functions are independent given a draw. The draws tell what they have in common: all may rise together without
        a change of the labels, which adds to the variance of each and not to that of their differences.
        """
        assert isinstance(self._predictor, LatentMixture)
        done = 0
        for X, _ in self._tiles(rows):
            with precision(self.dtype):
                means, variance = self._predictor.by_component(X)
            before = () if labels is None else (labels[done : done + len(X)],)
            done += len(X)
            given = [
                by_rows(
                    self.likelihood_, method, *before, mean, np.broadcast_to(variance, mean.shape)
                )
                for mean in means
            ]
            yield np.stack(given)
