"""t-SVGP: sparse variational Gaussian processes in dual parameters."""

from __future__ import annotations

from vastgp.estimators.sharing import SharedRows
from vastgp.methods.svgp.estimator import SparseClassifier, SparseRegressor


class TSVGPRegressor(SparseRegressor):
    """t-SVGP: regression with inducing inputs whose approximation is held as Gaussian sites.

    The posterior of ``m`` inducing variables is the prior times one Gaussian site for each row, of which the sums are
    kept. Natural-gradient steps then are averages of sites that the likelihood's derivatives give in closed form, and
    hyperparameters are learned on a tighter bound, in which the posterior follows the prior. Steps use minibatches, so
    that rows may be any number; the fit ends with E-steps on all of them.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPRegressor`: None is the one of RBF, Matern-5/2 and Matern-3/2 with the highest evidence on some rows,
        or a sum of two where that is likelier by far. Sums and products are allowed.
    num_inducing : int, optional
        Number m of inducing inputs, at most the number of rows. None: 512; of up to 2000 rows, where nothing is learned
        by steps, one for each row with Gaussian noise and 1024 elsewhere; 256 or 128 where ``max_seconds`` is too short
        for more.
    likelihood : str or Likelihood, default "gaussian"
        Those of `QSGPRegressor`, and ``"heteroskedastic"``: Gaussian noise whose variance is a function of the inputs,
        learned beside the mean with the same kernel and inducing inputs.
    inducing_inputs : {"kmeans", "greedy", "random"} or array of shape (m, d), default "kmeans"
        Where they start: centres of k-means (k-means++), rows of largest remaining variance (pivoted Cholesky), random
        rows, or points in the units of the inputs.
    hyperparameters : {"learn", "subset", "fixed"} or Learn, Subset or Fixed, default "learn"
        ``"subset"``: those of highest evidence on 1000 rows. ``"learn"`` goes on from there on all rows, by steps of
        Adam (``rate``, 0.02 at first) on the bound, with noise of at least ``noise_floor`` (1e-3) of the target's
        variance; not of up to 2000 rows where ``num_inducing`` and ``solver`` are left out, as those of the subset are
        of all rows then, or of half of them. ``"fixed"``: those given, in the units of inputs and target. Objects of
        `vastgp.options`.
    solver : {"natural"} or Natural, default "natural"
        Steps, their lengths and rows, whether inducing inputs move; see `vastgp.options.Natural`.
    tol : float, default 1e-4
        Where every step has all rows: converged when the slope of the bound, by logarithms of the hyperparameters and
        by inducing inputs, is shorter than this for each row and the last iterations gained less than a hundredth of
        it. With minibatches, or ``solver="adam"``: when 100 iterations gain less of the bound than this for each row,
        or when the gain is below its standard error and that below 100 times this; not before 400 iterations and ten
        epochs (or 200,000 rows).
    max_seconds : float, optional
        Wall-clock budget of ``fit``, checked every ten iterations; a part of it is kept for passes over all rows.
    checkpoint : path or SaveTo, optional
        File to save the fit to while it works, and to resume from when it exists; see `vastgp.options.SaveTo`.
    random_state : int, RandomState or None, default 0
    dtype : {"float64", "float32"}, default "float64"
        Of steps on minibatches; passes over all rows and predictions are in float64.
    verbose : bool, default False

    Attributes
    ----------
    inducing_points_ : ndarray of shape (m, d)
        In the units of the inputs.
    num_inducing_ : int
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

    _dual = True
    _shared_rows = SharedRows()


class TSVGPClassifier(SparseClassifier):
    """t-SVGP: classification with inducing inputs whose approximation is held as Gaussian sites.

    See `TSVGPRegressor`. Two classes have one function, more have one for each (softmax), with one kernel and one set
    of inducing inputs for all.

    Parameters
    ----------
    likelihood : {"logit", "probit"} or Classes, default "logit"
        The link, ``"probit"`` for two classes; ``Classes(class_weight=...)`` of `vastgp.options` weighs the rows of
        each class, ``fit(..., sample_weight=...)`` each row.
    kernel, num_inducing, inducing_inputs, hyperparameters, solver, tol, max_seconds, checkpoint, random_state, dtype, \
verbose
        As in `TSVGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels, sorted.
    inducing_points_, num_inducing_, diagnosis_
        As in `TSVGPRegressor`.

    References
    ----------
    Adam, V., Chang, P. E., Khan, M. E., Solin, A. (2021). Dual parameterization of sparse variational
    Gaussian processes. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import TSVGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.where(np.sin(X[:, 0]) + 0.5 * rng.normal(size=200) > 0, "above", "below")
    >>> model = TSVGPClassifier("rbf", 10).fit(X, y)
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    """

    _dual = True
    _shared_rows = SharedRows()
