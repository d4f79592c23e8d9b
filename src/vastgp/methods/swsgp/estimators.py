"""Sparse-within-sparse Gaussian processes: very many inducing inputs, of which each row sees the nearest."""

from __future__ import annotations

from typing import Any

from vastgp.estimators.first_hyperparameters import (
    check_given,
)
from vastgp.estimators.likelihood_arguments import check_likelihood
from vastgp.estimators.likelihood_regressor import LikelihoodRegressor
from vastgp.estimators.weighted_classes import WeightedClassifier
from vastgp.methods.swsgp.fit import SwsgpFits


class SWSGPRegressor(LikelihoodRegressor, SwsgpFits):
    """Regression with up to hundreds of thousands of inducing inputs, a few of which are active at a time.

    Each row sees the ``num_neighbors`` inducing inputs nearest to it, by the kernel's own lengthscales, in training and
    in prediction. A step reads and changes what its rows see and nothing else: with a diagonal covariance and fixed
    inducing inputs, its time does not depend on how many there are.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`: None is the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows. Sums and products are allowed.
    num_inducing : int, optional
        Number M of inducing inputs, at most the number of rows. None: a quarter of the rows, at least 100 and at most
        10,000 (512 with a full covariance). As many as rows: each row is one.
    num_neighbors : int, optional
        Inducing inputs H that a row sees. None: 32, or all. With all of them the method is SVGP.
    covariance : {"diagonal", "full"}, default "diagonal"
        Of the inducing variables. ``"full"`` has ``M^2`` numbers, and a step costs ``O(M H^2)`` a row.
    inducing : {"fixed", "learned"}, default "fixed"
        Whether the bound moves the inducing inputs.
    inducing_inputs : {"auto", "kmeans", "greedy", "random"} or array of shape (M, d), default "auto"
        Where they are: centres of k-means (k-means++), rows of largest remaining variance (pivoted Cholesky), random
        rows, or points in the units of the inputs. ``"auto"``: k-means up to 1000 of them, random rows beyond.
    prior : {"ordered", "neighborhoods"}, default "ordered"
        How the prior counts in the bound. ``"neighborhoods"`` is the paper's: the divergence of a row's neighbourhood,
        averaged over rows. With few neighbours among many inducing inputs it counts little, and the function follows
        the noise. ``"ordered"``: a prior in which each inducing variable depends on its nearest predecessors, which
        makes the objective a bound of the evidence.
    solver : {"auto", "sparse", "stochastic"}, default "auto"
        How the inducing variables are found. ``"stochastic"``: the paper's Algorithm 1, Adam on minibatches, whose
        steps cost the same whatever the numbers of rows and inducing inputs. ``"sparse"``: the bound's maximum by
        sparse linear algebra, for the ordered prior, a diagonal covariance and fixed inducing inputs; one pass over
        the rows. ``"auto"``: sparse where it can be and takes less than 6 GB.
    isotropic : bool, default False
        One lengthscale for all inputs, which are then scaled together, as in `QSGPRegressor`.
    likelihood : {"gaussian", "laplace", "student-t", "poisson", "poisson-log-normal"} or Likelihood, default "gaussian"
        As in `QSGPRegressor`.
    predict_neighbors : int, optional
        Inducing inputs that a row to predict sees. None: as in training.
    taper : bool, default False
        Whether a neighbour's weight fades as it gets to the border of the neighbourhood. The mean is then continuous;
        without, it jumps where one neighbour takes another's place.
    hyperparameters : {"subset", "learn", "fixed"}, default "subset"
        ``"subset"``: those of highest evidence on ``start_rows`` rows. ``"learn"`` goes on from there on all rows, by
        stochastic steps. ``"fixed"``: those given, in the units of inputs and target.
    noise_std : float, optional
        Standard deviation of Gaussian noise in units of the target; needed with ``"fixed"``, refused otherwise.
    noise_floor : float, default 1e-3
        Least noise variance relative to the variance of the target.
    learning_rate : float, default 0.01
        Of Adam, on everything that stochastic steps learn.
    start_rows : int, default 2000
        Rows of the first hyperparameters, see `QSGPRegressor`: from 2000 on three parts are fitted and compared, as
        the evidence of 1000 rows can have several optima.
    row_batch : int, default 64
        Rows of a step; where there are no more than that, all of them.
    neighbor_search : {"auto", "exact", "approximate"}, default "auto"
        ``"exact"``: a k-d tree, or all distances in many dimensions. ``"approximate"``: an index of faiss (extra
        ``neighbors``) whose recall is measured, see ``diagnosis_``. ``"auto"``: approximate beyond 20,000 inducing
        inputs in more than five dimensions, if faiss is installed.
    jitter : float, default 1e-8
        On the diagonal of a neighbourhood's matrix, relative to the prior variance; never less than what rounding asks
        for.
    max_iter : int, optional
        Stochastic steps at most, None: 20,000.
    tol : float, default 1e-4
        Converged when 1000 steps gain less of the bound than this for each row, or less than their noise.
        Sparse solver: relative residual, and least gain of a Newton step for each row.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked every 50 steps, or at every iteration of a linear solver.
    checkpoint : str or path, optional
        File from which interrupted stochastic steps go on bit for bit.
    checkpoint_seconds : float, default 30.0
        Time between two writes.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of steps; predictions are in float64. ``"float32"`` takes about half the time and needs a larger jitter, which
        it gets.
    verbose : bool, default False

    Attributes
    ----------
    inducing_points_ : ndarray of shape (M, d)
        In the units of the inputs.
    num_inducing_ : int
    solver_ : str
        The one that found the hyperparameters or, where these were not learned, the inducing variables.
    diagnosis_ : dict
        ``"objective"``, ``"objective_se"``: bound, or its estimate over the last steps; ``"residual"``: of the sparse
        solver; ``"searches"``: how often all neighbours were searched anew as lengthscales or inducing inputs had
        moved; ``"stale"``: share of neighbours that had changed at the last look; ``"recall"``: share of true
        neighbours that the index finds, 1 when exact.

    References
    ----------
    Tran, G.-L., Milios, D., Michiardi, P., Filippone, M. (2021). Sparse within sparse Gaussian processes using neighbor
    information. ICML.
    Wu, L., Pleiss, G., Cunningham, J. P. (2022). Variational nearest neighbor Gaussian process. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import SWSGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = SWSGPRegressor("rbf", 50, 8).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.1)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        num_inducing: Any = None,
        num_neighbors: Any = None,
        *,
        covariance: Any = "diagonal",
        inducing: Any = "fixed",
        inducing_inputs: Any = "auto",
        prior: Any = "ordered",
        solver: Any = "auto",
        isotropic: Any = False,
        likelihood: Any = "gaussian",
        predict_neighbors: Any = None,
        taper: Any = False,
        hyperparameters: Any = "subset",
        noise_std: Any = None,
        noise_floor: Any = 1e-3,
        learning_rate: Any = 0.01,
        start_rows: Any = 2000,
        row_batch: Any = 64,
        neighbor_search: Any = "auto",
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
        self.num_neighbors = num_neighbors
        self.covariance = covariance
        self.inducing = inducing
        self.inducing_inputs = inducing_inputs
        self.prior = prior
        self.solver = solver
        self.isotropic = isotropic
        self.likelihood = likelihood
        self.predict_neighbors = predict_neighbors
        self.taper = taper
        self.hyperparameters = hyperparameters
        self.noise_std = noise_std
        self.noise_floor = noise_floor
        self.learning_rate = learning_rate
        self.start_rows = start_rows
        self.row_batch = row_batch
        self.neighbor_search = neighbor_search
        self.jitter = jitter
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        self._check_neighbourhoods()
        check_given(self, check_likelihood(self))


class SWSGPClassifier(WeightedClassifier, SwsgpFits):
    """Classification with up to hundreds of thousands of inducing inputs, a few of which are active at a time.

    See `SWSGPRegressor`. Two classes have one latent function, more have one each.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`: None is the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on
        ``start_rows`` rows. Sums and products are allowed.
    num_inducing : int, optional
        Number M of inducing inputs, at most the number of rows. None: a quarter of the rows, at least 100 and at most
        10,000 (512 with a full covariance). As many as rows: each row is one.
    num_neighbors : int, optional
        Inducing inputs H that a row sees. None: 32, or all. With all of them the method is SVGP.
    covariance : {"diagonal", "full"}, default "diagonal"
        Of the inducing variables. ``"full"`` has ``M^2`` numbers, and a step costs ``O(M H^2)`` a row.
    inducing : {"fixed", "learned"}, default "fixed"
        Whether the bound moves the inducing inputs.
    inducing_inputs : {"auto", "kmeans", "greedy", "random"} or array of shape (M, d), default "auto"
        Where they are: centres of k-means (k-means++), rows of largest remaining variance (pivoted Cholesky), random
        rows, or points in the units of the inputs. ``"auto"``: k-means up to 1000 of them, random rows beyond.
    prior : {"ordered", "neighborhoods"}, default "ordered"
        How the prior counts in the bound. ``"neighborhoods"`` is the paper's: the divergence of a row's neighbourhood,
        averaged over rows. With few neighbours among many inducing inputs it counts little, and the function follows
        the noise. ``"ordered"``: a prior in which each inducing variable depends on its nearest predecessors, which
        makes the objective a bound of the evidence.
    solver : {"auto", "sparse", "stochastic"}, default "auto"
        How the inducing variables are found. ``"stochastic"``: the paper's Algorithm 1, Adam on minibatches, whose
        steps cost the same whatever the numbers of rows and inducing inputs. ``"sparse"``: the bound's maximum by
        sparse linear algebra, for the ordered prior, a diagonal covariance and fixed inducing inputs; one pass over
        the rows. ``"auto"``: sparse where it can be and takes less than 6 GB.
    isotropic : bool, default False
        One lengthscale for all inputs, which are then scaled together, as in `QSGPRegressor`.
    link : {"logit", "probit"}, default "logit"
        ``"probit"`` is for two classes.
    class_weight : dict, "balanced" or None, default None
        As in `QSGPClassifier`.
    predict_neighbors : int, optional
        Inducing inputs that a row to predict sees. None: as in training.
    taper : bool, default False
        Whether a neighbour's weight fades as it gets to the border of the neighbourhood. The mean is then continuous;
        without, it jumps where one neighbour takes another's place.
    hyperparameters : {"subset", "learn", "fixed"}, default "subset"
        ``"subset"``: those of highest evidence on ``start_rows`` rows. ``"learn"`` goes on from there on all rows, by
        stochastic steps. ``"fixed"``: those given, in the units of inputs and target.
    learning_rate : float, default 0.01
        Of Adam, on everything that stochastic steps learn.
    start_rows : int, default 2000
        Rows of the first hyperparameters, see `QSGPRegressor`: from 2000 on three parts are fitted and compared, as
        the evidence of 1000 rows can have several optima.
    row_batch : int, default 64
        Rows of a step; where there are no more than that, all of them.
    neighbor_search : {"auto", "exact", "approximate"}, default "auto"
        ``"exact"``: a k-d tree, or all distances in many dimensions. ``"approximate"``: an index of faiss (extra
        ``neighbors``) whose recall is measured, see ``diagnosis_``. ``"auto"``: approximate beyond 20,000 inducing
        inputs in more than five dimensions, if faiss is installed.
    jitter : float, default 1e-8
        On the diagonal of a neighbourhood's matrix, relative to the prior variance; never less than what rounding asks
        for.
    max_iter : int, optional
        Stochastic steps at most, None: 20,000.
    tol : float, default 1e-4
        Converged when 1000 steps gain less of the bound than this for each row, or less than their noise.
        Sparse solver: relative residual, and least gain of a Newton step for each row.
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked every 50 steps, or at every iteration of a linear solver.
    checkpoint : str or path, optional
        File from which interrupted stochastic steps go on bit for bit.
    checkpoint_seconds : float, default 30.0
        Time between two writes.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of steps; predictions are in float64. ``"float32"`` takes about half the time and needs a larger jitter, which
        it gets.
    verbose : bool, default False

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels, sorted.
    inducing_points_ : ndarray of shape (M, d)
        In the units of the inputs.
    num_inducing_ : int
    solver_ : str
        The one that found the hyperparameters or, where these were not learned, the inducing variables.
    diagnosis_ : dict
        ``"objective"``, ``"objective_se"``: bound, or its estimate over the last steps; ``"residual"``: of the sparse
        solver; ``"searches"``: how often all neighbours were searched anew as lengthscales or inducing inputs had
        moved; ``"stale"``: share of neighbours that had changed at the last look; ``"recall"``: share of true
        neighbours that the index finds, 1 when exact.

    References
    ----------
    Tran, G.-L., Milios, D., Michiardi, P., Filippone, M. (2021). Sparse within sparse Gaussian processes using neighbor
    information. ICML.
    Wu, L., Pleiss, G., Cunningham, J. P. (2022). Variational nearest neighbor Gaussian process. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import SWSGPClassifier
    >>> X = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    >>> y = np.where(np.sin(X[:, 0]) > 0, "above", "below")
    >>> model = SWSGPClassifier("rbf", 20, 8).fit(X, y)
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    """

    def __init__(
        self,
        kernel: Any = None,
        num_inducing: Any = None,
        num_neighbors: Any = None,
        *,
        covariance: Any = "diagonal",
        inducing: Any = "fixed",
        inducing_inputs: Any = "auto",
        prior: Any = "ordered",
        solver: Any = "auto",
        isotropic: Any = False,
        link: Any = "logit",
        class_weight: Any = None,
        predict_neighbors: Any = None,
        taper: Any = False,
        hyperparameters: Any = "subset",
        learning_rate: Any = 0.01,
        start_rows: Any = 2000,
        row_batch: Any = 64,
        neighbor_search: Any = "auto",
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
        self.num_neighbors = num_neighbors
        self.covariance = covariance
        self.inducing = inducing
        self.inducing_inputs = inducing_inputs
        self.prior = prior
        self.solver = solver
        self.isotropic = isotropic
        self.link = link
        self.class_weight = class_weight
        self.predict_neighbors = predict_neighbors
        self.taper = taper
        self.hyperparameters = hyperparameters
        self.learning_rate = learning_rate
        self.start_rows = start_rows
        self.row_batch = row_batch
        self.neighbor_search = neighbor_search
        self.jitter = jitter
        self.max_iter = max_iter
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        self._check_neighbourhoods()
        self._check_classes()
