"""What only the stochastic solver reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from vastgp._arguments import AtLeast, Flag, OneOf, Options, Positive, Share
from vastgp.likelihoods import Gaussian, Likelihood


@dataclass(frozen=True)
class Stochastic(Options):
    """The quadruply stochastic solver of QSGP: steps whose cost does not grow with rows or basis functions.

    Parameters
    ----------
    dense_columns : int, default 0
        Dense columns of the chevron covariance; 0 is mean-field. Each takes two vectors of the basis's length.
    row_batch, basis_batch : int, default 500 and 10,000
        Rows in a step, and basis functions in each of its two sets, as in the paper (I.1).
    control_rank : int, default 1000
        Support rows of the control variate and of the preconditioner; 0 for neither. The paper has 500; 1000 reached
        the same error in less time.
    validation_fraction : float, default 0.0
        Share of the rows (at most 1000) kept out of the training to stop it when their error no longer falls. 0: it
        stops when the residual at the support rows no longer does.
    bound : {"plug-in", "strict"}, default "plug-in"
        How a likelihood that is not Gaussian is estimated from sampled basis functions. ``"strict"`` is a lower bound
        of the evidence whatever the sample, and far from tight unless ``basis_batch`` is near the number of them.
    max_steps : int, default 100,000
        Most steps, as in the paper.
    learning_rate : float, optional
        None: 0.5 preconditioned (each of the two sets takes half of the step that the damping is for), 0.1 for AdaGrad.
    decay : float, default 0.0
        The learning rate at step t is ``learning_rate / (1 + decay t)``.
    averaging : float, default 2.0
        Exponent of the average of iterates: about the last ``1 / (1 + averaging)`` of the visits count.
    freeze_steps, learn_every : int, default 1000 and 5
        Steps before hyperparameters that are learned move, and between two of their steps.
    column_batch : int, default 10
        Dense columns in a step (the set ``r`` of Theorem 2).
    control : {"interpolation", "rows", "none"}, default "interpolation"
        ``"rows"`` is the paper's eq. (3), ``"interpolation"`` the kernel interpolation of the observed error.
    target_control : bool, default False
        The control variate of the term in y (F.2): one pass over all rows and basis functions beforehand and a lower
        variance of the recorded bound; it has no effect on gradients.
    optimizer : {"preconditioned", "adagrad"}, default "preconditioned"
        AdaGrad is the paper's.
    """

    dense_columns: Annotated[int, AtLeast(0)] = 0
    row_batch: Annotated[int, Positive(integer=True)] = 500
    basis_batch: Annotated[int, Positive(integer=True)] = 10_000
    control_rank: Annotated[int, AtLeast(0)] = 1000
    validation_fraction: Annotated[float, Share()] = 0.0
    bound: Annotated[str, OneOf("plug-in", "strict")] = "plug-in"
    max_steps: Annotated[int, Positive(integer=True)] = 100_000
    learning_rate: Annotated[float | None, Positive(none="0.5, or 0.1 for AdaGrad")] = None
    decay: Annotated[float, Share()] = 0.0
    averaging: Annotated[float, Positive()] = 2.0
    freeze_steps: Annotated[int, AtLeast(0)] = 1000
    learn_every: Annotated[int, Positive(integer=True)] = 5
    column_batch: Annotated[int, Positive(integer=True)] = 10
    control: Annotated[str, OneOf("interpolation", "rows", "none")] = "interpolation"
    target_control: Annotated[bool, Flag()] = False
    optimizer: Annotated[str, OneOf("preconditioned", "adagrad")] = "preconditioned"


def check_stochastic(options: Stochastic, likelihood: Likelihood, num_basis: int) -> None:
    """Raise ValueError for what the solver cannot do with a likelihood or a number of basis functions."""
    what = f"where the likelihood is the {likelihood.name} one"
    if not np.isfinite(likelihood.most_curvature()):
        raise ValueError(
            f"the stochastic solver needs a likelihood of bounded curvature, which the {likelihood.name} one is not: "
            "set solver='block'."
        )
    gaussian, q = isinstance(likelihood, Gaussian), options.dense_columns
    strict = options.bound == "strict"
    if strict and (gaussian or not likelihood.log_concave):
        reason = "has no use" if gaussian else "needs a log-concave likelihood"
        raise ValueError(f"bound='strict' {reason} {what}: set bound='plug-in'.")
    if q and (likelihood.num_latent > 1 or strict):
        reason = "bound='plug-in'" if strict else "two classes"
        raise ValueError(
            f"dense_columns={q} needs {reason} {what}. Set dense_columns=0, or use solver='block', whose samples have "
            "all correlations."
        )
    if (q + 1) // 2 >= num_basis // 2:
        raise ValueError(
            f"dense_columns={q} leaves no diagonal column of num_basis={num_basis}. Give fewer dense columns, or use "
            "solver='block', whose posterior is exact."
        )
    if options.validation_fraction and not likelihood.scales_target:
        raise ValueError(
            f"validation_fraction={options.validation_fraction} compares targets with the function, which differ "
            f"{what}: set validation_fraction=0."
        )
