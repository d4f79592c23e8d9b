"""What a fitted grid model gives: predictions, samples and densities as xarray, and its file."""

from __future__ import annotations

import abc
import math
import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import vastgp
from vastgp.data import write_archive
from vastgp.data.archive import above, below
from vastgp.data.grid import Coordinate, Group
from vastgp.data.grid_points import Target, make_target, training_target
from vastgp.estimators.arguments import check_choice, check_positive, seed_from
from vastgp.estimators.grid_files import decode_coords, encode_coords, plain_attrs
from vastgp.estimators.serialise import decode_params, encode_params
from vastgp.kernels import from_spec, to_spec
from vastgp.likelihoods import from_spec as likelihood_from_spec
from vastgp.likelihoods import to_spec as likelihood_to_spec
from vastgp.posteriors.grid import VARIANCES, GridPosterior
from vastgp.posteriors.grid_samples import grid_samples, point_samples
from vastgp.training.history import History

_NUMBERS = (
    "gap_share_", "log_evidence_", "log_evidence_unbiased_", "log_evidence_se_", "residual_",
    "n_iter_", "converged_", "fit_seconds_",
)  # fmt: skip


class GridPredictions(BaseEstimator, abc.ABC):
    """Predictions of `vastgp.GridGP`, which fits."""

    variance: Any
    solver_: str
    stop_reason_: str
    groups_: tuple[Group, ...]
    dims_: tuple[str, ...]
    template_: Any
    name_: Any
    attrs_: dict[str, Any]
    value_mean_: np.ndarray
    value_scale_: np.ndarray
    posterior_: GridPosterior
    kernel_: Any
    likelihood_: Any
    history_: History

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle and copy keep: the posterior as plain arrays, in all their digits."""
        state = dict(super().__getstate__())
        if "posterior_" in state:
            state["posterior_"] = self.posterior_.to_state()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "posterior_" in state:
            self.posterior_ = GridPosterior.from_state(*state["posterior_"])

    @property
    def noise_std_(self) -> Any:
        """Standard deviation of the noise, in units of the values: one for each output where there are several."""
        each = self.posterior_.noise_variance**0.5 * np.ravel(self.value_scale_)
        return each if len(each) > 1 else float(each[0])

    # ------------------------------------------------------------ predictions

    def predict(self, coords: Any = None, return_std: Any = True, variance: Any = None) -> Any:
        """Predict on the grid of the fit, on a new grid or at scattered points.

        Parameters
        ----------
        coords : mapping, xarray object or data frame, optional
            Without it the grid of the fit. ``{"time": new_times}`` is a new grid: names that are left out keep the
            coordinates of the fit, and coordinates may lie past the last one. DataArrays along one dimension of
            another name, or the columns of a data frame, are scattered points.
        return_std : bool or "latent", default True
            With True, also the standard deviation of a new *observation*: function and noise. With ``"latent"``, that
            of the function alone.
        variance : {"auto", "exact", "samples", "low-rank"}, optional
            How it is computed; by default as the constructor says. ``"exact"``: a solve for every point.
            ``"samples"``: exact but for what the gaps add, an unbiased average over ``num_samples`` solves for all
            points together, with a relative standard error of at most ``sqrt(2 / num_samples)`` of the variance.
            ``"low-rank"``: no solve, the largest 1000 eigenvalues. ``"auto"``: exact for up to 256 points,
            samples beyond. Without gaps all are exact at no cost.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``std``, with the dimensions, coordinates and attributes of the data.
        """
        check_is_fitted(self, "posterior_")
        if not (return_std is True or return_std is False or return_std == "latent"):
            raise ValueError(
                f"return_std must be False, True (observations) or 'latent' (the function), received {return_std!r}."
            )
        method = self.variance if variance is None else variance
        check_choice("variance", method, VARIANCES)
        target = self._target(coords)
        posterior = self.posterior_
        mean = (posterior.point_mean if target.scattered else posterior.mean)(target.points)
        shift, scale = self._units(target)
        fields = {"mean": np.asarray(mean, np.float64) * scale + shift}
        if return_std is not False:
            by = posterior.point_variance if target.scattered else posterior.variance
            spread = by(target.points, method)
            if return_std is True:
                spread = spread + posterior.noise_variance
            fields["std"] = np.sqrt(spread) * scale
        return self._dataset(target, fields)

    def sample_y(self, coords: Any = None, n_samples: Any = 1, random_state: Any = 0) -> Any:
        """Draw joint samples of the function from the posterior, by Matheron's rule: one solve a sample.

        Parameters
        ----------
        coords
            As in `predict`.
        n_samples : int, default 1
        random_state : int, RandomState or None, default 0
            The same integer gives the same samples.

        Returns
        -------
        xarray.DataArray
            With a first dimension ``sample``. Without the noise of observations, as elsewhere.
        """
        check_is_fitted(self, "posterior_")
        check_positive("n_samples", n_samples, integer=True)
        target, seed = self._target(coords), seed_from(random_state)
        posterior = self.posterior_
        draw = point_samples if target.scattered else grid_samples
        shift, scale = self._units(target)
        samples = draw(posterior, target.points, int(n_samples), seed) * scale + shift
        import xarray as xr

        result = xr.DataArray(
            samples.reshape(len(samples), *target.sizes),
            dims=("sample", *target.dims),
            coords=target.coords,
            name=self.name_,
            attrs=self.attrs_,
        )
        return result.transpose("sample", *self._order(target))

    def log_predictive_density(self, data_array: Any) -> Any:
        """Return ``log p(y | training data)`` of every value of an array, NaN where it has none.

        Parameters
        ----------
        data_array : xarray.DataArray
            Values at the points of a grid: that of the fit or another one.

        Returns
        -------
        xarray.DataArray
            In nats; a density per unit of the values. Minus its mean is the NLPD.
        """
        same = dict(data_array.sizes) == dict(self.template_.sizes) and all(
            data_array.coords[name].equals(self.template_.coords[name])
            for name in self.template_.coords
            if name in data_array.coords
        )
        predicted = self.predict(None if same else data_array)
        error = (data_array - predicted["mean"]) / predicted["std"]
        density = -0.5 * (error**2 + math.log(2.0 * math.pi)) - np.log(predicted["std"])
        return density.transpose(*data_array.dims)

    # ------------------------------------------------------------ pieces

    def _target(self, coords: Any) -> Target:
        if coords is None:
            return training_target(self.groups_, self.template_)
        return make_target(coords, self.groups_, self.template_)

    def _units(self, target: Target) -> tuple[Any, Any]:
        """Return mean and scale of the values at every point: those of its output, where there are several."""
        shifts, scales = np.ravel(self.value_mean_), np.ravel(self.value_scale_)
        if len(scales) == 1:
            return float(shifts[0]), float(scales[0])
        (position,) = [i for i, group in enumerate(self.groups_) if group.is_labels]
        output = target.points[position][:, 0].astype(int)
        if not target.scattered:
            lengths = [len(points) for points in target.points]
            inner = int(np.prod(lengths[position + 1 :]))
            output = np.tile(output.repeat(inner), int(np.prod(lengths[:position])))
        return shifts[output], scales[output]

    def _order(self, target: Target) -> list[str]:
        known = [dim for dim in self.dims_ if dim in target.dims]
        return [dim for dim in target.dims if dim not in known] + known

    def _dataset(self, target: Target, fields: dict[str, np.ndarray]) -> Any:
        import xarray as xr

        dataset = xr.Dataset(
            {
                name: (target.dims, values.reshape(target.sizes), dict(self.attrs_))
                for name, values in fields.items()
            },
            coords=target.coords,
            attrs=dict(self.attrs_),
        )
        return dataset.transpose(*self._order(target))

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, whole or not at all; `vastgp.load` reads it.

        The file holds numbers and plain text (safetensors with a JSON header): no pickle, nothing that runs on loading.

        Parameters
        ----------
        path : str or path
        """
        check_is_fitted(self, "posterior_")
        params, param_arrays = encode_params(self.get_params(deep=False))
        kernel, kernel_arrays = to_spec(self.kernel_)
        state, state_arrays = self.posterior_.to_state()
        coords, coord_arrays = encode_coords(self.template_)
        header = {
            "kind": "model",
            "vastgp": vastgp.__version__,
            "estimator": type(self).__name__,
            "params": params,
            "kernel": kernel,
            "likelihood": likelihood_to_spec(self.likelihood_),
            "solver": self.solver_,
            "stop_reason": self.stop_reason_,
            "numbers": {name: getattr(self, name) for name in _NUMBERS},
            "groups": [_describe(group) for group in self.groups_],
            "dims": list(self.dims_),
            "name": None if self.name_ is None else str(self.name_),
            "attrs": plain_attrs(self.attrs_),
            "coords": coords,
            "state": state,
        }
        scaling = {"mean": self.value_mean_, "scale": self.value_scale_}
        write_archive(
            path,
            header,
            above("params/", param_arrays)
            | above("kernel/", kernel_arrays)
            | above("history/", self.history_.to_arrays())
            | above("scaling/", scaling)
            | above("coords/", coord_arrays)
            | above("state/", state_arrays),
        )

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        """Return the model that `save` wrote."""
        model = cls(**decode_params(header["params"], below("params/", arrays)))
        model.kernel_ = from_spec(header["kernel"], below("kernel/", arrays))
        model.likelihood_ = likelihood_from_spec(header["likelihood"])
        model.history_ = History.from_dict(below("history/", arrays))
        model.solver_, model.stop_reason_ = header["solver"], header["stop_reason"]
        for name, value in header["numbers"].items():
            setattr(model, name, value)
        model.template_ = decode_coords(header["coords"], below("coords/", arrays))
        model.dims_, model.name_ = tuple(header["dims"]), header["name"]
        model.attrs_ = header["attrs"]
        scaling = below("scaling/", arrays)
        model.value_mean_, model.value_scale_ = scaling["mean"], scaling["scale"]
        model.posterior_ = GridPosterior.from_state(header["state"], below("state/", arrays))
        model.groups_ = tuple(
            _restore(entry, model.template_, points)
            for entry, points in zip(header["groups"], model.posterior_.axes, strict=True)
        )
        return model


def _describe(group: Group) -> dict[str, Any]:
    return {
        "dims": list(group.dims),
        "sizes": list(group.sizes),
        "coordinates": [
            {"name": c.name, "kind": c.kind, "unit": c.unit} for c in group.coordinates
        ],
    }


def _restore(entry: dict[str, Any], template: Any, points: np.ndarray) -> Group:
    dims, sizes = tuple(entry["dims"]), tuple(entry["sizes"])
    coordinates = []
    for described in entry["coordinates"]:
        name, kind = described["name"], described["kind"]
        # a dimension without coordinates counts from 0
        size = sizes[dims.index(name)] if name in dims else sizes[0]
        values = template.coords[name].values if name in template.coords else np.arange(size)
        origin = 0 if kind == "label" else values[0]
        coordinates.append(Coordinate(name, kind, values, origin, described["unit"]))
    return Group(tuple(coordinates), dims, sizes, points)
