"""Several fields of a Dataset on one grid: a model for each, independent of the others, behind one estimator.

Each field has its own gaps, hyperparameters and noise, and its model is to the bit that of a fit of it alone. One run
fits them: budget, checkpoint and interruption are common, compiled programs serve all whose grids have one size after
empty rows are left out, and factors that two fits begin with are decomposed once (`vastgp.linalg.kronecker.Known`).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import vastgp
from vastgp.data.archive import above, below
from vastgp.data.cf_attributes import of_file
from vastgp.data.grid_fields import called, fields_of, with_beside
from vastgp.estimators.arguments import seeds_from
from vastgp.estimators.fitted import FittedModel
from vastgp.estimators.serialise import decode_params, encode_params
from vastgp.fitting.history import History
from vastgp.fitting.run import Answer, Run
from vastgp.linalg.kronecker import Known
from vastgp.methods.grid.files import decode_coords, encode_coords, plain_attrs
from vastgp.methods.grid.fit import GridData

_SUFFIXES = ("_std", "_standard_error")


@dataclasses.dataclass(frozen=True)
class SeveralData:
    """Data of a fit of several fields, by name."""

    fields: dict[str, GridData]

    def describe(self) -> dict[str, Any]:
        """Return what makes these data others than others, for the fingerprint of a fit."""
        return {"fields": {name: data.describe() for name, data in self.fields.items()}}


def for_each_field(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of a model of one field, which gives xarray, one of several as well."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def of_either(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = self.__dict__.get("outputs_")
        if outputs is None:
            return method(self, *args, **kwargs)
        # by name, whichever way they were given
        _, *given = signature.bind(self, *args, **kwargs).arguments.items()
        each = _each(dict(given), outputs, method.__name__)
        found = {
            name: method(one, **own) for (name, one), own in zip(outputs.items(), each, strict=True)
        }
        return self._united(found)

    return of_either


def _each(given: dict[str, Any], outputs: Mapping[str, Any], method: str) -> list[dict[str, Any]]:
    """Return the arguments for every field: each model gets its own values of a Dataset, and draws of its own."""
    if method == "sample_y":
        # by one seed fields that are independent would go up and down together
        seeds = seeds_from(given.get("random_state", 0), len(outputs))
        return [given | {"random_state": seed} for seed in seeds]
    if method != "log_predictive_density":
        return [given] * len(outputs)
    dataset = given["data_array"]
    if not hasattr(dataset, "data_vars") or any(name not in dataset for name in outputs):
        raise ValueError(
            f"data_array must be a Dataset with the fields of the fit, {', '.join(map(repr, outputs))}; received "
            f"{type(dataset).__name__}. For one of them: model.outputs_[{next(iter(outputs))!r}]."
        )
    return [given | {"data_array": dataset[name]} for name in outputs]


class SeveralFields(FittedModel, abc.ABC):
    """What `vastgp.GridGP` does where it is given a Dataset.

    Attributes
    ----------
    outputs_ : dict
        The fitted model of each field.
    beside_ : Dataset
        Bounds of cells, grid mappings, cell measures.
    """

    outputs_: dict[str, Any]
    beside_: Any
    attrs_: dict[str, Any]

    def _open_several(
        self, dataset: Any, noise_std: Any, mask: Any, open_one: Callable[..., GridData]
    ) -> SeveralData:
        """Open every field by ``open_one(model, array, noise_std, mask)``, on a model of its own."""
        found = fields_of(dataset)
        _std_names(list(found.arrays), {*found.beside.variables, *dataset.coords}, called(dataset))
        errors = _errors_of(noise_std, found.arrays)
        self.outputs_ = {name: self._copy(False) for name in found.arrays}
        self.beside_, self.attrs_ = found.beside, found.attrs
        known, opened = Known(), {}
        for name, one in self.outputs_.items():
            try:
                data = open_one(one, found.arrays[name], errors.get(name), mask)
            except ValueError as error:
                text = str(error)
                said = text if text.startswith(repr(name)) else f"variable {name!r}: {text}"
                raise ValueError(said) from error
            opened[name] = dataclasses.replace(data, known=known)
        return SeveralData(opened)

    # ------------------------------------------------------------ fit

    def _settle(self, data: Any, run: Run) -> Answer:
        if not isinstance(data, SeveralData):
            return super()._settle(data, run)
        answers = {}
        for number, (name, one) in enumerate(self.outputs_.items()):
            part = run.part(name, share=1.0 / (len(self.outputs_) - number))
            part.histories, part.spent = {}, {}  # its own
            began = part.elapsed()
            answers[name] = one._settle(data.fields[name], part)
            one.history_.spent = part.spent
            one.fit_seconds_ = part.elapsed() - began
        self.history_ = History(phases={n: one.history_ for n, one in self.outputs_.items()})
        return _together(answers)

    def __sklearn_is_fitted__(self) -> bool:
        return "posterior_" in vars(self) or "outputs_" in vars(self)

    def __getattr__(self, name: str) -> Any:
        # what is known of one field's model (kernel_, noise_std_, ...) is, of several, known of each
        outputs = self.__dict__.get("outputs_")
        if outputs is None or not name.endswith("_") or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return {field: getattr(one, name) for field, one in outputs.items()}

    # ------------------------------------------------------------ predictions

    def _united(self, found: Mapping[str, Any]) -> Any:
        """Return one Dataset of what the models of the fields gave: mean and deviation, or one array."""
        import xarray as xr

        first = next(iter(self.outputs_.values()))
        others = {*self.beside_.variables, *first.template_.coords}
        stds = _std_names(list(found), others, "the Dataset")
        parts = {}
        for name, part in found.items():
            if isinstance(part, xr.DataArray):
                parts[name] = part.rename(name)
                continue
            parts[name] = part["mean"].rename(name)
            if "std" in part:
                parts[stds[name]] = part["std"].rename(stds[name])
                parts[name].attrs["ancillary_variables"] = stds[name]
        result = xr.Dataset(parts, attrs=of_file(self.attrs_))
        for part in parts.values():  # how times are written, which merging forgets
            for name in part.coords:
                result[name].encoding = dict(part[name].encoding)
        return with_beside(result, self.beside_)

    # ------------------------------------------------------------ files

    def _to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if "outputs_" not in vars(self):
            return super()._to_file()
        params, arrays = encode_params(self.get_params(deep=False))
        own_variables = list(self.beside_.data_vars)
        beside, of_beside = encode_coords(self.beside_.set_coords(own_variables))
        header: dict[str, Any] = {
            "kind": "model",
            "vastgp": vastgp.__version__,
            "estimator": type(self).__name__,
            "params": params,
            "fields": list(self.outputs_),
            "outputs": [],
            "beside": [beside, own_variables],
            "attrs": plain_attrs(self.attrs_),
            "fit_seconds": self.fit_seconds_,
        }
        found = above("params/", arrays) | above("beside/", of_beside)
        for number, one in enumerate(self.outputs_.values()):
            of_one, own = one._to_file()
            header["outputs"].append(of_one)
            found |= above(f"outputs/{number}/", own)
        return header, found

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        if "outputs" not in header:
            return super()._from_file(header, arrays)
        model = cls(**decode_params(header["params"], below("params/", arrays)))
        models = [
            cls._from_file(of_one, below(f"outputs/{number}/", arrays))
            for number, of_one in enumerate(header["outputs"])
        ]
        model.outputs_ = dict(zip(header["fields"], models, strict=True))
        beside, own_variables = header["beside"]
        decoded = decode_coords(beside, below("beside/", arrays))
        model.beside_ = decoded.reset_coords(own_variables)
        model.attrs_, model.fit_seconds_ = header["attrs"], header["fit_seconds"]
        model.history_ = History(phases={n: one.history_ for n, one in model.outputs_.items()})
        return model


def _std_names(names: list[str], others: set[Any], where: str) -> dict[str, str]:
    """Return what the deviations of every field are called, refused where all such names are taken."""
    taken = {*names, *others}
    found = {}
    for name in names:
        free = [f"{name}{end}" for end in _SUFFIXES if f"{name}{end}" not in taken]
        if not free:
            raise ValueError(
                f"{where} has variables {name + _SUFFIXES[0]!r} and {name + _SUFFIXES[1]!r}, and the predictions would "
                f"have deviations of {name!r} under one of these names. Rename one of them."
            )
        found[name] = free[0]
    return found


def _errors_of(noise_std: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known errors of every field that has some."""
    if noise_std is None:
        return {}
    names = list(getattr(noise_std, "data_vars", noise_std if isinstance(noise_std, dict) else ()))
    unknown = [name for name in names if name not in arrays]
    if not names or unknown:
        raise ValueError(
            f"noise_std of a Dataset must be a dictionary or a Dataset with the errors of its fields by name "
            f"({', '.join(map(repr, arrays))}); received "
            f"{'errors of ' + repr(unknown[0]) if unknown else type(noise_std).__name__}."
        )
    return {name: noise_std[name] for name in names}


def _together(answers: Mapping[str, Answer]) -> Answer:
    """Return what the fits of the fields come to: how they ended, each that did not converge by name."""
    open_ones = {name: answer for name, answer in answers.items() if not answer.converged}
    if not open_ones:
        return next(iter(answers.values()))
    return dataclasses.replace(
        next(iter(open_ones.values())),
        reason="; ".join(f"{name}: {answer.reason}" for name, answer in open_ones.items()),
    )
