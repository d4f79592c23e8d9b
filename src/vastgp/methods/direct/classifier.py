"""DIRECT: classification with discrete weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np

from vastgp._arguments import Positive
from vastgp.data import Rows
from vastgp.estimators.arguments import (
    CheckpointLike,
    Dtype,
    KernelLike,
    MaxSeconds,
    Seed,
    Tolerance,
    Verbose,
    check_fixed_model,
)
from vastgp.estimators.bases import Fourier
from vastgp.estimators.classifier import BaseGPClassifier
from vastgp.estimators.few_rows import FEW_ROWS
from vastgp.estimators.first_hyperparameters import find_first
from vastgp.estimators.searches import Fixed, Subset
from vastgp.estimators.sharing import SharedRows
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Bernoulli, Likelihood, OneVsRest, Softmax
from vastgp.methods.direct.base import BASES, SEARCHES, DirectBase
from vastgp.methods.direct.fit import FittedWeights
from vastgp.methods.direct.logistic_training import (
    LabelledFeatures,
    bounds_under_prior,
    fit_exponential,
    fit_quadratic,
)
from vastgp.methods.direct.options import (
    FAMILIES,
    MeanField,
    Mixture,
    SupportArgument,
    as_support,
    resolved_family,
)
from vastgp.methods.direct.posterior import DiscretePosterior

# Numbers of the exponential bound: rows times weights times values.
_MOST_EXPONENTIAL = 1_000_000_000


class DirectClassifier(DirectBase, BaseGPClassifier):
    """Classification with random Fourier features whose weights take a few values each.

    Two classes: ``P(second class | x) = sigmoid(f(x))``. More: one function for each class against the rest, their
    probabilities brought to the sum of one. The posterior of the weights is as in `DirectRegressor`; the average of
    the logistic log-likelihood has no closed form and is bounded from below:

    - ``logistic_bound="quadratic"`` (Jaakkola and Jordan): a parabola for each row that touches where the function is
      expected. The weights see weighted sums like those of regression; some passes over the rows renew them.
    - ``logistic_bound="exponential"`` (Theorem 7.2 of the thesis): ``-exp(-y f)``, in log space. It falls exponentially
      on the wrong side, so that few wrong labels rule the fit, and every evaluation needs all rows, weights and values.

    Parameters
    ----------
    kernel : Kernel, str or None, default None
        As in `QSGPClassifier`.
    num_basis : int, optional
        Basis functions; of random Fourier features an even number. None: 1000, or four per row where that is less.
    basis, support : default "fourier" and 15
        As in `DirectRegressor`; spacings of values are learned with ``Support(learn=True)`` only.
    family : {"mean-field", "mixture"} or MeanField or Mixture, default "mean-field"
        As in `DirectRegressor`, with the bound of the likelihood: ``MeanField(logistic_bound="exponential")``. Mixtures
        need the quadratic one.
    hyperparameters : {"subset", "fixed"} or Subset or Fixed, default "subset"
        ``"subset"``: kernel of highest evidence bound on 1000 rows (``Subset(rows=...)``). ``"fixed"``: the one given.
    tol : float, default 1e-4
        Converged when more passes, by how their gains shrink, would raise the bounds of all functions together by less
        than a tenth of so many nats per row, and then a step of Newton's method by less than these. With the
        exponential bound: when twenty iterations of L-BFGS raise it by less than twice as many.
    max_seconds, checkpoint, random_state, dtype, verbose
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
    _shared_rows = SharedRows()

    # with one pass over the rows for the bound under the prior, and one more
    _compiling_seconds: ClassVar[float] = 4.0
    # Its weights may follow the rows of the fit far too closely: 1200 of airfoil in two, NLPD 0.62 of new rows, where a
    # line has 0.53 and the exact posterior, which rows kept out prefer, 0.2.
    _least_to_spare: ClassVar[int] = FEW_ROWS + 1

    def __init__(
        self,
        kernel: KernelLike = None,
        num_basis: Annotated[
            int | None, Positive(integer=True, none="chosen by the number of rows")
        ] = None,
        *,
        basis: Annotated[str | Fourier, BASES] = "fourier",
        support: SupportArgument = 15,
        family: Annotated[str | MeanField | Mixture, FAMILIES] = "mean-field",
        hyperparameters: Annotated[str | Subset | Fixed, SEARCHES] = "subset",
        tol: Tolerance = 1e-4,
        max_seconds: MaxSeconds = None,
        checkpoint: CheckpointLike = None,
        random_state: Seed = 0,
        dtype: Dtype = "float32",
        verbose: Verbose = False,
    ) -> None:
        self.kernel = kernel
        self.num_basis = num_basis
        self.basis = basis
        self.support = support
        self.family = family
        self.hyperparameters = hyperparameters
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        check_fixed_model(self._search(), self.kernel, needs_noise=False)
        family, parts = resolved_family(self.family), as_support(self.support).masses().log_weights
        if family.learn_noise:
            raise ValueError(
                "family has learn_noise=True, and classes have no noise: leave it out."
            )
        mixture = isinstance(family, Mixture) or len(parts) > 1
        if family.logistic_bound == "exponential" and mixture:
            raise ValueError(
                "logistic_bound='exponential' is for family=MeanField(...) and a prior of one part. Set "
                "logistic_bound='quadratic'."
            )

    # ------------------------------------------------------------ fit

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        num_classes, recipe = len(self.classes_), self._recipe(rows.n)
        exponential = recipe.family.logistic_bound == "exponential"
        if exponential:
            self._check_cost(rows.n, len(recipe.support.levels()))
        two = num_classes == 2
        latent: Likelihood = Bernoulli() if two else Softmax(num_classes)
        kernel, _ = find_first(self._beginning(rows, run), lambda _: latent)
        basis, kernel = self._make_basis(kernel, rows, run.seed)
        features = LabelledFeatures(rows, self.standardizer_, basis, self.dtype)
        found: list[FittedWeights] = []
        functions = [None] if two else range(num_classes)
        # what is missing of all functions together is to be `tol`
        recipe = replace(recipe, tol=recipe.tol / len(functions))
        firsts = bounds_under_prior(features, functions)
        for which, first in zip(functions, firsts, strict=True):
            if exponential:
                found.append(fit_exponential(features, first[0], which, recipe, run))
            else:
                share = 1.0 / (len(functions) - len(found))
                found.append(fit_quadratic(features, first, which, recipe, run, share))
        fits = [each.fit for each in found]
        stacked = (
            np.stack([getattr(each, name) for each in found])
            for name in ("values", "probabilities", "mixture")
        )
        values, probabilities, mixture = (array[0] if two else array for array in stacked)
        proof = self._proof_rows(rows, run.seed)
        slowest = max(fits, key=lambda fit: fit.num_iter)
        late = next((fit for fit in fits if not fit.converged), slowest)
        yield Answer(
            kernel,
            Bernoulli() if two else OneVsRest(num_classes),
            lambda: DiscretePosterior(basis, values, probabilities, mixture, proof),
            slowest.num_iter,
            late.reason,
            late.converged,
            slowest.history,
            self._advice,
            {
                "num_basis_": basis.num_basis,
                "elbo_": float(sum(fit.objective for fit in fits)),
            },
        )

    def _check_cost(self, n: int, num_values: int) -> None:
        size = self._choose_basis(n)
        numbers = n * size * num_values
        if numbers > _MOST_EXPONENTIAL:
            raise ValueError(
                f"logistic_bound='exponential' evaluates {n} rows x {size} weights x {num_values} values = "
                f"{numbers:.1e} exponentials in each iteration, more than {_MOST_EXPONENTIAL:.0e}. Set "
                "logistic_bound='quadratic', whose iterations do not know the rows, or give fewer of any of these."
            )
