"""What few rows leave open: a line or a process, and which hyperparameters. Their average is uncertain, not wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from vastgp.data import Rows, nearly_repeated
from vastgp.data.minibatch import standardised_rows
from vastgp.fitting.hyperparameter_prior import Scale
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.threads import blas_threads
from vastgp.solvers.averaged_lines import AveragedLines
from vastgp.solvers.averaged_posterior import LEAST_WEIGHT, AveragedPosterior, around_optimum
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.linear_model import line_of_few, of_average

# Up to here there is an exact posterior of all rows that costs next to nothing, and hyperparameters are averaged over.
FEW_ROWS = 500
# A probability that leaves nothing open.
SURE = 0.99
# Of fewer distinct rows hyperparameters are open even where there surely is a process: on 243 random tables of 2 to 4,
# 5 to 25 and up to 200 rows 95 % intervals at the one optimum held 60, 86 and 93 % of new rows, those averaged over
# hyperparameters 67, 89 and 93 %.
_FEWEST = 20
# And of fewer for each hyperparameter, as of many inputs that have a lengthscale each: of 56 random tables the
# average's loss was less by more than 0.01 nats a row on 31 and more on 9, by 0.08 in the mean of all, and 95 %
# intervals held 92.3 % of new rows, those at the optimum 91.2 %.
_FOR_EACH = 5


class FewRows(NamedTuple):
    """An average over linear functions and a process, all rows given.

    Attributes
    ----------
    of_process : float
        Probability that the rows are of the process.
    posterior : AveragedPosterior
    kernel : Kernel
        Prior covariance of the average.
    likelihood : Gaussian
        With the mean noise variance, so that variances of observations are those of the average.
    num_distinct : int
        Rows that do not nearly repeat another.
    num_open : int
        Hyperparameters of the process.
    """

    of_process: float
    posterior: AveragedPosterior
    kernel: Kernel
    likelihood: Gaussian
    num_distinct: int
    num_open: int

    @property
    def is_linear(self) -> bool:
        """Whether the rows are of a linear function, with next to no doubt."""
        return self.of_process < 1.0 - SURE

    @property
    def is_open(self) -> bool:
        """Whether neither line nor process, at its first hyperparameters, can be told to be the answer."""
        fewest = max(_FEWEST, _FOR_EACH * self.num_open)
        return not self.is_linear and (self.of_process < SURE or self.num_distinct < fewest)


def is_of_few(rows: Rows, run: Run) -> bool:
    """Return whether there is an exact posterior of all rows, with normal noise, and it costs next to nothing."""
    return run.first is not None and isinstance(run.first[1], Gaussian) and rows.n <= FEW_ROWS


@blas_threads(FEW_ROWS)
def average_of_few(model: Any, rows: Rows, run: Run) -> FewRows | None:
    """Return the average of linear functions and the process that a method began with, None where there is none.

    Both are equally likely before there are data. Their evidences are integrals over hyperparameters, of densities that
    integrate to one: nothing else is taken from the one that has more of them. What the hyperparameters of the process
    are is averaged over as well, see `around_optimum`.
    """
    if not is_of_few(rows, run):
        return None
    assert run.first is not None
    kernel, likelihood = run.first
    assert isinstance(likelihood, Gaussian)
    X, y = standardised_rows(rows, model.standardizer_, np.arange(rows.n))
    groups = nearly_repeated(rows.take(np.arange(rows.n))[0])
    lines = line_of_few(X, y, groups)
    try:
        found = around_optimum(
            kernel, float(likelihood.noise_variance), X, y, Scale.of_groups(groups)
        )
    except FactorizationError:
        return None
    # p(process | y) of two that are equally likely before
    of_process = float(
        1.0 / (1.0 + np.exp(np.clip(lines.log_evidence - found.log_evidence, -99.0, 99.0)))
    )
    line = average_of_lines(lines)
    parts, noises = list(line.parts), list(line.noise_variances)
    weights = list((1.0 - of_process) * line.weights)
    for each, noise, weight in zip(
        found.kernels, found.noise_variances, found.weights, strict=True
    ):
        if of_process * weight >= LEAST_WEIGHT:
            parts.append(ExactPosterior.condition(each, float(noise), X, y)[0])
            noises.append(float(noise))
            weights.append(of_process * float(weight))
    total = float(np.sum(weights))
    # the prior covariance of a mixture; of the process at its optimum
    of_line = (1.0 - of_process) / total
    prior = of_average(lines, lines.basis).kernel.in_units(1.0, max(of_line, 1e-12) ** 0.5)
    if len(parts) > len(line.parts):
        prior += kernel.in_units(1.0, (1.0 - of_line) ** 0.5)
    average = AveragedPosterior(tuple(parts), np.array(weights) / total, np.array(noises))
    noise_variance = float(average.weights @ average.noise_variances)
    num_open = sum(np.size(each) for each in jax.tree.leaves((kernel, likelihood)))
    return FewRows(
        of_process, average, prior, Gaussian(noise_variance), _num_places(X, groups), num_open
    )


def _num_places(X: np.ndarray, groups: np.ndarray) -> int:
    """Return how many places rows are of, those that nearly repeat each other counted once."""
    return min(int(np.max(groups)) + 1, len(np.unique(X, axis=0)))


def average_of_lines(lines: AveragedLines) -> AveragedPosterior:
    """Return linear functions averaged over the variances of weights and noise, as a mixture."""
    return AveragedPosterior(
        tuple(of_average(part, lines.basis) for part in lines.parts),
        np.array([part.weight for part in lines.parts]),
        np.array([part.noise_variance for part in lines.parts]),
    )
