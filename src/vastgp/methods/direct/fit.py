"""What the DIRECT estimators share: the basis, the discrete model of one function, its fit, files."""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Rows
from vastgp.estimators.arguments import (
    check_choice,
    check_positive,
    fixed_kernel,
    seed_from,
)
from vastgp.estimators.base import BaseGP
from vastgp.estimators.grid_basis import check_kernel_of, grid_eigenfunctions
from vastgp.fitting.progress import Progress
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.kernels import Kernel
from vastgp.methods.direct.arguments import prior_of, support_values
from vastgp.methods.direct.integer_header import write_header
from vastgp.methods.direct.integer_model import IntegerModel, integer_model
from vastgp.methods.direct.logistic_training import weights_moments
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    QuadraticLikelihood,
    values_and_prior,
)
from vastgp.methods.direct.posterior import DiscretePosterior
from vastgp.methods.direct.start import normal_weights, residual_of
from vastgp.methods.direct.training import (
    DiscreteFit,
    fit_mean_field,
    fit_mixture_bound,
    fit_mixture_sampled,
    spread_out,
    start_mean_field,
)

# Basis functions when `num_basis` is left open: four per row, in these bounds.
_BASIS_PER_ROW, _LEAST_BASIS = 4, 200
_TILE_ROWS = 4096
_PROOF_ROWS = 200
# Learned noise: values from this part of the first one to this multiple of it, so many.
_NOISE_REACH, _NOISE_VALUES = 10.0, 15
# A start is good enough where sweeps gain no more than this, in nats.
_LEAST_GAIN = 1.0


class FittedWeights(NamedTuple):
    """What `DirectFits._fit_weights` found for one function, in plain numbers.

    ``rounding`` is how much farther from the targets the mean is than that of normal weights, in squared distance per
    row: what values so far apart cannot express.
    """

    values: np.ndarray
    probabilities: np.ndarray
    mixture: np.ndarray
    noise_probabilities: np.ndarray
    fit: DiscreteFit
    rounding: float


