"""Fitted models in files and pickles: what estimators of rows and of grids share."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import vastgp
from vastgp import _accelerator
from vastgp._precision import precision
from vastgp.data import write_archive
from vastgp.data.archive import above, below
from vastgp.estimators.serialise import decode_params, encode_params
from vastgp.fitting.history import History
from vastgp.kernels import from_spec, to_spec
from vastgp.likelihoods import from_spec as likelihood_from_spec
from vastgp.likelihoods import to_spec as likelihood_to_spec


def several_to_file(
    models: Iterable[Any], prefix: str
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Return the headers of models that one file holds, and their arrays, named by ``prefix`` and their number."""
    headers: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for number, one in enumerate(models):
        header, own = one._to_file()
        headers.append(header)
        arrays |= above(f"{prefix}{number}/", own)
    return headers, arrays


def several_from_file(
    read: Callable[[dict[str, Any], dict[str, np.ndarray]], Any],
    headers: Iterable[dict[str, Any]],
    arrays: dict[str, np.ndarray],
    prefix: str,
) -> list[Any]:
    """Return the models that `several_to_file` described, each by ``read(header, arrays)``."""
    return [
        read(header, below(f"{prefix}{number}/", arrays)) for number, header in enumerate(headers)
    ]


class SavedModel(BaseEstimator, abc.ABC):
    """A model that is written to a file of numbers, and pickled as plain arrays.

    A subclass names the class of its posterior, and what its file has beside it, or has ``_state()`` and
    ``_restore_state()`` of its own. It has ``_data_header()``, ``_data_arrays()`` and
    ``_restore_data()`` for what it remembers of the data, which comes first, and may add to the header of the file.

    Attributes
    ----------
    kernel_ : Kernel or None
        None where the method has none.
    likelihood_, posterior_, n_iter_, converged_, stop_reason_, history_, fit_seconds_
        As of every estimator.
    """

    dtype: Any
    kernel_: Any
    likelihood_: Any
    posterior_: Any
    history_: History
    n_iter_: int
    converged_: bool
    stop_reason_: str
    fit_seconds_: float

    @property
    def _arithmetic(self) -> Any:
        """Precision of the model's work in JAX."""
        return self.dtype

    # whether an accelerator is left out of the model's work, as its fit has found
    _on_host = False

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Work in the model's precision, where its work belongs."""
        with _accelerator.left_out(self._on_host), precision(self._arithmetic):
            yield

    # attributes, without their last underscore, that a file keeps beside the posterior
    _beside_posterior: ClassVar[tuple[str, ...]] = ()

    @property
    def _posterior_class(self) -> Any:
        """Return the class of the posterior; a subclass may have it as an attribute."""
        # what `dir` of scikit-learn's estimators, which asks for every attribute, takes for "there is none"
        raise AttributeError(f"{type(self).__name__} restores its posterior by itself.")

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state, arrays = self.posterior_.to_state()
        return state | {name: getattr(self, f"{name}_") for name in self._beside_posterior}, arrays

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Set ``posterior_`` from what `_state` returned."""
        self.__dict__ |= {f"{name}_": state[name] for name in self._beside_posterior}
        self.posterior_ = self._posterior_class.from_state(state, arrays)

    def _posterior_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the state of whatever posterior was kept."""
        return self._state()

    def _restore_posterior(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Set the posterior that `_posterior_state` described."""
        self._restore_state(state, arrays)

    @abc.abstractmethod
    def _data_header(self) -> dict[str, Any]:
        """Return what the model remembers of its data, as JSON-able data."""

    def _data_arrays(self) -> dict[str, np.ndarray]:
        """Return what of it are arrays."""
        return {}

    @abc.abstractmethod
    def _restore_data(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Set what these two returned, from the whole header and all arrays."""

    def _more_header(self) -> dict[str, Any]:
        """Return what a kind of estimator adds to the header of a file."""
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, whole or not at all; `vastgp.load` reads it.

        The file holds numbers and plain text (safetensors with a JSON header): no pickle, nothing that runs on loading.

        Parameters
        ----------
        path : str or path
            Replaced if it exists. ``.vastgp`` is the customary ending.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            When a constructor argument cannot be stored; the message says which and what to do.
        """
        write_archive(path, *self._to_file())

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return header and arrays of a file."""
        check_is_fitted(self, "posterior_")
        params, param_arrays = encode_params(self.get_params(deep=False))
        kernel, kernel_arrays = (None, {}) if self.kernel_ is None else to_spec(self.kernel_)
        state, state_arrays = self._posterior_state()
        header = {
            "kind": "model",
            "vastgp": vastgp.__version__,
            "estimator": type(self).__name__,
            "params": params,
            "kernel": kernel,
            "likelihood": likelihood_to_spec(self.likelihood_),
            "n_iter": self.n_iter_,
            "converged": self.converged_,
            "stop_reason": self.stop_reason_,
            "fit_seconds": self.fit_seconds_,
            "state": state,
        }
        arrays = (
            above("params/", param_arrays)
            | above("kernel/", kernel_arrays)
            | above("history/", self.history_.to_arrays())
            | above("state/", state_arrays)
            | self._data_arrays()
        )
        return header | self._data_header() | self._more_header(), arrays

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        """Return the model that `save` wrote."""
        model = cls(**decode_params(header["params"], below("params/", arrays)))
        model.kernel_ = None
        if header["kernel"] is not None:
            model.kernel_ = from_spec(header["kernel"], below("kernel/", arrays))
        model.likelihood_ = likelihood_from_spec(header["likelihood"])
        model.n_iter_, model.converged_ = header["n_iter"], header["converged"]
        model.stop_reason_, model.fit_seconds_ = header["stop_reason"], header["fit_seconds"]
        model.history_ = History.from_dict(below("history/", arrays))
        model._restore_data(header, arrays)
        with model._at_work():
            model._restore_posterior(header["state"], below("state/", arrays))
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle and copy keep: the posterior as plain arrays.

        Arrays of JAX lose their digits where they are loaded outside of ``precision("float64")``.
        """
        state = dict(super().__getstate__())
        if "posterior_" in state:
            state["posterior_"] = self._posterior_state()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "posterior_" in state:
            with self._at_work():
                self._restore_posterior(*state["posterior_"])
