"""An integer model as one C99 header without dependencies."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from vastgp.data.whole_files import written_whole
from vastgp.methods.direct.integer_model import INPUT_BITS, TABLE_BITS, IntegerModel, sine_table

# Beyond, sums of products need 64 bits.
_MOST_SUM = 2**31 - 1

_PROGRAM = """
/* Largest integer not above value / 2^bits. */
static inline int64_t @_floor_shift(int64_t value, int bits) {
    return value >= 0 ? value >> bits : -((-value + (((int64_t)1 << bits) - 1)) >> bits);
}

/* Largest integer not above value / count, count positive. */
static inline int64_t @_floor_divide(int64_t value, int64_t count) {
    return value >= 0 ? value / count : -((-value + count - 1) / count);
}

/* 32767 sin of a fraction of a turn in 32 bits. */
static inline int32_t @_sine(uint32_t phase) {
    const uint32_t index = phase >> (32 - %TABLE_BITS%);
    const int32_t rest = (int32_t)((phase >> (16 - %TABLE_BITS%)) & 0xFFFFu);
    const int32_t low = @_sines[index];
    return low + (int32_t)@_floor_shift((int64_t)(@_sines[index + 1] - low) * rest, 16);
}

/* Mean and variance of an observation in integer units, of each of @_OUTPUTS functions.
 *
 * x: @_INPUTS fixed-point numbers, ((raw - mean) / scale) * 2^@_INPUT_BITS rounded to the nearest.
 * A mean of m is @_OUTPUT_MEAN + @_OUTPUT_STEP * m in the unit of the target, a variance of v is
 * @_OUTPUT_STEP^2 * v in its square.
 */
static inline void @_predict(const int16_t *x, int32_t *mean, int64_t *variance) {
    @_sum_t sums[@_OUTPUTS][@_SAMPLES] = {{0}};
    for (int pair = 0; pair < @_PAIRS; ++pair) {
        uint32_t phase = 0;
        for (int j = 0; j < @_INPUTS; ++j) {
            phase += (uint32_t)((int32_t)@_frequencies[pair][j] * (int32_t)x[j]);
        }
        phase <<= @_FREQUENCY_SHIFT;
        for (int half = 0; half < 2; ++half) {
            /* the cosine, then the sine */
            const int32_t wave = @_sine(half ? phase : phase + ((uint32_t)1 << 30));
            for (int out = 0; out < @_OUTPUTS; ++out) {
                const int weight = 2 * pair + half;
                const int64_t scaled = (int64_t)wave * @_amplitudes[out][weight];
                const int32_t feature = (int32_t)@_floor_shift(scaled, 15);
                const uint8_t *codes = @_codes[out][weight];
                for (int s = 0; s < @_SAMPLES / 2; ++s) {
                    sums[out][2 * s] += (@_sum_t)feature * @_levels[codes[s] & 15];
                    sums[out][2 * s + 1] += (@_sum_t)feature * @_levels[codes[s] >> 4];
                }
            }
        }
    }
    for (int out = 0; out < @_OUTPUTS; ++out) {
        const int shift = @_shifts[out];
        int64_t values[@_SAMPLES], total = 0, spread = 0;
        for (int s = 0; s < @_SAMPLES; ++s) {
            const int64_t product = (int64_t)sums[out][s] * @_multipliers[out];
            values[s] = @_floor_shift(product + ((int64_t)1 << (shift - 1)), shift);
            total += values[s];
        }
        const int64_t centre = @_floor_divide(total + @_SAMPLES / 2, @_SAMPLES);
        for (int s = 0; s < @_SAMPLES; ++s) {
            spread += (values[s] - centre) * (values[s] - centre);
        }
        mean[out] = (int32_t)centre;
        variance[out] = spread / (@_SAMPLES - 1) + INT64_C(%NOISE%);
    }
}
"""

_CLASSIFY = """
/* Number of the likeliest class. */
static inline int @_classify(const int16_t *x) {
    int32_t mean[@_OUTPUTS];
    int64_t variance[@_OUTPUTS];
    int best = 0;
    @_predict(x, mean, variance);
    if (@_OUTPUTS == 1) {
        return mean[0] > 0;
    }
    for (int out = 1; out < @_OUTPUTS; ++out) {
        if (mean[out] > mean[best]) {
            best = out;
        }
    }
    return best;
}
"""

_FLOATS = """
#ifndef @_NO_FLOAT
static const double @_input_mean[@_INPUTS] = %INPUT_MEAN%;
static const double @_input_scale[@_INPUTS] = %INPUT_SCALE%;
#define @_OUTPUT_MEAN %OUTPUT_MEAN%
#define @_OUTPUT_STEP %OUTPUT_STEP%

