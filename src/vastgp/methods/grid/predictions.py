"""What a fitted grid model gives: predictions, samples and densities as xarray, and its file."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import Positive
from vastgp.data.archive import above, below
from vastgp.data.cf_attributes import of_file, of_mean, of_std
from vastgp.data.grid import Group, check_array
from vastgp.data.grid_mask import without_masked
from vastgp.data.grid_points import Target, make_target, refuse_taken, training_target
from vastgp.estimators.arguments import seed_from
from vastgp.methods.grid.averaged import AveragedGridPosterior, posterior_from_state
from vastgp.methods.grid.files import (
    decode_coords,
    decode_mask,
    describe_group,
    encode_coords,
    plain_attrs,
    restore_group,
)
from vastgp.methods.grid.kilometres import lengthscales_in_km
from vastgp.methods.grid.options import VARIANCES
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.samples import joint_samples
from vastgp.methods.grid.several import SeveralFields, for_each_field

_NUMBERS = (
    "gap_share_", "log_evidence_", "log_evidence_unbiased_", "log_evidence_se_", "residual_",
)  # fmt: skip
_UNITS = ("units", "calendar")
# What predictions of one field are called.
PREDICTED = ("mean", "std")


class GridPredictions(SeveralFields, abc.ABC):
    """Predictions of `vastgp.GridGP`, which fits."""

    solver_: str
    groups_: tuple[Group, ...]
    dims_: tuple[str, ...]
    template_: Any
    name_: Any
    attrs_: dict[str, Any]
    mask_: Any
    value_mean_: np.ndarray
    value_scale_: np.ndarray
    posterior_: GridPosterior | AveragedGridPosterior

    @property
    def noise_std_(self) -> Any:
        """Standard deviation of the noise, in units of the values: one for each output where there are several."""
        each = self.posterior_.noise_variance**0.5 * np.ravel(self.value_scale_)
        return each if len(each) > 1 else float(each[0])

    @property
    def lengthscales_km_(self) -> dict[str, float]:
        """Lengthscales along latitude and longitude in kilometres, by name, longitude's at the mean latitude."""
        return lengthscales_in_km(self.kernel_, self.groups_, self.template_)

    # ------------------------------------------------------------ predictions

    @for_each_field
    def predict(self, coords: Any = None, return_std: Any = True, variance: Any = "auto") -> Any:
        """Predict on the grid of the fit, on a new grid or at scattered points.

        Parameters
        ----------
        coords : mapping, xarray object or data frame, optional
            Without it the grid of the fit. ``{"time": new_times}`` is a new grid: names that are left out keep the
            coordinates of the fit, and coordinates may lie past the last one. As in xarray, lists run along dimensions
            of their own (``{"lat": [40, 41], "lon": [250, 251]}`` is a map of four points), while DataArrays that
            share a dimension, the coordinates of a Dataset and the columns of a data frame are scattered points.
        return_std : bool or "latent", default True
            With True, also the standard deviation of a new *observation*: function and noise. With ``"latent"``, that
            of the function alone.
        variance : {"auto", "exact", "samples", "low-rank"} or VarianceSamples, default "auto"
            How it is computed. ``"exact"``: a solve for every point. ``"samples"``: exact but for what the gaps add,
            an unbiased average over 64 solves for all points together (`vastgp.options.VarianceSamples` says how
            many), with a relative standard error of at most ``sqrt(2 / num_samples)`` of the variance.
            ``"low-rank"``: no solve, the largest 1000 eigenvalues. ``"auto"``: exact for up to 256 points, samples
            beyond. Without gaps all are exact at no cost.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``std``, with the dimensions, coordinates and attributes of the data (by the conventions CF
            1.11). Of a Dataset each field under its name, and its deviations as ``NAME_std``, or
            ``NAME_standard_error`` where that is the name of another variable; bounds and grid mappings too.
        """
        check_is_fitted(self, "posterior_")
        if not (return_std is True or return_std is False or return_std == "latent"):
            raise ValueError(
                f"return_std must be False, True (observations) or 'latent' (the function), received {return_std!r}."
            )
        VARIANCES("variance", variance)
        return self._predicted(self.posterior_, self._target(coords), return_std, variance)

    def _predicted(self, posterior: Any, target: Target, return_std: Any, variance: Any) -> Any:
        """Return the Dataset of `predict` by a posterior: that of the fit, or one of its parts."""
        shift, scale = self._units(target)
        if return_std is False:
            mean = np.asarray(posterior.mean(target.points, target.scattered), np.float64)
            return self._dataset(target, {"mean": mean * scale + shift})
        mean, spread = posterior.mean_and_variance(target.points, variance, target.scattered)
        if return_std is True:
            spread = spread + posterior.noise_variance
        fields = {"mean": mean * scale + shift, "std": np.sqrt(spread) * scale}
        return self._dataset(target, fields)

    @for_each_field
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
            With a first dimension ``sample``. Without the noise of observations, as elsewhere. Of several
            fields a Dataset.
        """
        check_is_fitted(self, "posterior_")
        Positive(integer=True)("n_samples", n_samples)
        target, seed = self._target(coords, taken=("sample",)), seed_from(random_state)
        posterior = self.posterior_
        shift, scale = self._units(target)
        draws = joint_samples(posterior, target.points, int(n_samples), seed, target.scattered)
        samples = draws * scale + shift
        import xarray as xr

        result = xr.DataArray(
            samples.reshape(len(samples), *target.sizes),
            dims=("sample", *target.dims),
            coords=target.coords,
            name=self.name_,
            attrs=of_mean(self.attrs_, None),
        )
        result = without_masked(result, self.mask_, self.groups_, target)
        return result.expand_dims(self._single()).transpose("sample", *self._order(target))

    @for_each_field
    def log_predictive_density(self, data_array: Any, variance: Any = "auto") -> Any:
        """Return ``log p(y | training data)`` of every value of an array, NaN where it has none.

        Parameters
        ----------
        data_array : xarray.DataArray
            Values at the points of a grid: that of the fit or another one. Of several fields a Dataset.
        variance
            As in `predict`.

        Returns
        -------
        xarray.DataArray
            In nats; a density per unit of the values. Minus its mean is the NLPD. Of several fields a Dataset.
        """
        check_is_fitted(self, "posterior_")
        check_array(data_array)
        data_array, given = self._squeezed(data_array), data_array
        VARIANCES("variance", variance)
        target = self._target(None if self._is_of_fit(data_array) else data_array)
        total: Any = None
        for weight, part in zip(self.posterior_.mixture, self.posterior_.parts, strict=True):
            predicted = self._predicted(part, target, True, variance)
            error = (given - predicted["mean"]) / predicted["std"]
            density = -0.5 * (error**2 + math.log(2.0 * math.pi)) - np.log(predicted["std"])
            density = density + math.log(weight)
            total = density if total is None else np.logaddexp(total, density)
        return total.transpose(*given.dims)

    # ------------------------------------------------------------ pieces

    def _target(self, coords: Any, taken: Sequence[str] = PREDICTED) -> Target:
        if coords is None:
            target = training_target(self.groups_, self.template_)
        else:
            target = make_target(self._squeezed(coords), self.groups_, self.template_)
        named = target.coords if taken is PREDICTED else ()
        refuse_taken(target.dims, named, taken, "what is asked for")
        return target

    def _is_of_fit(self, array: Any) -> bool:
        """Whether an array has the coordinates of the fit, in the same units where it says of which they are."""
        coords = self.template_.coords
        pairs = [(array.coords[name], coords[name]) for name in coords if name in array.coords]
        return dict(array.sizes) == dict(self.template_.sizes) and all(
            theirs.equals(ours)
            and all(
                theirs.attrs.get(key, ours.attrs.get(key)) == ours.attrs.get(key) for key in _UNITS
            )
            for theirs, ours in pairs
        )

    def _single(self) -> list[str]:
        """Return the dimensions of one point, which no group of the kernel has."""
        return [dim for dim in self.dims_ if all(dim not in group.dims for group in self.groups_)]

    def _squeezed(self, coords: Any) -> Any:
        """Return an xarray object without those dimensions, as the fit had its array."""
        single = [dim for dim in self._single() if getattr(coords, "sizes", {}).get(dim) == 1]
        return coords.squeeze(single) if single and hasattr(coords, "squeeze") else coords

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
        dims = [*target.dims, *self._single()]
        known = [dim for dim in self.dims_ if dim in dims]
        return [dim for dim in dims if dim not in known] + known

    def _dataset(self, target: Target, fields: dict[str, np.ndarray]) -> Any:
        import xarray as xr

        std = "std" if "std" in fields else None
        attrs = {"mean": of_mean(self.attrs_, std), "std": of_std(self.attrs_, self.name_)}
        dataset = xr.Dataset(
            {
                name: (target.dims, values.reshape(target.sizes), attrs[name])
                for name, values in fields.items()
            },
            coords=target.coords,
            attrs=of_file(self.attrs_),
        )
        dataset = without_masked(dataset, self.mask_, self.groups_, target)
        return dataset.expand_dims(self._single()).transpose(*self._order(target))

    # ------------------------------------------------------------ files

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return self.posterior_.to_state()

    def _restore_state(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.posterior_ = posterior_from_state(state, arrays)

    def _data_header(self) -> dict[str, Any]:
        coords, _ = encode_coords(self.template_)
        return {
            "solver": self.solver_,
            "numbers": {name: getattr(self, name) for name in _NUMBERS},
            "groups": [describe_group(group) for group in self.groups_],
            "dims": list(self.dims_),
            "name": None if self.name_ is None else str(self.name_),
            "attrs": plain_attrs(self.attrs_),
            "mask": None if self.mask_ is None else list(self.mask_.dims),
            "coords": coords,
        }

    def _data_arrays(self) -> dict[str, np.ndarray]:
        _, arrays = encode_coords(self.template_)
        points = {f"points.{i}": group.points for i, group in enumerate(self.groups_)}
        scaling = {"mean": self.value_mean_, "scale": self.value_scale_}
        mask = {} if self.mask_ is None else {"mask": np.asarray(self.mask_.values)}
        found = above("scaling/", scaling) | above("coords/", arrays) | above("groups/", points)
        return found | mask

    def _restore_data(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.solver_ = header["solver"]
        for name, value in header["numbers"].items():
            setattr(self, name, value)
        self.template_ = decode_coords(header["coords"], below("coords/", arrays))
        self.dims_, self.name_ = tuple(header["dims"]), header["name"]
        self.attrs_ = header["attrs"]
        self.mask_ = decode_mask(header.get("mask"), arrays.get("mask"), self.template_)
        scaling, points = below("scaling/", arrays), below("groups/", arrays)
        self.value_mean_, self.value_scale_ = scaling["mean"], scaling["scale"]
        self.groups_ = tuple(
            restore_group(entry, self.template_, points[f"points.{i}"])
            for i, entry in enumerate(header["groups"])
        )
