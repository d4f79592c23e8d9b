"""What `DirectRegressor` and `DirectClassifier` share: their arguments, their basis, models in integers, files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import Named, OneOf, Positive
from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Rows
from vastgp.data.minibatch import fixed_indices
from vastgp.estimators.arguments import seed_from
from vastgp.estimators.base import BaseGP
from vastgp.estimators.bases import Fourier
from vastgp.estimators.first_hyperparameters import Beginning
from vastgp.estimators.grid_basis import check_kernel_of, grid_eigenfunctions
from vastgp.estimators.searches import Fixed, Subset
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.methods.direct.fit import Recipe
from vastgp.methods.direct.integer_header import write_header
from vastgp.methods.direct.integer_model import IntegerModel, integer_model
from vastgp.methods.direct.options import as_support, resolved_family
from vastgp.methods.direct.posterior import DiscretePosterior

BASES = Named({"fourier": Fourier, "grief": None})
SEARCHES = Named({"subset": Subset, "fixed": Fixed})
_ROWS, NOISE_FLOOR = 1000, 1e-4
# Basis functions when `num_basis` is left open: four per row, in these bounds.
_BASIS_PER_ROW, _LEAST_BASIS = 4, 200
# Of the budget: the search for hyperparameters.
_SEARCH = 0.5
_TILE_ROWS = 4096
# Rows at which an export proves itself, and the number of this use of a seed.
_PROOF_ROWS, _PROOF = 200, 1


class DirectBase(BaseGP):
    """Estimators of functions with discrete weights."""

    kernel: Any
    num_basis: Any
    basis: Any
    support: Any
    family: Any
    hyperparameters: Any
    tol: Any

    _most_basis = 2000
    # whether spacings are learned where the argument leaves it open
    _learns = False
    _posterior_class = DiscretePosterior
    _beside_posterior = ("elbo",)
    _compiling_seconds: ClassVar[float] = 6.0
    _moved: ClassVar[Mapping[str, str]] = {
        "learn_support": "support=Support(learn=...)",
        "prior": "support=Support(prior=...)",
        "prior_weights": "support=Support(prior_weights=...)",
        "q": "family",
        "components": "family=Mixture(components=...)",
        "objective": "family=Mixture(objective=...)",
        "draws": "family=Mixture(draws=...)",
        "start": "family=MeanField(start=...)",
        "max_iter": "family=MeanField(max_iter=...)",
        "noise": "family=MeanField(learn_noise=...)",
        "bound": "family=MeanField(logistic_bound=...)",
        "isotropic": "hyperparameters=Subset(isotropic=...)",
        "noise_std": "hyperparameters=Fixed(noise_std=...)",
        "noise_floor": "hyperparameters=Subset(noise_floor=...)",
        "start_rows": "hyperparameters=Subset(rows=...)",
        "frequencies": "basis=Fourier(frequencies=...)",
        "keep_statistics": "nothing, and del model.statistics_ before model.save for a smaller file",
    }

    # ------------------------------------------------------------ arguments

    def _check_params(self) -> None:
        if self._is_fourier and self.num_basis is not None and self.num_basis % 2:
            raise ValueError(
                f"num_basis must be even (cosines and sines come in pairs), received {self.num_basis}."
            )

    def _check_inputs(self, num_features: int) -> None:
        name = "fourier" if self._is_fourier else "grief"
        check_kernel_of(name, self.kernel, num_features, self.num_basis)

    @property
    def _is_fourier(self) -> bool:
        return self.basis != "grief"

    def _search(self) -> Any:
        """Return how hyperparameters are found."""
        found = SEARCHES.resolve("hyperparameters", self.hyperparameters)
        if isinstance(found, Fixed):
            return found
        return found.given(rows=_ROWS, noise_floor=NOISE_FLOOR)

    def _recipe(self, rows: int) -> Recipe:
        """Return how the weights of so many rows are fitted."""
        support = as_support(self.support)
        learns = self._learns and support.is_gaussian if support.learn is None else support.learn
        return Recipe(support, resolved_family(self.family), bool(learns), self.tol, rows)

    # ------------------------------------------------------------ basis

    def _choose_basis(self, n: int) -> int:
        if self.num_basis is not None:
            return int(self.num_basis)
        return max(_LEAST_BASIS, min(self._most_basis, _BASIS_PER_ROW * n))

    def _beginning(self, rows: Rows, run: Run) -> Beginning:
        """Return what first hyperparameters are looked for with: any of the kernels that have the basis."""
        kernel = "rbf" if not self._is_fourier and self.kernel is None else self.kernel
        search, sums = self._search(), self._is_fourier
        return Beginning(search, kernel, rows, self.standardizer_, run, _SEARCH, sums)

    def _make_basis(self, kernel: Kernel, rows: Rows, seed: int) -> tuple[Any, Kernel]:
        """Return the basis, and the kernel that it is of."""
        size = self._choose_basis(rows.n)
        basis: Any
        if self._is_fourier:
            frequencies = BASES.resolve("basis", self.basis).frequencies
            basis = RandomFourierBasis(kernel, seed_key(seed), size, frequencies)
        else:
            basis = grid_eigenfunctions(kernel, rows, self.standardizer_, size)
            kernel = basis.kernel
        return as_dtype(basis, self.dtype), kernel

    def _proof_rows(self, rows: Rows, seed: int) -> np.ndarray:
        """Return some standardised training inputs, at which an export proves itself."""
        chosen = np.sort(fixed_indices(seed, _PROOF, rows.n, _PROOF_ROWS))
        return self.standardizer_.transform_X(rows.take(chosen)[0], dtype=np.dtype(self.dtype))

    @property
    def _advice(self) -> str:
        return (
            "the bound may still rise, see history_: give more time (max_seconds) or iterations (family), or raise tol "
            f"(now {self.tol:g})."
        )

    # ------------------------------------------------------------ what a fit knows

    def sparsity(self) -> float:
        """Return the expected share of zeros among the weights of a posterior sample."""
        check_is_fitted(self, "posterior_")
        self._check_own("sparsity")
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
        self._check_own("the model in integers")
        Positive(integer=True)("num_samples", num_samples)
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
        OneOf("c", "npz")("format", format)
        model = self.to_integer(num_samples, random_state=random_state)
        if format == "c":
            write_header(model, path, name)
        else:
            model.write_npz(path)
        return model

    def _tile_rows(self) -> int:
        return _TILE_ROWS

    # ------------------------------------------------------------ files

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore_state(state, arrays)
        self.num_basis_ = self.posterior_.basis.num_basis
