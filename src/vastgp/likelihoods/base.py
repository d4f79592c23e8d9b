"""What every likelihood can be asked."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import numpy as np

from vastgp._arguments import is_number
from vastgp._parameters import Parameters
from vastgp.likelihoods.quadrature import expectation


def positive(name: str, value: Any) -> Any:
    """Return a hyperparameter as one positive float64 number; arrays of JAX stay what they are, traced ones unseen.

    Raises
    ------
    ValueError
        When it is anything else.
    """
    if isinstance(value, jax.core.Tracer):
        return value
    try:
        array = np.asarray(value, dtype=np.float64)
        good = not array.ndim and bool(np.isfinite(array) and array > 0)
    except (TypeError, ValueError):
        array, good = value, False
    if not good:
        raise ValueError(f"{name} must be one positive finite number, received {array}.")
    return value if isinstance(value, jax.Array) else array


def number_of_points(points: Any) -> int:
    """Return a number of quadrature nodes.

    Raises
    ------
    ValueError
        When it is not an integer of at least 8.
    """
    return whole_number("points", points, 8, " (quadrature nodes)")


def whole_number(name: str, value: Any, least: int, meaning: str = "") -> int:
    """Return an argument that is an integer of at least ``least``.

    Raises
    ------
    ValueError
        When it is anything else.
    """
    if not is_number(value, whole=True) or value < least:
        raise ValueError(
            f"{name} must be an integer of at least {least}{meaning}, received {value!r}."
        )
    return int(value)


class Likelihood(Parameters, eqx.Module):
    """How an observation ``y`` scatters around the latent function's value ``f``.

    A pytree whose leaves are all positive hyperparameters, so that ``jax.tree.map(jnp.log, likelihood)`` is its
    unconstrained form; everything else is static. All methods work elementwise on arrays of shapes that broadcast.
    They use JAX; those named in ``in_numpy`` also stay in NumPy when given NumPy.

    A subclass gives `log_prob`, `log_density`, the predictive moments and `median`. For what has no closed form it has
    ``points`` and `feature` and inherits quadrature (`vastgp.likelihoods.quadrature`).
    """

    if not TYPE_CHECKING:
        # as kernels have it: methods are no pytrees
        __getattribute__ = object.__getattribute__

    name: ClassVar[str]
    """Name for users and files."""
    log_concave: ClassVar[bool] = True
    """Whether ``log p(y | f)`` is concave in ``f`` at every ``y``."""
    scales_target: ClassVar[bool] = True
    """Whether the target is a real number that may be standardised; not so for counts and labels."""
    in_numpy: ClassVar[frozenset[str]] = frozenset()
    """Names of methods that stay in NumPy when given NumPy, for which no program need be compiled."""
    most_in_numpy: ClassVar[float] = np.inf
    """Latent values of all rows, up to which they do."""
    nodes_for_each: ClassVar[int] = 64
    """About how many numbers averages make of each target and moment: what decides how they are compiled."""
    counts: ClassVar[bool] = False
    """Whether observations are 0, 1, 2, ..."""
    shift_invariant: ClassVar[bool] = False
    """Whether it does not see what several latent functions have in common."""

    @property
    def num_latent(self) -> int:
        """Number of latent functions; with more than one, latent values and moments have them as their first axis."""
        return 1

    @property
    def to_fit(self) -> Likelihood:
        """The likelihood that models are fitted by: another one where this one tells of a posterior that was found."""
        return self

    @abstractmethod
    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f)``, elementwise."""

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return centre and width of where ``log p(y | f)`` bends, in units of ``f``: quadrature places nodes there."""
        raise NotImplementedError(f"{type(self).__name__} has closed forms, no quadrature.")

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for ``f ~ N(mean, variance)``, elementwise.

        Gradients by all arguments are finite, also where ``variance`` is 0.
        """
        return expectation(self, "log_prob", y, mean, variance)

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return the first derivative of the log-likelihood, and minus the second, averaged over the latent value.

        Returns
        -------
        alpha : Array
            ``E[d log p / df]``, the derivative of `expected_log_prob` by ``mean`` (Bonnet 1964).
        beta : Array
            ``-E[d^2 log p / df^2]``, -2 times its derivative by ``variance`` (Price 1958). Not negative where the
            likelihood is log-concave.

        Notes
        -----
        Where there is no closed form, the derivatives of `log_prob` are averaged. Differentiating its quadrature
        instead gives the same alpha, but beta as ``-E[g' z] / std``, which loses all digits for small variances.
        """
        alpha = expectation(self, "log_prob", y, mean, variance, order=1)
        return alpha, -expectation(self, "log_prob", y, mean, variance, order=2)

    def value_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return `expected_log_prob` and both `sites`, which may share their averages."""
        return self.expected_log_prob(y, mean, variance), *self.sites(y, mean, variance)

    def bound_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return `site_bound`, and slope and curvature of sites: those of `sites` where it is the expectation."""
        return self.value_and_sites(y, mean, variance)

    plug_in_sites: ClassVar[Any] = None
    """`value_and_sites` at a known latent value, ``plug_in_sites(y, f)`` in NumPy; None without a closed form."""

    def curvature_along(self, y: Any, mean: Any, variance: Any, change: Any) -> Any:
        """Return ``-E[d^2/dt^2 log p(y | f + t change)]`` at ``t = 0``, one number for each target."""
        return self.sites(y, mean, variance)[1] * change**2

    def site_bound(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return what variational inference with Gaussian sites maximises in place of `expected_log_prob`.

        The expectation itself where the likelihood is log-concave, as its sites then have ``beta >= 0``. Others give a
        lower bound of it whose curvature is never negative.
        """
        if not self.log_concave:
            raise NotImplementedError(f"{type(self).__name__} is not log-concave and has no bound.")
        return self.expected_log_prob(y, mean, variance)

    def most_curvature(self) -> float:
        """Return the largest value of ``-d^2 log p / df^2`` over ``y`` and ``f``; infinite where there is none."""
        return np.inf

    @abstractmethod
    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]`` for ``f ~ N(mean, latent_variance)``, elementwise."""

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(observation <= y)`` for ``f ~ N(mean, latent_variance)``: NumPy in and out, float64.

        For counts it is continuous between whole numbers, from 0 at -1. Quantiles are found by it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `distribution`, so no quantiles.")

    @abstractmethod
    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return the mean of a new observation for ``f ~ N(mean, latent_variance)``, elementwise."""

    @abstractmethod
    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return the variance of a new observation for ``f ~ N(mean, latent_variance)``, elementwise."""

    def median(self, mean: Any) -> Any:
        """Return the observation's median given that ``f`` is its own median ``mean`` (plug-in)."""
        return mean

    def rough(self) -> Likelihood:
        """Return the likelihood with quadrature that is accurate enough for minibatches, which err far more."""
        return self

    def location(self, values: Any) -> Any:
        """Return, of values or variances of the latent functions, those of what observations scatter around."""
        return values

    def in_units(self, y_scale: float) -> Likelihood:
        """Return a likelihood of the standardised target in the units of the target."""
        if self.scales_target:
            raise NotImplementedError(f"{type(self).__name__} scales its target and must say how.")
        return self

    def check_targets(self, y: Any) -> None:
        """Refuse targets that this likelihood cannot produce.

        Raises
        ------
        ValueError
            Naming ``y``, how many entries are wrong and the first of them.
        """
        y = np.asarray(y)
        good, wanted, advice = self._possible(y)
        if not np.all(good):
            wrong = y[~good]
            raise ValueError(
                f"y must hold {wanted} for the {self.name} likelihood, received {wrong.size} other "
                f"value{'s' if wrong.size > 1 else ''}, the first {wrong.ravel()[0]}. {advice}"
            )

    def _possible(self, y: np.ndarray) -> tuple[Any, str, str]:
        """Return which targets it can produce, what such targets are, and what to do about others."""
        return np.isfinite(y), "finite numbers", "Drop or impute these rows."

    def __repr__(self) -> str:
        fields = [field for field in dataclasses.fields(self) if field.name != "points"]
        values = [(field.name, getattr(self, field.name)) for field in fields]
        values = [(name, value) for name, value in values if value is not None]
        if any(isinstance(value, jax.core.Tracer) for _, value in values):
            return f"{type(self).__name__}({', '.join(str(value) for _, value in values)})"
        return f"{type(self).__name__}({', '.join(f'{n}={_short(value)}' for n, value in values)})"


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_short(part) for part in value)})"
    return repr(value) if isinstance(value, str) else f"{float(value):.4g}"
