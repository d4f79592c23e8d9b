"""How `QSGPRegressor` and `QSGPClassifier` are fitted: bases and solvers by name, and what does not go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from vastgp._arguments import AtLeast, Named, Options, Positive
from vastgp.estimators.arguments import refuse_given
from vastgp.estimators.bases import Fourier
from vastgp.estimators.searches import SEARCHES, Learn, moved_to
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.stochastic.options import Stochastic, check_stochastic


@dataclass(frozen=True)
class Block(Options):
    """The block solver of QSGP: conjugate gradients for the posterior's mean and samples, by passes over blocks.

    Parameters
    ----------
    num_samples : int, default 32
        Posterior samples: the error of each predicted latent variance is ``sqrt(2 / num_samples)``.
    rank : int, optional
        Size of the preconditioner. None: chosen by a count of operations and memory.
    max_products : int, default 300
        Most products of the last solution, each a pass over all rows and basis functions.
    """

    num_samples: Annotated[int, AtLeast(2)] = 32
    rank: Annotated[
        int | None, Positive(integer=True, none="by a count of operations and memory")
    ] = None
    max_products: Annotated[int, Positive(integer=True)] = 300


SOLVERS = Named({"auto": None, "block": Block, "stochastic": Stochastic})
# Eigenfunctions of a kernel on a grid ("grief") leave nothing to choose.
BASES = Named({"fourier": Fourier, "inducing": Inducing, "grief": None})
CLASS_BASES = Named({"fourier": Fourier, "grief": None})


NumBasis = Annotated[int | None, Positive(integer=True, none="chosen by the number of rows")]

# Arguments of before, and what to write now.
MOVED = moved_to("Subset") | {
    "learning_steps": "hyperparameters=Learn(steps=...)",
    "frequencies": "basis=Fourier(frequencies=...)",
    "inducing_inputs": "basis=Inducing(inputs=...)",
    "augment": "basis=Inducing(variance=...)",
    "num_samples": "solver=Block(num_samples=...)",
    "rank": "solver=Block(rank=...)",
    "max_iter": "solver=Block(max_products=...) or Stochastic(max_steps=...)",
} | {
    name: f"solver=Stochastic({name}=...)"
    for name in (
        "dense_columns", "row_batch", "basis_batch", "control_rank", "validation_fraction", "bound",
    )
}  # fmt: skip


class Chosen(NamedTuple):
    """What the arguments stand for.

    Attributes
    ----------
    search : Subset, Learn or Fixed
        With the rows and the noise floor set.
    basis : Fourier, Inducing or "grief"
    solver : Block, Stochastic or "auto"
    """

    search: Any
    basis: Any
    solver: Any


def check_chosen(chosen: Chosen, likelihood: Likelihood, num_basis: int | None) -> None:
    """Raise ValueError for what does not go together, before any work."""
    search, basis, solver = chosen
    if isinstance(basis, Fourier):
        if num_basis is not None and num_basis % 2:
            raise ValueError(
                f"num_basis must be even (cosines and sines come in pairs), received {num_basis}."
            )
    else:
        _check_fixed_basis(chosen, likelihood, num_basis)
    if isinstance(solver, Stochastic):
        # while the number of functions is open there are thousands
        check_stochastic(solver, likelihood, num_basis or 2 * solver.dense_columns + 4)
        refuse_given("hyperparameters", search, steps="solver=Stochastic(max_steps=...)")
    elif isinstance(search, Learn) and not isinstance(likelihood, Gaussian):
        raise ValueError(
            f"hyperparameters='learn' with the {likelihood.name} likelihood needs solver='stochastic'; the block "
            "solver learns them on some rows: set hyperparameters='subset'."
        )


def _check_fixed_basis(chosen: Chosen, likelihood: Likelihood, num_basis: int | None) -> None:
    """Raise ValueError for what inducing inputs, or eigenfunctions, do not go with."""
    search, basis, solver = chosen
    inducing = isinstance(basis, Inducing)
    alone = not isinstance(solver, str) if inducing else isinstance(solver, Stochastic)
    refused = {
        f"likelihood={likelihood.name!r}": (
            inducing and not isinstance(likelihood, Gaussian),
            "likelihood='gaussian'",
        ),
        f"solver={SOLVERS.name_of(solver)!r}": (alone, "solver='auto'"),
        f"hyperparameters={SEARCHES.name_of(search)!r}": (
            isinstance(search, Learn),
            "hyperparameters='subset'",
        ),
    }
    for what, (wrong, instead) in refused.items():
        if wrong:
            raise ValueError(
                f"{what} is not available with basis={BASES.name_of(basis)!r}. Set {instead}, or use basis='fourier'."
            )
    if inducing and basis.inputs is not None and num_basis is not None:
        raise ValueError(
            f"num_basis={num_basis!r} and Inducing(inputs=...) were both given: the basis has one function for each "
            "inducing input. Leave one of them out."
        )
