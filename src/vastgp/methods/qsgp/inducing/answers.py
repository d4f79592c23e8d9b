"""`QSGPRegressor` with an inducing basis: which inputs, and the answer of a fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import fixed_indices
from vastgp.estimators.inducing_inputs import check_inputs
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.inducing.diagonal_variances import DiagonalVariances
from vastgp.methods.qsgp.inducing.fit import fit_inducing
from vastgp.methods.qsgp.inducing.nearest_variances import NearestVariances
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.posterior import InducingPosterior, Variances
from vastgp.methods.qsgp.inducing.setup import INPUTS

# All training rows become inducing inputs while they take no more memory than this.
_MOST_INPUT_BYTES = 1_000_000_000


def fit_inducing_answers(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    likelihood: Gaussian,
    options: Inducing,
    run: Run,
    *,
    num_basis: int | None,
    tol: float,
    dtype: str,
) -> Iterator[Answer]:
    """Give the answer of `fit_inducing`, with the kernel and the noise as they are.

    Parameters
    ----------
    num_basis : int, optional
        Inducing inputs, chosen among the rows. None: all rows, while they take less than 1 GB.
    """
    noise = float(likelihood.noise_variance)
    inputs, among_rows = _inputs_of(options, rows, standardizer, num_basis, run.seed, dtype)
    fit = fit_inducing(
        rows, standardizer, kernel, inputs, noise, options, run, tol=tol, dtype=dtype
    )
    given = fit.basis, rows, standardizer, noise
    variances: Variances
    if options.variance == "nearest":
        variances = NearestVariances.of_rows(
            *given, options.neighbors, run.seed, are_rows=inputs is None
        )
    else:
        augment = options.variance == "augmented"
        with precision(dtype):
            variances = DiagonalVariances.of_rows(
                *given, run.seed, augment=augment, among_rows=among_rows
            )
    history = fit.loop.history
    diagnosis = {name: history.last(name) for name in ("objective", "objective_se", "residual")}
    yield Answer(
        kernel,
        likelihood,
        lambda: InducingPosterior(fit.basis, fit.mean, variances),
        fit.loop.num_iter,
        fit.loop.reason,
        fit.loop.converged,
        history,
        advice="the mean may still move, see history_, and standard deviations do not include what is left undone: "
        "give more time (max_seconds, Inducing(max_steps=...)), or a larger noise_floor",
        attributes={
            "num_basis_": fit.basis.num_basis,
            "diagnosis_": diagnosis | {"averaged": fit.averaged, "dense_columns": 0},
        },
    )  # fmt: skip


def _inputs_of(
    options: Inducing,
    rows: Rows,
    standardizer: Standardizer,
    num_basis: int | None,
    seed: int,
    dtype: str,
) -> tuple[np.ndarray | None, bool]:
    """Return standardised inducing inputs, None for all training rows, and whether they are among these."""
    if options.inputs is not None:
        return standardizer.transform_X(check_inputs(options.inputs, rows.d)), False
    if num_basis is None:
        num_basis = min(rows.n, _MOST_INPUT_BYTES // (rows.d * np.dtype(dtype).itemsize))
    if num_basis >= rows.n:
        return None, True
    chosen = np.sort(fixed_indices(seed, INPUTS, rows.n, num_basis))
    return standardizer.transform_X(rows.take(chosen)[0]), True
