"""t-SVGP: sparse variational Gaussian processes in dual parameters."""

from __future__ import annotations

from typing import Any

from vastgp.estimators.arguments import check_choice
from vastgp.methods.svgp.fit import (
    SparseClassifier,
    SparseRegressor,
    SVGPFits,
)
from vastgp.methods.svgp.passes import SVGPOptions


class _Dual(SVGPFits):
    """The sites stay as they are while hyperparameters move."""

    sites: Any

    def _check_inducing(self) -> None:
        super()._check_inducing()
        check_choice("sites", self.sites, ("tied", "full"))

    def _options(self) -> SVGPOptions:
        return self._shared_options(hold="sites", untied=self.sites == "full")


class TSVGPRegressor(SparseRegressor, _Dual):
    """t-SVGP: regression with inducing points whose approximation is held as Gaussian sites.

    The posterior of ``m`` inducing variables is the prior times one Gaussian site for each row, of which the sums are
    kept. Natural-gradient steps then are averages of sites that the likelihood's derivatives give in closed form, and
    hyperparameters are learned on a tighter bound, in which the posterior follows the prior. Steps use minibatches, so
    that rows may be any number; the fit ends with E-steps on all of them.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`: None is the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows. Sums and products are allowed.
    num_inducing : int, optional
        Number m of inducing points, at most the number of rows. None: 512, or one for each row where there are fewer.
    isotropic : bool, default False
        One lengthscale for all inputs, which are then scaled together, as in `QSGPRegressor`.
    likelihood : str or Likelihood, default "gaussian"
        Those of `QSGPRegressor`, and ``"heteroskedastic"``: Gaussian noise whose variance is a function of the inputs,
        learned beside the mean with the same kernel and inducing points.
    inducing : {"kmeans", "greedy", "random"} or array of shape (m, d), default "kmeans"
        Where inducing points start: centres of k-means (k-means++), rows of largest remaining variance (pivoted
        Cholesky), random rows, or points in the units of the inputs.
    learn_inducing : bool, default True
        Whether the bound moves them, together with the hyperparameters (``"learn"``).
    sites : {"tied", "full"}, default "tied"
        ``"tied"`` keeps the sums of all sites, in O(m^2) memory. ``"full"`` keeps one site for each row and uses all of
        them in every step (up to ``row_batch`` rows): the bound is tighter still, and with the inducing points at the
        rows it is t-VGP.
    num_e_steps, num_m_steps : int, default 1
        In each iteration, every one on rows of its own.
    step_rate : float, optional
        Length of E-steps, up to 1. None: 1 on all rows (2/3 for more than two classes), on minibatches their
        share of the rows, at least 0.02.
    hyperparameters : {"learn", "subset", "fixed"}, default "learn"
        ``"subset"``: those of highest evidence on ``start_rows`` rows. ``"learn"`` goes on from there on all rows.
        ``"fixed"``: those given, in the units of inputs and target.
    noise_std : float, optional
        Standard deviation of Gaussian noise in units of the target; needed with ``"fixed"``, refused otherwise.
    noise_floor : float, default 1e-3
        Least noise variance relative to the variance of the target.
    learning_rate : float, default 0.02
        Of Adam, on logarithms of hyperparameters and on inducing points.
    start_rows : int, default 1000
        Rows of the first hyperparameters.
    row_batch : int, default 500
        Rows of a step; where there are no more than that, all of them.
    jitter : float, default 1e-8
        Added to the diagonal of ``K_uu``, relative to the prior variance; never less than what rounding asks for.
    max_iter : int, optional
        Iterations at most, None: 2000.
    tol : float, default 1e-4
        Converged when 100 iterations gain less of the bound than this for each row. With minibatches also when the gain
        is below its standard error and that below 100 times this; not before 400 iterations and ten epochs (or 200,000
        rows).
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked every ten iterations; a fifth of it is kept for passes over all rows.
    checkpoint : path, optional
        File to save the state of the fit to, and to go on from if it is there. Removed once the fit is complete; kept
        when ``max_seconds`` ended it, so that the same fit with a larger budget goes on from there.
    checkpoint_seconds : float, default 30.0
        Time between two saves.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of steps on minibatches; passes over all rows and predictions are in float64.
    verbose : bool, default False

    Attributes
    ----------
    inducing_points_ : ndarray of shape (m, d)
        In the units of the inputs.
    diagnosis_ : dict
        ``"bound"``: lower bound of the log evidence by the last pass over all rows, in nats of the standardised target;
        ``"damped_steps"``: steps that were shortened, as they would have left no posterior or lowered the bound of all
        rows; ``"passes"``: E-steps on all rows.

    References
    ----------
    Adam, V., Chang, P. E., Khan, M. E., Solin, A. (2021). Dual parameterization of sparse variational
    Gaussian processes. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import TSVGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = TSVGPRegressor("rbf", 20).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        num_inducing: Any = None,
        *,
        isotropic: Any = False,
        likelihood: Any = "gaussian",
        inducing: Any = "kmeans",
        learn_inducing: Any = True,
        sites: Any = "tied",
        num_e_steps: Any = 1,
        num_m_steps: Any = 1,
        step_rate: Any = None,
        hyperparameters: Any = "learn",
        noise_std: Any = None,
        noise_floor: Any = 1e-3,
        learning_rate: Any = 0.02,
        start_rows: Any = 1000,
        row_batch: Any = 500,
        jitter: Any = 1e-8,
        max_iter: Any = None,
        tol: Any = 1e-4,
        max_seconds: Any = None,
        checkpoint: Any = None,
        checkpoint_seconds: Any = 30.0,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.isotropic = isotropic
        self.likelihood = likelihood
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.sites = sites
        self.num_e_steps = num_e_steps
        self.num_m_steps = num_m_steps
        self.step_rate = step_rate
        self.hyperparameters = hyperparameters
        self.noise_std = noise_std
        self.noise_floor = noise_floor
        self.learning_rate = learning_rate
        self.start_rows = start_rows
        self.row_batch = row_batch
        self.jitter = jitter
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose


class TSVGPClassifier(SparseClassifier, _Dual):
    """t-SVGP: classification with inducing points whose approximation is held as Gaussian sites.

    See `TSVGPRegressor`. Two classes have one function, more have one for each (softmax), with one kernel and one set
    of inducing points for all.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`: None is the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows. Sums and products are allowed.
    num_inducing : int, optional
        Number m of inducing points, at most the number of rows. None: 512, or one for each row where there are fewer.
    isotropic : bool, default False
        One lengthscale for all inputs, which are then scaled together, as in `QSGPRegressor`.
    link : {"logit", "probit"}, default "logit"
        ``"probit"`` is for two classes.
    class_weight : dict, "balanced" or None, default None
        As in `QSGPClassifier`.
    inducing : {"kmeans", "greedy", "random"} or array of shape (m, d), default "kmeans"
        Where inducing points start: centres of k-means (k-means++), rows of largest remaining variance (pivoted
        Cholesky), random rows, or points in the units of the inputs.
    learn_inducing : bool, default True
        Whether the bound moves them, together with the hyperparameters (``"learn"``).
    sites : {"tied", "full"}, default "tied"
        ``"tied"`` keeps the sums of all sites, in O(m^2) memory. ``"full"`` keeps one site for each row and uses all of
        them in every step (up to ``row_batch`` rows): the bound is tighter still, and with the inducing points at the
        rows it is t-VGP.
    num_e_steps, num_m_steps : int, default 1
        In each iteration, every one on rows of its own.
    step_rate : float, optional
        Length of E-steps, up to 1. None: 1 on all rows (2/3 for more than two classes), on minibatches their
        share of the rows, at least 0.02.
    hyperparameters : {"learn", "subset", "fixed"}, default "learn"
        ``"subset"``: those of highest evidence on ``start_rows`` rows. ``"learn"`` goes on from there on all rows.
        ``"fixed"``: those given, in the units of inputs and target.
    learning_rate : float, default 0.02
        Of Adam, on logarithms of hyperparameters and on inducing points.
    start_rows : int, default 1000
        Rows of the first hyperparameters.
    row_batch : int, default 500
        Rows of a step; where there are no more than that, all of them.
    jitter : float, default 1e-8
        Added to the diagonal of ``K_uu``, relative to the prior variance; never less than what rounding asks for.
    max_iter : int, optional
        Iterations at most, None: 2000.
    tol : float, default 1e-4
        Converged when 100 iterations gain less of the bound than this for each row. With minibatches also when the gain
        is below its standard error and that below 100 times this; not before 400 iterations and ten epochs (or 200,000
        rows).
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked every ten iterations; a fifth of it is kept for passes over all rows.
    checkpoint : path, optional
        File to save the state of the fit to, and to go on from if it is there. Removed once the fit is complete; kept
        when ``max_seconds`` ended it, so that the same fit with a larger budget goes on from there.
    checkpoint_seconds : float, default 30.0
        Time between two saves.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of steps on minibatches; passes over all rows and predictions are in float64.
    verbose : bool, default False

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels, sorted.
    inducing_points_ : ndarray of shape (m, d)
        In the units of the inputs.
    diagnosis_ : dict
        ``"bound"``: lower bound of the log evidence by the last pass over all rows, in nats of the standardised target;
        ``"damped_steps"``: steps that were shortened, as they would have left no posterior or lowered the bound of all
        rows; ``"passes"``: E-steps on all rows.

    References
    ----------
    Adam, V., Chang, P. E., Khan, M. E., Solin, A. (2021). Dual parameterization of sparse variational
    Gaussian processes. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import TSVGPClassifier
    >>> X = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    >>> model = TSVGPClassifier("rbf", 10).fit(X, np.where(np.sin(X[:, 0]) > 0, "above", "below"))
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    """

    def __init__(
        self,
        kernel: Any = None,
        num_inducing: Any = None,
        *,
        isotropic: Any = False,
        link: Any = "logit",
        class_weight: Any = None,
        inducing: Any = "kmeans",
        learn_inducing: Any = True,
        sites: Any = "tied",
        num_e_steps: Any = 1,
        num_m_steps: Any = 1,
        step_rate: Any = None,
        hyperparameters: Any = "learn",
        learning_rate: Any = 0.02,
        start_rows: Any = 1000,
        row_batch: Any = 500,
        jitter: Any = 1e-8,
        max_iter: Any = None,
        tol: Any = 1e-4,
        max_seconds: Any = None,
        checkpoint: Any = None,
        checkpoint_seconds: Any = 30.0,
        random_state: Any = 0,
        dtype: Any = "float64",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.isotropic = isotropic
        self.link = link
        self.class_weight = class_weight
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.sites = sites
        self.num_e_steps = num_e_steps
        self.num_m_steps = num_m_steps
        self.step_rate = step_rate
        self.hyperparameters = hyperparameters
        self.learning_rate = learning_rate
        self.start_rows = start_rows
        self.row_batch = row_batch
        self.jitter = jitter
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose
