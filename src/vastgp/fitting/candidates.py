"""Where a search for hyperparameters may begin, and the bounds it keeps, in standardised units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from vastgp.kernels import Kernel, from_name
from vastgp.kernels.metric import number_of_inputs, shortened
from vastgp.kernels.stationary import Stationary
from vastgp.likelihoods import Gaussian, Likelihood

# Bounds in standardised units. They are wide enough to be out of the way of any fit that the data determine, and keep
# those that they do not (an input without influence, a constant target) from running off to where nothing is finite.
BOUNDS = {
    "lengthscales": (1e-3, 1e3),
    "variance": (1e-4, 1e4),
    "slope_variances": (1e-6, 1e4),
    "alpha": (1e-2, 1e3),
    "degrees_of_freedom": (1.0, 1e3),
    "rate": (1e-9, 1e9),
    "size": (1e-3, 1e4),
}
MOST_NOISE = 10.0
# Half the variance of a standardised target may be noise; evidence finds a low noise level from above more safely than
# a high one from below, where the function chases the noise.
_START_NOISE = 0.1
# So many times shorter lengthscales are tried too, by the number of inputs: of few a function may go up and down often
# within the rows, beside a trend that is likelier than none. Ten periods and a trend, 700 rows: RBF's evidence from
# sqrt(d) ends in the trend (NLPD of unseen rows 0.67), from a fifth of it in the periods (-0.62).
_SHORTER = {1: (5.0, 25.0), 2: (5.0,), 3: (5.0,)}
_FAMILIES = ("rbf", "matern52", "matern32")

# None: a likelihood without hyperparameters
Params = tuple[Kernel, Likelihood | None]


def candidate_kernels(
    kernel: object, num_features: int, inputs: Sequence[int] | None = None
) -> list[Kernel]:
    """Return the kernels to try for the ``kernel`` of an estimator, one lengthscale per input or for all.

    Parameters
    ----------
    kernel : Kernel, str or None
    num_features : int
        Columns of the inputs.
    inputs : sequence of int, optional
        For every column the number of the input that it belongs to, see `vastgp.kernels.RBF`. Empty: one
        lengthscale for all. None: each column is an input.

    Raises
    ------
    ValueError
        When it is neither a kernel, nor the name of one, nor None, or has another number of lengthscales.
    """

    def shaped(form: Kernel) -> Kernel:
        if inputs is None:
            return form.with_ard(num_features)
        return form.with_inputs(inputs) if inputs else form.with_ard(1)

    if kernel is None or isinstance(kernel, str):
        names = _FAMILIES if kernel is None else (kernel,)
        return [default_values(shaped(from_name(name)), num_features) for name in names]
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel must be a Kernel such as vastgp.Matern32(), the name of one, or None to choose by evidence; "
            f"received {kernel!r}."
        )
    return [shaped(kernel)]


def default_values(kernel: Kernel, num_features: int) -> Kernel:
    """Return a kernel of the same form, and as many lengthscales, with starting values for standardised data.

    Lengthscales are ``sqrt(d)`` of d inputs: two random standardised rows lie ``sqrt(2 d)`` apart, so that the
    correlation of neighbours is seen whatever d is. Where a kernel has several parts they start apart from each other,
    as equal ones would have equal gradients. The variance is that of the target.
    """
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(kernel)]
    owners = [path[:-1] for path in paths if _name(path) == "lengthscales"]
    count = number_of_inputs(kernel, num_features)

    def value(path: Any, leaf: Any) -> Any:
        if _name(path) == "slope_variances":
            return np.full_like(leaf, 1.0 / count)
        if _name(path) != "lengthscales":
            return np.ones_like(leaf)
        place = owners.index(path[:-1]) - (len(owners) - 1) / 2
        return np.full_like(leaf, count**0.5 * 3.0**place)

    kernel = jax.tree_util.tree_map_with_path(value, kernel)
    return kernel.in_units(1.0, float(kernel.total_variance()) ** -0.5)


def bounds_of(params: Params, noise_floor: float) -> tuple[Params, Params]:
    """Return least and largest values of every hyperparameter of ``(kernel, likelihood)``, in standardised units."""
    noise = np.array([noise_floor, max(MOST_NOISE, 2.0 * noise_floor)])
    bounds = BOUNDS | {"noise_variance": noise, "scale": noise**0.5}

    def side(which: int) -> Params:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: np.full(np.shape(leaf), bounds[_name(path)][which]), params
        )

    return side(0), side(1)


def starting_params(
    form: Kernel,
    num_features: int,
    likelihood: Likelihood | None,
    restarts: int,
    generator: np.random.Generator,
) -> list[Params]:
    """Return where to begin: the form's own values, the default ones, shorter lengthscales, then random values.

    Parameters
    ----------
    form : Kernel
        With one lengthscale per input.
    num_features : int
    likelihood : Likelihood or None
        Where its hyperparameters start; None: Gaussian.
    restarts : int
        How often to begin: beyond 1 from random values.
    generator : Generator
        Of the restarts.
    """
    likelihood = likelihood or Gaussian(_START_NOISE)
    default = default_values(form, num_features)
    kernels = [form] if eqx.tree_equal(form, default) else [form, default]
    if isinstance(default, Stationary) and isinstance(likelihood, Gaussian):
        count = number_of_inputs(default, num_features)
        kernels += [shortened(default, count**0.5 / by) for by in _SHORTER.get(count, ())]
    starts: list[Params] = [(kernel, likelihood) for kernel in kernels]
    for _ in range(restarts - 1):
        kernel = _scattered(default, generator)
        if isinstance(likelihood, Gaussian):
            likelihood = Gaussian(10.0 ** generator.uniform(-3.0, 0.0))
        starts.append((kernel, likelihood))
    return starts


def _scattered(kernel: Kernel, generator: np.random.Generator) -> Kernel:
    """Return the kernel with random values: lengthscales scattered together and each by itself."""
    together = generator.normal(scale=0.7)

    def scatter(path: Any, leaf: Any) -> Any:
        shift = together if _name(path) == "lengthscales" else 0.0
        return leaf * np.exp(shift + generator.normal(scale=0.3, size=leaf.shape))

    return jax.tree_util.tree_map_with_path(scatter, kernel)


def _name(path: Any) -> str:
    """Return the name of the hyperparameter that a path in a kernel leads to."""
    return path[-1].name
