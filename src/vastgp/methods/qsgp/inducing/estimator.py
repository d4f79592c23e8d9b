"""`QSGPRegressor` with kernel functions at inducing inputs as its basis."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from vastgp._precision import as_dtype
from vastgp.bases import InducingBasis
from vastgp.data import Rows
from vastgp.data.minibatch import fixed_indices
from vastgp.estimators.arguments import check_choice, check_flag
from vastgp.estimators.base import Fit
from vastgp.estimators.checkpoints import checkpoint_of
from vastgp.estimators.inducing_inputs import check_inputs
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.inducing.fit import fit_inducing
from vastgp.methods.qsgp.inducing.posterior import InducingPosterior
from vastgp.methods.qsgp.inducing.setup import AUGMENTING, INPUTS
from vastgp.methods.qsgp.inducing.state import InducingOptions

BASES = ("fourier", "inducing", "grief")
# All training rows become inducing inputs while they take no more memory than this.
_MOST_INPUT_BYTES = 1_000_000_000
_MOST_STEPS = 2000
# Rows kept for the augmentation where the inducing inputs are not among the training rows.
_AUGMENTING_ROWS = 4096


def is_inducing(model: Any) -> bool:
    """Whether an estimator's basis is the inducing one; classifiers have none to choose."""
    return getattr(model, "basis", "fourier") == "inducing"


def check_basis(model: Any, likelihood: Likelihood) -> None:
    """Raise ValueError for what the chosen basis does not go with."""
    check_choice("basis", model.basis, BASES)
    check_flag("augment", model.augment)
    if model.basis != "inducing" and model.inducing_inputs is not None:
        raise ValueError(
            f"inducing_inputs were given, but basis={model.basis!r} has none. Set basis='inducing', or leave them out."
        )
    if model.basis == "fourier":
        return
    inducing = model.basis == "inducing"
    refused = {
        "likelihood": (
            inducing and not isinstance(likelihood, Gaussian),
            "likelihood='gaussian'",
        ),
        "solver": (model.solver == ("block" if inducing else "stochastic"), "solver='auto'"),
        "hyperparameters": (model.hyperparameters == "learn", "hyperparameters='subset'"),
        "dense_columns": (model.dense_columns != 0, "dense_columns=0"),
        "validation_fraction": (model.validation_fraction != 0, "validation_fraction=0.0"),
        "frequencies": (model.frequencies != "plain", "frequencies='plain'"),
    }
    for name, (wrong, instead) in refused.items():
        if wrong:
            raise ValueError(
                f"{name}={getattr(model, name)!r} is not available with basis={model.basis!r}. Set {instead}, or use "
                "basis='fourier'."
            )
    if model.inducing_inputs is not None and model.num_basis is not None:
        raise ValueError(
            f"num_basis={model.num_basis!r} and inducing_inputs were both given: the basis has one function for each "
            "inducing input. Leave one of them out."
        )


def inducing_inputs(model: Any, rows: Rows, seed: int) -> tuple[np.ndarray | None, bool]:
    """Return standardised inducing inputs, None for all training rows, and whether they are among these."""
    given = model.inducing_inputs
    if given is not None:
        return model.standardizer_.transform_X(check_inputs(given, rows.d)), False
    size = model.num_basis
    if size is None:
        most = _MOST_INPUT_BYTES // (rows.d * np.dtype(model.dtype).itemsize)
        size = min(rows.n, most)
    if size >= rows.n:
        return None, True
    chosen = np.sort(fixed_indices(seed, INPUTS, rows.n, int(size)))
    return model.standardizer_.transform_X(rows.take(chosen)[0]), True


def fit_inducing_basis(
    model: Any, rows: Rows, kernel: Kernel, likelihood: Gaussian, seed: int
) -> Fit:
    """Fit the weights of an inducing basis, with the kernel and the noise as they are."""
    noise = float(likelihood.noise_variance)
    inputs, among_rows = inducing_inputs(model, rows, seed)
    model.num_basis_ = rows.n if inputs is None else len(inputs)
    fit = fit_inducing(
        rows,
        model.standardizer_,
        kernel,
        inputs,
        noise,
        InducingOptions(model.row_batch, model.basis_batch, model.control_rank),
        tol=model.tol,
        max_iter=model.max_iter or _MOST_STEPS,
        max_seconds=model._seconds_left(model.max_seconds),
        checkpoint=checkpoint_of(model, rows, seed),
        seed=seed,
        dtype=model.dtype,
        verbose=bool(model.verbose),
    )
    few = None
    if not among_rows:
        chosen = np.sort(fixed_indices(seed, AUGMENTING, rows.n, _AUGMENTING_ROWS))
        few = jnp.asarray(model.standardizer_.transform_X(rows.take(chosen)[0]), model.dtype)
    basis = InducingBasis(as_dtype(fit.basis.kernel, model.dtype), fit.basis.inputs)
    posterior = InducingPosterior(
        basis, fit.mean, fit.diagonal, noise_variance=noise, augment=bool(model.augment), num_rows=rows.n, rows=few
    )  # fmt: skip
    history = fit.loop.history
    model.diagnosis_ = {
        name: history.last(name) for name in ("objective", "objective_se", "residual")
    } | {"averaged": fit.averaged, "dense_columns": 0}
    model._warn_unless_converged(fit.loop.converged, fit.loop.reason)
    return Fit(
        kernel, likelihood, posterior, fit.loop.num_iter, fit.loop.converged, fit.loop.reason, history
    )  # fmt: skip
