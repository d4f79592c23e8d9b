"""What a fit with an inducing basis is compiled for, what it holds fixed, and what it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
from jaxtyping import Array, Float, Int, UInt32

from vastgp.bases.inducing import InducingBasis
from vastgp.data.devices import dealt, whole
from vastgp.methods.qsgp.inducing.objective import BlockedInputs, blocked_product


@dataclass(frozen=True)
class InducingPlan:
    """What a step is compiled for: sizes, and how many ``devices`` share what it makes of rows and functions."""

    num_basis: int
    row_batch: int
    basis_batch: int
    support: int
    devices: int = 1

    @property
    def whole(self) -> bool:
        """Whether a step sees every basis function."""
        return self.basis_batch >= self.num_basis


class InducingState(NamedTuple):
    """Everything that decides the next step, but for its number."""

    mean: Float[Array, " m"]
    average: Float[Array, " m"]
    support: Float[Array, " p"]  # the function at the support rows, Proposition 3


class InducingProblem(NamedTuple):
    """What stays the same during a fit."""

    basis: InducingBasis
    y: Float[Array, "..."]  # targets of the inducing inputs where these are the rows, else empty
    seed: UInt32[Array, "2"]
    num_rows: Float[Array, ""]
    averaging: Float[Array, ""]
    renew: Int[Array, ""]  # steps between two passes that make `InducingState.support` anew
    noise_variance: Float[Array, ""]
    support_X: Float[Array, "p d"]
    interpolator: Float[Array, "p p"]  # (K_pp + nugget I)^-1
    solver: Float[Array, "p p"]  # rows: (K_pp + sigma^2 I)^-1; weights: the deflator
    damping: Float[Array, ""]


def renewed(
    plan: InducingPlan, problem: InducingProblem, state: InducingState, number: Int[Array, ""]
) -> InducingState:
    """Return the state with the function at the support rows made anew, at every so many steps: rounding adds up."""

    def anew() -> Array:
        X = dealt(problem.support_X, plan.devices)
        found = blocked_product(BlockedInputs.cut(problem.basis), X, state.mean)
        return whole(found, plan.devices)

    due = (number > 0) & (number % problem.renew == 0)
    return state._replace(support=jax.lax.cond(due, anew, lambda: state.support))