/* For machines that have floating point numbers: inputs in the units of the data. */
static inline void @_quantise(const double *raw, int16_t *x) {
    for (int j = 0; j < @_INPUTS; ++j) {
        const double value =
            (raw[j] - @_input_mean[j]) / @_input_scale[j] * (double)(1 << @_INPUT_BITS) + 0.5;
        const double inside = value < -32767.0 ? -32767.0 : (value > 32767.0 ? 32767.0 : value);
        int32_t code = (int32_t)inside;
        if ((double)code > inside) {
            --code; /* conversion rounds to zero */
        }
        x[j] = (int16_t)code;
    }
}
#endif
"""


def write_header(
    model: IntegerModel, path: str | os.PathLike[str], name: str | None = None
) -> None:
    """Write a header whose names begin with ``name``: by default that of the file.

    Raises
    ------
    ValueError
        When ``name`` is no identifier of C.
    """
    path = Path(path)
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII) if name is None else name
    if not re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII):
        raise ValueError(
            f"name must be an identifier of C (letters from a to z, digits and _, no digit first), received {name!r}. "
            "Give another one to export."
        )
    with written_whole(path) as partial:
        partial.write_text(header_text(model, name), encoding="ascii")


def header_text(model: IntegerModel, name: str) -> str:
    """Return the text of a header."""
    pairs, inputs = model.frequencies.shape
    outputs, weights, half = model.codes.shape
    largest = 32767 * int(np.abs(model.levels.astype(int)).max()) * weights
    sizes = {
        "INPUTS": inputs, "OUTPUTS": outputs, "PAIRS": pairs, "SAMPLES": 2 * half,
        "INPUT_BITS": INPUT_BITS, "FREQUENCY_SHIFT": model.frequency_shift,
    }  # fmt: skip
    lines = [
        "/* Written by vastgp: a function of random Fourier features with four-bit posterior samples. */",
        f"#ifndef {name.upper()}_H",
        f"#define {name.upper()}_H",
        "",
        "#include <stdint.h>",
        "",
        *(f"#define @_{key} {value}" for key, value in sizes.items()),
        f"typedef {'int32_t' if largest <= _MOST_SUM else 'int64_t'} @_sum_t;",
        "",
        f"static const int16_t @_sines[{(1 << TABLE_BITS) + 1}] = {_braced(sine_table())};",
        f"static const int16_t @_frequencies[@_PAIRS][@_INPUTS] = {_braced(model.frequencies)};",
        f"static const uint16_t @_amplitudes[@_OUTPUTS][2 * @_PAIRS] = {_braced(model.amplitudes)};",
        f"static const int8_t @_levels[16] = {_braced(model.levels)};",
        f"static const uint8_t @_codes[@_OUTPUTS][2 * @_PAIRS][@_SAMPLES / 2] = {_braced(model.codes)};",
        f"static const int32_t @_multipliers[@_OUTPUTS] = {_braced(model.multipliers)};",
        f"static const int @_shifts[@_OUTPUTS] = {_braced(model.shifts)};",
    ]
    text = "\n".join(lines) + "\n" + _PROGRAM + (_CLASSIFY if model.is_classifier else "") + _FLOATS
    fillings = {
        "TABLE_BITS": TABLE_BITS,
        "NOISE": model.noise,
        "INPUT_MEAN": _braced(model.input_mean),
        "INPUT_SCALE": _braced(model.input_scale),
        "OUTPUT_MEAN": float(model.output_mean).hex(),
        "OUTPUT_STEP": float(model.output_step).hex(),
    }
    for key, value in fillings.items():
        text = text.replace(f"%{key}%", str(value))
    return text.replace("@", name) + f"\n#endif /* {name.upper()}_H */\n"


def _braced(array: np.ndarray) -> str:
    """Return the initialiser of an array, at most some 100 characters a line."""
    if array.ndim > 1:
        return "{\n" + ",\n".join(_braced(part) for part in array) + "}"
    hexadecimal = array.dtype.kind == "f"
    words = [float(value).hex() if hexadecimal else str(int(value)) for value in array]
    rows, row = [], ""
    for word in words:
        if len(row) + len(word) > 100:
            rows.append(row)
            row = ""
        row += word + ","
    return "{" + "\n".join([*rows, row.rstrip(",")]) + "}"
