"""SVGP: sparse variational Gaussian processes in mean and covariance."""

from __future__ import annotations

from vastgp.estimators.sharing import SharedRows
from vastgp.methods.svgp.estimator import SparseClassifier, SparseRegressor


class SVGPRegressor(SparseRegressor):
    """SVGP: regression with inducing inputs whose mean and covariance are learned, the usual baseline.

    Natural gradients are those of `TSVGPRegressor`, step by step; the difference is what stays as it is while
    hyperparameters move: mean and covariance, not the sites.

    Parameters
    ----------
    solver : {"natural", "adam"} or Natural or Adam, default "natural"
        What moves mean and covariance of the inducing variables: natural gradients, or Adam together with everything
        else; see `vastgp.options`.
    kernel, num_inducing, likelihood, inducing_inputs, hyperparameters, tol, max_seconds, checkpoint, random_state, \
dtype, verbose
        As in `TSVGPRegressor`.

    Attributes
    ----------
    inducing_points_, num_inducing_, diagnosis_
        As in `TSVGPRegressor`.

    References
    ----------
    Hensman, J., Fusi, N., Lawrence, N. D. (2013). Gaussian processes for big data. UAI.
    Salimbeni, H., Eleftheriadis, S., Hensman, J. (2018). Natural gradients in practice. AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import SVGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    >>> model = SVGPRegressor("rbf", 20).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05)
    True
    """

    _dual = False
    _shared_rows = SharedRows()


class SVGPClassifier(SparseClassifier):
    """SVGP: classification with inducing inputs whose mean and covariance are learned, the usual baseline.

    See `SVGPRegressor`, and `TSVGPClassifier` for the classes.

    Parameters
    ----------
    kernel, num_inducing, likelihood, inducing_inputs, hyperparameters, tol, max_seconds, checkpoint, random_state, \
dtype, verbose
        As in `TSVGPClassifier`.
    solver : {"natural", "adam"} or Natural or Adam, default "natural"
        As in `SVGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels, sorted.
    inducing_points_, num_inducing_, diagnosis_
        As in `TSVGPRegressor`.

    References
    ----------
    Hensman, J., Fusi, N., Lawrence, N. D. (2013). Gaussian processes for big data. UAI.
    Salimbeni, H., Eleftheriadis, S., Hensman, J. (2018). Natural gradients in practice. AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from vastgp import SVGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.where(np.sin(X[:, 0]) + 0.5 * rng.normal(size=200) > 0, "above", "below")
    >>> model = SVGPClassifier("rbf", 10).fit(X, y)
    >>> model.predict([[1.5], [-1.5]]).tolist()
    ['above', 'below']
    """

    _dual = False
    _shared_rows = SharedRows()
