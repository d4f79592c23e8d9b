"""A sum of random Fourier features with discrete weights, evaluated in integers alone.

Section 7.3.1 of Evans (2022) leaves open how features and samples become integers. Here:

- inputs are fixed-point numbers of the standardised inputs, 16 bits;
- an angle is a fraction of a turn in 32 bits, whose products and sums wrap around as angles do: no range reduction;
- sine and cosine are a table of 1024 steps with linear interpolation, 16 bits;
- a weight is a four-bit index into at most 16 small integers, times a 16-bit amplitude of its feature;
- every posterior sample is such a function, of which mean and variance are taken, in 64 bits where sums need them.

`IntegerModel.predict_integers` and the C program of `integer_header` do the same operations in the same order and agree
to the bit: each is defined for integers of the width used, shifts and divisions round down.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from vastgp.bases import RandomFourierBasis
from vastgp.data.whole_files import written_whole
from vastgp.methods.direct.posterior import DiscretePosterior

# Fractional bits of inputs (sixteen bits: up to 16 standard deviations) and of outputs (per scale of the target).
INPUT_BITS, OUTPUT_BITS = 11, 14
TABLE_BITS = 10
# Bits of the multiplier that brings sums to the unit of outputs.
_MULTIPLIER_BITS = 22
_MOST_LEVEL, _MOST_VALUES, _MOST_SHIFT = 127, 16, 62
# Integers are this model where mean and deviation of an observation differ by less than this part of the deviation and
# this part of the target's own, root mean squares over rows. Rounding alone stays below a tenth of that.
_PART_OF_STD, _PART_OF_TARGET = 0.1, 0.01
_FORMAT = 1


@dataclass(frozen=True)
class IntegerModel:
    """Tables of integers, and the numbers that give them units.

    Attributes
    ----------
    frequencies : int16 array of shape (P, d)
        Turns per unit of input, shifted left by ``frequency_shift``.
    amplitudes : uint16 array of shape (C, b)
        Of each feature: cosine and sine of each pair in turn, for each of C functions.
    levels : int8 array of shape (k,)
        What a code stands for.
    codes : uint8 array of shape (C, b, S / 2)
        Samples of the weights, two in a byte, the first one in the lower half.
    multipliers, shifts : int64 array of shape (C,)
        An output is ``sum * multiplier / 2^shift``.
    noise : int64
        Variance of the noise, in squared units of outputs.
    input_mean, input_scale : float64 array of shape (d,)
    output_mean, output_step : float
        Value of output zero and of one unit, in the target's unit.
    frequency_shift : int
    is_classifier : bool
    """

    frequencies: np.ndarray
    amplitudes: np.ndarray
    levels: np.ndarray
    codes: np.ndarray
    multipliers: np.ndarray
    shifts: np.ndarray
    noise: int
    input_mean: np.ndarray
    input_scale: np.ndarray
    output_mean: float
    output_step: float
    frequency_shift: int
    is_classifier: bool = False

    @property
    def num_samples(self) -> int:
        """Posterior samples S."""
        return 2 * int(self.codes.shape[2])

    @property
    def num_bytes(self) -> int:
        """Bytes of all tables of integers, that of sines included."""
        tables = (self.frequencies, self.amplitudes, self.levels, self.codes, sine_table())
        return int(sum(table.nbytes for table in tables))

    # ------------------------------------------------------------ prediction

    def quantise(self, X: Any) -> np.ndarray:
        """Return inputs in the units of the data as 16-bit fixed-point numbers; far ones are clipped."""
        raw = np.asarray(X, np.float64)
        if raw.ndim != 2 or raw.shape[1] != len(self.input_mean) or np.any(np.isnan(raw)):
            raise ValueError(
                f"X must have shape (n, {len(self.input_mean)}) and hold no NaN, received shape {raw.shape}."
            )
        scaled = (raw - self.input_mean) / self.input_scale
        codes = np.floor(scaled * 2.0**INPUT_BITS + 0.5)
        return np.clip(codes, -32767, 32767).astype(np.int16)

    def predict_integers(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of an observation in integer units, (n, C) int64 each, in integer arithmetic."""
        # Sums of products of integers in float64 are exact below 2^53, and faster than NumPy's of integers.
        turns = codes.astype(np.float64) @ self.frequencies.astype(np.float64).T
        phase = (turns.astype(np.int64) << self.frequency_shift) & 0xFFFFFFFF
        waves = np.stack([_sine((phase + (1 << 30)) & 0xFFFFFFFF), _sine(phase)], axis=2)
        waves = waves.reshape(len(codes), -1)
        means, variances = [], []
        for which in range(len(self.codes)):
            features = (waves * self.amplitudes[which].astype(np.int64)) >> 15
            weights = self.levels.astype(np.float64)[self._unpacked(which)]
            sums = (features.astype(np.float64) @ weights).astype(np.int64)
            shift = int(self.shifts[which])
            values = (sums * self.multipliers[which] + (1 << (shift - 1))) >> shift
            mean = (np.sum(values, axis=1) + self.num_samples // 2) // self.num_samples
            spread = np.sum((values - mean[:, None]) ** 2, axis=1) // (self.num_samples - 1)
            means.append(mean)
            variances.append(spread + self.noise)
        return np.stack(means, axis=1), np.stack(variances, axis=1)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict in the units of the data, from the integers of `predict_integers`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default False
            Also the standard deviation of an observation (of the function, for classes).

        Returns
        -------
        mean, std : ndarray of shape (n,), or (n, C) of several functions
        """
        mean, variance = self.predict_integers(self.quantise(X))
        value = self.output_mean + self.output_step * mean
        std = self.output_step * np.sqrt(variance)
        if mean.shape[1] == 1:
            value, std = value[:, 0], std[:, 0]
        return (value, std) if return_std else value

    def _unpacked(self, which: int) -> np.ndarray:
        packed = self.codes[which]
        return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)

    # ------------------------------------------------------------ files

    def write_npz(self, path: str | os.PathLike[str]) -> None:
        """Write all tables to an ``.npz`` file (no pickle)."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        # to an open file: NumPy would add an ending to a name that has another
        with written_whole(path) as partial, partial.open("wb") as out:
            np.savez(out, format=_FORMAT, **content)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> IntegerModel:
        """Return the model that ``export(path, format="npz")`` wrote.

        Raises
        ------
        ValueError
            When the file holds something else.
        """
        with np.load(Path(path).expanduser(), allow_pickle=False) as stored:
            names = {field.name for field in fields(cls)}
            if "format" not in stored.files or not names <= set(stored.files):
                raise ValueError(
                    f"{os.fspath(path)!r} is no integer model. Give a file written by model.export(path, format='npz')."
                )
            if int(stored["format"]) > _FORMAT:
                raise ValueError(
                    f"{os.fspath(path)!r} has format {int(stored['format'])}, and this vastgp reads up to {_FORMAT}."
                )
            read = {name: stored[name] for name in names}
        plain = {name: value if value.ndim else value.item() for name, value in read.items()}
        return cls(**plain)


def sine_table() -> np.ndarray:
    """Return one turn of the sine, and its first entry again at the end, int16 of shape (1025,)."""
    steps = 1 << TABLE_BITS
    return np.round(32767.0 * np.sin(2.0 * np.pi * np.arange(steps + 1) / steps)).astype(np.int16)


def _sine(phase: np.ndarray) -> np.ndarray:
    """Return ``32767 sin`` of fractions of a turn in 32 bits, interpolated, int64."""
    table = sine_table().astype(np.int64)
    index = phase >> (32 - TABLE_BITS)
    rest = (phase >> (16 - TABLE_BITS)) & 0xFFFF
    return table[index] + (((table[index + 1] - table[index]) * rest) >> 16)


def integer_model(
    posterior: DiscretePosterior,
    standardizer: Any,
    noise_variance: float,
    *,
    num_samples: int,
    seed: int,
    dtype: str,
    is_classifier: bool = False,
) -> IntegerModel:
    """Return the integer form of a posterior.

    Parameters
    ----------
    posterior : DiscretePosterior
    standardizer : Standardizer
    noise_variance : float
        Of the standardised target; zero for classes.
    num_samples : int
        Even.
    seed : int
        Of the samples, which are stratified.
    dtype : {"float32", "float64"}
        In which the basis was used: other frequencies are drawn in the other one.

    Raises
    ------
    ValueError
        When weights have more than sixteen values, the basis is not made of Fourier features, or the integers are not
        what the samples are in floating point numbers, at training rows.
    """
    if not isinstance(posterior.basis, RandomFourierBasis):
        raise ValueError(
            f"only random Fourier features can be exported, and the basis is a {type(posterior.basis).__name__}."
        )
    if posterior.values.shape[-1] > _MOST_VALUES:
        raise ValueError(
            f"support has {posterior.values.shape[-1]} values, and four bits hold {_MOST_VALUES}. Fit with support=15, "
            "for example."
        )
    basis, d = posterior.basis, len(standardizer.x_mean)
    frequencies, scales = basis.spectrum(jnp.arange(basis.num_pairs), d, jnp.dtype(dtype))
    turns = np.asarray(frequencies, np.float64) / (2.0 * np.pi) * 2.0 ** (32 - INPUT_BITS)
    shift = max(0, int(np.ceil(np.log2(max(np.abs(turns).max(), 1.0) / 32767.0))))
    levels, units = _levels(posterior.values.reshape(-1, *posterior.values.shape[-2:]))
    drawn = posterior.codes(num_samples, seed, stratified=True)
    drawn = drawn.reshape(-1, *drawn.shape[-2:]).astype(np.uint8)
    # a weight that is zero in all samples needs no amplitude, however far apart its values are
    used = np.any(levels[drawn] != 0, axis=1)
    sizes = units * np.repeat(np.asarray(scales, np.float64), 2) * used
    largest = sizes.max(axis=1)
    largest[largest == 0.0] = 1.0
    # one unit of a sum: amplitude 2^-15 (rounded against 32767) and sine 1 / 32767
    unit = largest / 32767.0 * 2.0**15 / 32767.0 * 2.0**OUTPUT_BITS
    shifts = _MULTIPLIER_BITS - np.ceil(np.log2(unit)).astype(np.int64)
    shifts = np.clip(shifts, 1, _MOST_SHIFT)
    made = IntegerModel(
        np.round(turns / 2.0**shift).astype(np.int16),
        np.round(32767.0 * sizes / largest[:, None]).astype(np.uint16),
        levels,
        np.swapaxes(drawn[:, 0::2] | (drawn[:, 1::2] << 4), 1, 2),
        np.round(unit * 2.0**shifts).astype(np.int64),
        shifts,
        round(noise_variance * 4.0**OUTPUT_BITS),
        np.asarray(standardizer.x_mean, np.float64),
        np.asarray(standardizer.x_scale, np.float64),
        float(standardizer.y_mean),
        float(standardizer.y_scale) * 2.0**-OUTPUT_BITS,
        shift,
        is_classifier,
    )
    weights = posterior.sample_weights(num_samples, seed, stratified=True)
    with np.errstate(over="ignore"):
        _prove(
            made, posterior, weights.reshape(-1, *weights.shape[-2:]), standardizer, noise_variance
        )
    return made


def _prove(
    made: IntegerModel,
    posterior: DiscretePosterior,
    weights: np.ndarray,
    standardizer: Any,
    noise_variance: float,
) -> None:
    """Raise ValueError where the integers do not predict what the same samples do in floating point numbers."""
    rows = posterior.rows
    samples = weights @ posterior.features(rows).T
    mean, variance = made.predict_integers(
        made.quantise(rows * standardizer.x_scale + standardizer.x_mean)
    )
    right = np.sqrt(np.var(samples, axis=1, ddof=1) + noise_variance).T
    off = np.stack(
        [
            mean * 2.0**-OUTPUT_BITS - np.mean(samples, axis=1).T,
            np.sqrt(np.maximum(variance, 0)) * 2.0**-OUTPUT_BITS - right,
        ]
    )
    wrong, std = np.sqrt(np.mean(off**2, axis=1)), np.sqrt(np.mean(right**2, axis=0))
    if np.any(wrong > _PART_OF_STD * std + _PART_OF_TARGET):
        raise ValueError(
            f"the integers are not this model: at {len(rows)} training rows their means are off by "
            f"{wrong[0].max():.2g} and their standard deviations by {wrong[1].max():.2g}, in deviations of the target. "
            "Inputs beyond 16 standard deviations do not fit into 16 bits: transform skewed ones first; or fit with "
            "support=Support(learn=False), whose weights are alike."
        )


def _levels(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return integers (k,) and the unit of each weight (C, b) with ``values = unit * integers``, as nearly as can be.

    All weights have the same values up to a factor. Evenly spaced ones and powers of two are such integers exactly;
    others are rounded to 127 steps of the largest.
    """
    base = values[0, 0] / np.abs(values[0, 0]).max()
    factors = np.abs(values).max(axis=-1)
    gaps = np.abs(base)[np.abs(base) > 1e-12]
    steps = np.concatenate([np.diff(base), 0.5 * np.diff(base), gaps])
    for step in np.sort(np.abs(steps))[::-1]:
        whole = base / step
        exact = np.allclose(whole, np.round(whole), atol=1e-6)
        if exact and np.abs(whole).max() <= _MOST_LEVEL + 0.5:
            return np.round(whole).astype(np.int8), factors * step
    return np.round(base * _MOST_LEVEL).astype(np.int8), factors / _MOST_LEVEL