class DirectFits(BaseGP):
    """Fits of `DirectRegressor` and `DirectClassifier`."""

    _most_basis = 2000

    # ------------------------------------------------------------ basis

    def _choose_basis(self, n: int) -> int:
        if self.num_basis is not None:
            return int(self.num_basis)
        return max(_LEAST_BASIS, min(self._most_basis, _BASIS_PER_ROW * n))

    def _make_basis(self, kernel: Kernel, rows: Rows, seed: int) -> tuple[Any, Kernel]:
        """Return the basis, and the kernel that it is of."""
        size = self._choose_basis(rows.n)
        basis: Any
        if self.basis == "grief":
            basis = grid_eigenfunctions(kernel, rows, self.standardizer_, size)
            kernel = basis.kernel
        else:
            basis = RandomFourierBasis(kernel, seed_key(seed), size, self.frequencies)
        self.num_basis_ = basis.num_basis
        return as_dtype(basis, self.dtype), kernel

    def _check_inputs(self, num_features: int) -> None:
        check_kernel_of(self.basis, self.kernel, num_features)

    def _wanted_kernel(self) -> Any:
        """Return what to start from; None, for a choice among kernels, where any of them will do."""
        return "rbf" if self.basis == "grief" and self.kernel is None else self.kernel

    def _given_kernel(self) -> Kernel:
        return fixed_kernel(self.kernel, self.standardizer_, self.isotropic)

    def _learns_support(self) -> bool:
        """Return whether each weight's spacing is learned: by default where its prior is known at any value."""
        if self.learn_support is None:
            return isinstance(self.prior, str) and self.prior == "gaussian"
        return bool(self.learn_support)

    def _proof_rows(self, rows: Rows, seed: int) -> np.ndarray:
        """Return some standardised training inputs, at which an export proves itself."""
        generator = np.random.default_rng(seed)
        chosen = np.sort(generator.choice(rows.n, min(rows.n, _PROOF_ROWS), replace=False))
        return self.standardizer_.transform_X(rows.take(chosen)[0], dtype=np.dtype(self.dtype))

    # ------------------------------------------------------------ the weights of one function

    def _discrete_model(
        self, likelihood: QuadraticLikelihood, noise: np.ndarray, log_noise_prior: np.ndarray
    ) -> DiscreteModel:
        """Return the model of whitened weights; must run in double precision."""
        own = support_values(self.support)
        values = np.tile(own, (len(likelihood.target), 1))
        arrays = (jnp.asarray(likelihood.target), jnp.asarray(likelihood.gram))
        prior = prior_of(self, own)
        return DiscreteModel(
            QuadraticLikelihood(float(likelihood.count), float(likelihood.square), *arrays),
            jnp.asarray(values),
            type(prior)(*(jnp.asarray(part) for part in prior)),
            jnp.asarray(noise),
            jnp.asarray(log_noise_prior),
        )

    def _fit_weights(
        self,
        likelihood: QuadraticLikelihood,
        rows: int,
        noise_variance: float,
        seed: int,
        *,
        noise: np.ndarray | None = None,
        warm: DiscreteLogits | None = None,
        max_iter: int | None = None,
    ) -> FittedWeights:
        """Fit the weights of one function to a quadratic likelihood.

        Parameters
        ----------
        likelihood : QuadraticLikelihood
            Of weights in the units of the basis.
        rows : int
        noise_variance : float
            Where to start.
        seed : int
        noise : ndarray of shape (s,), optional
            What the noise variance can be.
        warm : DiscreteLogits, optional
            Where to begin instead of a start of its own.
        """
        noise = np.array([noise_variance]) if noise is None else noise
        left = self._seconds_left(self.max_seconds)
        deadline = None if left is None else time.perf_counter() + left
        limits: dict[str, Any] = {"max_iter": max_iter or int(self.max_iter), "tol": self.tol}
        with precision("float64"), Progress("discrete weights", bool(self.verbose)) as progress:
            model = self._discrete_model(
                likelihood, noise, np.full(len(noise), -np.log(len(noise)))
            )
            normal = normal_weights(likelihood, noise_variance)
            if warm is None:
                warm, _ = start_mean_field(
                    model,
                    normal=normal if self.start == "posterior" else None,
                    learn_spacing=self._learns_support(),
                    tol=max(self.tol * rows, _LEAST_GAIN),
                    deadline=deadline,
                )

            def told(step: int, value: float) -> None:
                progress.update(step / limits["max_iter"], f"bound {value:.6g}")

            fit = fit_mean_field(
                model, warm, rows=rows, max_seconds=left_of(deadline), on_iteration=told, **limits
            )
            if self.q == "mixture":
                fit = self._fit_mixture(model, fit, rows, seed, left_of(deadline), limits)
            mean = weights_moments(fit.logits, model).mean
            rounding = max(residual_of(likelihood, mean) - normal.residual, 0.0)
            return self._plain(fit, model, rounding)

    def _plain(self, fit: DiscreteFit, model: DiscreteModel, rounding: float) -> FittedWeights:
        """Return a fit in plain numbers; must run in double precision."""
        logits = fit.logits
        values = np.asarray(values_and_prior(logits, model)[0])
        q, alpha, noise = (
            _softmax(part) for part in (logits.weights, logits.mixture, logits.noise)
        )
        return FittedWeights(values, q, alpha, noise, fit, rounding)

    def _fit_mixture(
        self,
        model: DiscreteModel,
        fit: DiscreteFit,
        rows: int,
        seed: int,
        left: float | None,
        limits: dict[str, Any],
    ) -> DiscreteFit:
        """Go on from the mean-field solution with perturbed copies of it, as the thesis does."""
        logits = spread_out(fit.logits, int(self.components), seed)
        if self.objective == "unbiased":
            return fit_mixture_sampled(
                model, logits, rows=rows, draws=int(self.draws), seed=seed, max_seconds=left,
                verbose=bool(self.verbose), **limits,
            )  # fmt: skip
        center = jnp.log(jnp.asarray(_softmax(fit.logits.weights))[0] + 1e-18)
        return fit_mixture_bound(model, logits, center, rows=rows, max_seconds=left, **limits)

    def _noise_values(self, noise_variance: float) -> np.ndarray:
        """Return what a learned noise variance can be, evenly spaced in its logarithm."""
        reach = np.log(_NOISE_REACH)
        values = noise_variance * np.exp(np.linspace(-reach, reach, _NOISE_VALUES))
        return values[values >= min(self.noise_floor, noise_variance)]

    def _warn_unless_converged(self, fits: list[DiscreteFit]) -> None:
        late = [fit for fit in fits if not fit.converged]
        if late:
            warnings.warn(
                f"{type(self).__name__} did not converge: {late[0].reason}. The bound may still rise, see history_: "
                f"give more time (max_seconds, max_iter, now {self.max_iter}), or raise tol (now {self.tol:g}).",
                ConvergenceWarning,
                stacklevel=5,
            )

    # ------------------------------------------------------------ what a fit knows

    def sparsity(self) -> float:
        """Return the expected share of zeros among the weights of a posterior sample."""
        return self.posterior_.sparsity()

    def to_integer(self, num_samples: Any = 16, *, random_state: Any = 0) -> IntegerModel:
        """Return the model in integers: packed four-bit samples of the weights, quantised features.

        Parameters
        ----------
        num_samples : int, default 16
            Posterior samples, an even number. They are stratified, so that few of them have the posterior's mean.
        random_state : int, RandomState or None, default 0

        Raises
        ------
        ValueError
            When a weight has more than sixteen values, or when the integers do not predict at training rows what the
            same samples do in floating point numbers.
        """
        check_is_fitted(self, "posterior_")
        check_positive("num_samples", num_samples, integer=True)
        if num_samples % 2:
            raise ValueError(
                f"num_samples must be even (two share a byte), received {num_samples}."
            )
        likelihood: Any = self.likelihood_
        noise = 0.0
        if self._scales_target():
            noise = float(likelihood.noise_variance) / self.standardizer_.y_scale**2
        with precision(self.dtype):
            return integer_model(
                self.posterior_, self.standardizer_, noise, num_samples=int(num_samples),
                seed=seed_from(random_state), dtype=self.dtype, is_classifier=not self._scales_target(),
            )  # fmt: skip

    def export(
        self,
        path: Any,
        format: Any = "c",
        *,
        num_samples: Any = 16,
        name: Any = None,
        random_state: Any = 0,
    ) -> IntegerModel:
        """Write the model in integers to a file, after it has proved itself at training rows, see `to_integer`.

        Parameters
        ----------
        path : str or path
        format : {"c", "npz"}, default "c"
            ``"c"``: a C99 header without dependencies, with ``NAME_predict`` in integer arithmetic and, unless
            ``NAME_NO_FLOAT`` is defined, ``NAME_quantise`` for inputs. ``"npz"``: arrays, read by
            `vastgp.methods.direct.integer_model.IntegerModel.read`.
        num_samples, random_state
            As in `to_integer`.
        name : str, optional
            What names in the header begin with; that of the file by default.

        Returns
        -------
        IntegerModel
            What was written; its ``predict_integers`` and the C program agree to the bit.
        """
        check_choice("format", format, ("c", "npz"))
        model = self.to_integer(num_samples, random_state=random_state)
        if format == "c":
            write_header(model, path, name)
        else:
            model.write_npz(path)
        return model

    def _tile_rows(self) -> int:
        return _TILE_ROWS

    # ------------------------------------------------------------ files

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "posterior_" in state:  # which holds them, too
            state.pop("statistics_", None)
        return state

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = self.posterior_.to_state()
        statistics = getattr(self, "statistics_", None)
        if statistics is not None:
            state["statistics"], own = statistics.to_state()
            arrays |= {f"statistics/{name}": array for name, array in own.items()}
        return state, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.posterior_ = DiscretePosterior.from_state(state, arrays)
        self.num_basis_ = self.posterior_.basis.num_basis
        if "statistics" in state:
            own = {name: arrays[f"statistics/{name}"] for name in ("moments", "rest")}
            self.statistics_ = SufficientStatistics.from_state(state["statistics"], own)


def left_of(deadline: float | None) -> float | None:
    """Return the seconds until a time of ``time.perf_counter``."""
    return None if deadline is None else max(deadline - time.perf_counter(), 0.0)


def _softmax(logits: Any) -> np.ndarray:
    values = np.asarray(logits, np.float64)
    exponent = np.exp(values - values.max(axis=-1, keepdims=True))
    return exponent / exponent.sum(axis=-1, keepdims=True)
