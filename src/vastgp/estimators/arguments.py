"""Constructor arguments that several estimators have: refusals that say what to do, and what they stand for."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Annotated, Any

import numpy as np

from vastgp._arguments import Flag, OneOf, Positive, RandomState
from vastgp.data import Standardizer
from vastgp.estimators.searches import Fixed, SaveTo
from vastgp.fitting.candidates import candidate_kernels
from vastgp.kernels import Kernel

# What constructors declare in common; `candidate_kernels` says what a kernel may be, when the inputs are known.
KernelLike = Kernel | str | None
Tolerance = Annotated[float, Positive()]
MaxSeconds = Annotated[float | None, Positive(none="no limit")]
CheckpointLike = str | os.PathLike[str] | SaveTo | None
Seed = Annotated[int | np.random.RandomState | np.random.Generator | None, RandomState()]
Dtype = Annotated[str, OneOf("float32", "float64")]
Verbose = Annotated[bool, Flag()]
# Whose ``fit`` takes ``noise_std`` and ``sample_weight``.
_OWN_NOISE_IN = (
    "ExactGPRegressor", "SVGPRegressor", "TSVGPRegressor", "SWSGPRegressor", "QSGPRegressor",
    "IterativeGPRegressor", "RandomFeatureGPRegressor",
)  # fmt: skip


def seed_from(random_state: Any) -> int:
    """Return a seed from what scikit-learn calls ``random_state``.

    Parameters
    ----------
    random_state : int, RandomState, Generator or None
        An integer is the seed itself. A generator gives its next number, and None a fresh one that cannot be repeated.
    """
    most = 2**31 - 1
    if random_state is None:
        return int(np.random.default_rng().integers(most))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(most))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(most))
    RandomState()("random_state", random_state)
    return int(random_state)


def seeds_from(random_state: Any, count: int) -> list[int]:
    """Return seeds of draws that are independent of each other, from what scikit-learn calls ``random_state``."""
    found = np.random.SeedSequence(seed_from(random_state)).generate_state(count)
    return [int(seed) for seed in found]


def check_fixed_model(search: Any, kernel: Any, needs_noise: bool = True) -> None:
    """Raise ``ValueError`` unless kernel and noise are given where hyperparameters are fixed.

    Parameters
    ----------
    search : Subset, Learn or Fixed
    kernel : object
        The argument of the estimator.
    needs_noise : bool, default True
        Whether the likelihood's only hyperparameter is the noise.
    """
    if not isinstance(search, Fixed):
        return
    if needs_noise != (search.noise_std is not None):
        does = "needs" if needs_noise else "has no use for"
        write = (
            "Fixed(noise_std=...)" if needs_noise else "'fixed', and the likelihood as an object"
        )
        raise ValueError(
            f"hyperparameters={search!r} {does} noise_std, the standard deviation of Gaussian noise in units of the "
            f"target. Write hyperparameters={write}."
        )
    if isinstance(search.noise_std, (Sequence, np.ndarray)):
        raise ValueError(
            f"noise_std must be one number here, received {search.noise_std!r}: several are for the outputs of a grid."
        )
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel must be a Kernel with hyperparameters='fixed', received {kernel!r}. Give its lengthscales in "
            "units of the inputs and its variance in units of the target squared, for example the kernel_ of a fit."
        )


def refuse_given(argument: str, options: Any, **instead: str | None) -> None:
    """Raise ``ValueError`` for a field of options that would have no effect here.

    Parameters
    ----------
    argument : str
        That holds the options.
    options : Options
    instead : str or None
        By field: the argument that does it here, or None where nothing does.
    """
    for name, other in instead.items():
        value = getattr(options, name, None)
        if value is not None:
            do = "leave it out" if other is None else f"set {other} instead"
            raise ValueError(
                f"{argument}={type(options).__name__}({name}={reprlib.repr(value)}) has no effect here: {do}."
            )


def check_spectrum(kernel: Any, num_features: int, num_basis: int | None = None) -> None:
    """Raise ``ValueError`` for a kernel that waves, or so many functions of them, cannot be drawn of."""
    terms = len(candidate_kernels(kernel, num_features)[0].spectral_terms())
    if num_basis is not None and num_basis < 2 * terms:
        raise ValueError(
            f"num_basis must be at least {2 * terms} for a sum of {terms} kernels, received {num_basis}."
        )


def check_constant_variance(kernel: Any, num_features: int) -> None:
    """Raise ``ValueError`` for a kernel whose prior variance is not the same at every row."""
    chosen = candidate_kernels(kernel, num_features)[0]
    if not chosen.constant_variance:
        chosen.spectral_terms()  # has none, and says which methods need none


def fixed_kernel(kernel: Any, scaling: Standardizer, search: Fixed) -> Kernel:
    """Return a kernel as given, from the units of inputs and target to standardised ones."""
    (kernel,) = candidate_kernels(kernel, scaling.d, search.inputs(scaling.d))
    return kernel.in_units(1.0 / input_units(scaling, search.isotropic), 1.0 / scaling.y_scale)


def input_units(scaling: Standardizer, isotropic: bool) -> Any:
    """Return the scale of every input, or the one that all have, as one lengthscale stands for all."""
    return scaling.x_scale[:1] if isotropic else scaling.x_scale


def fixed_noise_variance(noise_std: float | Sequence[float] | None, scaling: Standardizer) -> float:
    """Return the variance of noise given by its standard deviation in units of the target, in standardised ones."""
    assert isinstance(noise_std, Real)  # `check_fixed_model` has seen to it
    return float((float(noise_std) / scaling.y_scale) ** 2)


def refuse_own_noise(estimator: str, others: Iterable[str]) -> None:
    """Raise TypeError for arguments of ``fit`` that an estimator does not take."""
    for name in others:
        if name in ("noise_std", "sample_weight"):
            raise TypeError(
                f"{estimator}.fit takes no {name} yet; {', '.join(_OWN_NOISE_IN)} do, with a Gaussian likelihood"
                + (", and SVGPClassifier and TSVGPClassifier." if name == "sample_weight" else ".")
            )
        if name == "exposure":
            raise TypeError(
                f"{estimator}.fit takes no exposure; SVGPRegressor and TSVGPRegressor do, with likelihood='poisson' or "
                "another law of counts, and GPRegressor."
            )
        raise TypeError(f"{estimator}.fit() got an unexpected keyword argument {name!r}")
