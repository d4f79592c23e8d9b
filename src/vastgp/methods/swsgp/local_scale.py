r"""How far observations scatter where they are: the scale of a process as the nearest rows have it.

A stationary process is as uncertain wherever rows are as dense. Where a function is flat here and steep there, or its
noise varies, the rows nearest to a place say which: of their targets, the nearest first, and ``L L^T = K + N``,

    w = L^-1 y

has entries that are standard normal if kernel and noise are right, ``w_j`` being how far target j is from what those
before it say. With an unknown factor ``s`` of all variances, whose prior is worth ``nu0`` observations of one, its
estimate is their mean square (West & Harrison 1997, section 10.8, have the same of a series), where farther rows count
less,

    s(x) = (nu0 + sum_j e^(-j / tau) w_j^2) / (nu0 + sum_j e^(-j / tau)),    j = 0, 1, ...

An observation has the Student distribution around the process's mean whose square of width is

    c s(x)^b (v0 (v(x) / v0)^p + kappa N),

with the process's variance ``v`` and noise variance ``N``. ``b = 0, p = kappa = c = 1`` and many degrees of freedom are
the process itself. The seven numbers are those by which rows are likeliest, each given its nearest others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma

from vastgp.likelihoods.locally_scaled import student_log_density
from vastgp.linalg.threads import one_blas_thread

# Of the logarithms of prior worth and reach, of half of those of the degrees of freedom, of c, of b, p and log kappa.
_BOUNDS = ((-5.0, 6.0), (0.0, 7.0), (-4.0, 0.5), (-12.0, 12.0), (0.0, 2.0), (0.0, 2.0), (-8.0, 3.0))
_STARTS = ((1.0, 2.5, -1.0, 0.0, 1.0, 1.0, 0.0), (3.0, 4.5, -1.0, 0.0, 1.0, 1.0, 0.0))
_ITERATIONS = 100
# Above this many degrees of freedom there are; squares of widths are not below that, in units of the target's variance.
_LEAST_DEGREES, _LEAST_SQUARE = 2.1, 1e-10
# With fewer rows the numbers are noise: of 277 rows of yacht intervals of 95 % held 83 %.
LEAST_ROWS = 400
# Rows that had no say in the numbers have to be likelier, by so many nats each and by more than one standard error.
_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Scattered:
    """What rows are off by, given their nearest others.

    Attributes
    ----------
    off, variance, noise : ndarray of shape (n,)
        Distance of the target from the mean, variance of the function, and of the noise.
    squares : ndarray of shape (n, H)
        ``w_j^2`` of the neighbours, the nearest first.
    """

    off: np.ndarray
    variance: np.ndarray
    noise: np.ndarray
    squares: np.ndarray

    @property
    def factor(self) -> float:
        """The factor of all variances by which rows are likeliest."""
        # max_c  -1/2 log(c v) - z^2 / (2 c)  is at c = mean z^2
        found = float(np.mean(self.off**2 / (self.variance + self.noise)))
        return found if found > 0.0 else 1.0

    def times(self, factor: float) -> Scattered:
        """Return the same with other variances."""
        return Scattered(
            self.off, factor * self.variance, factor * self.noise, self.squares / factor
        )

    def log_density(self) -> np.ndarray:
        """Return the log density of each row's target on the scale of the process, in nats."""
        square = self.variance + self.noise
        return -0.5 * (np.log(2.0 * np.pi * square) + self.off**2 / square)

    def on_own_scale(self, worth: float, count: int) -> np.ndarray:
        """Return that with a factor of all variances of each row's own, by so many of its nearest.

        As `vastgp.methods.swsgp.neighbour_evidence` has it: a Student density with ``worth + count`` degrees of freedom
        and the mean square of ``worth`` ones and the ``w_j``.
        """
        near = self.squares[:, :count]
        nu = worth + near.shape[1]
        square = (self.variance + self.noise) * (worth + near.sum(axis=1)) / nu
        return student_log_density(self.off, square, nu)

    def of(self, rows: Any) -> Scattered:
        """Return some of the rows."""
        return Scattered(self.off[rows], self.variance[rows], self.noise[rows], self.squares[rows])

    def and_of(self, other: Scattered) -> Scattered:
        """Return these rows and others."""
        both = ((getattr(self, name), getattr(other, name)) for name in vars(self))
        return Scattered(*(np.concatenate(pair) for pair in both))


@dataclass(frozen=True)
class LocalScale:
    """The seven numbers of the formula, and where they were found.

    Attributes
    ----------
    worth, reach, degrees, factor, power, of_variance, of_noise : float
        ``nu0``, ``tau``, the degrees of freedom, ``c``, ``b``, ``p`` and ``kappa``.
    middle, least, most : float
        ``v0``, and the range of variances in which ``p`` holds: beyond, widths go with the variance.
    """

    worth: float
    reach: float
    degrees: float
    factor: float
    power: float
    of_variance: float
    of_noise: float
    middle: float
    least: float
    most: float

    def squares(
        self, variance: Any, noise: Any, squares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the two parts of the square of each row's width: of the function, and of the noise.

        Parameters
        ----------
        variance, noise : ndarray of shape (n,)
        squares : ndarray of shape (n, H)
        """
        counts = np.exp(-np.arange(squares.shape[1]) / self.reach)
        scale = (self.worth + squares @ counts) / (self.worth + counts.sum())
        return self._on(scale, variance, noise)

    def _on(self, scale: np.ndarray, variance: Any, noise: Any) -> tuple[np.ndarray, np.ndarray]:
        factor = self.factor * scale**self.power
        # v0 (v / v0)^p within the range,  in proportion to v beyond it
        inside = np.clip(variance, self.least, self.most)
        of_function = self.middle * (inside / self.middle) ** self.of_variance * variance / inside
        return (
            np.maximum(factor * of_function, _LEAST_SQUARE),
            np.maximum(factor * self.of_noise * noise, _LEAST_SQUARE),
        )

    def log_density(self, rows: Scattered) -> np.ndarray:
        """Return the log density of each row's target, in nats."""
        of_function, of_noise = self.squares(rows.variance, rows.noise, rows.squares)
        return student_log_density(rows.off, of_function + of_noise, self.degrees)

    @classmethod
    def of_vector(cls, vector: np.ndarray, rows: Scattered) -> LocalScale:
        """Return the law with the numbers of `_BOUNDS`; the rows say in which range of variances it was found."""
        worth, reach, spread, factor, power, of_variance, of_noise = (
            float(each) for each in vector
        )
        logs = np.log(np.maximum(rows.variance, _LEAST_SQUARE))
        return cls(
            np.exp(worth), np.exp(reach), _LEAST_DEGREES + 2.0 * np.exp(-2.0 * spread),
            np.exp(factor), power, of_variance, np.exp(of_noise),
            *(float(np.exp(log)) for log in (logs.mean(), logs.min(), logs.max())),
        )  # fmt: skip

    def value_and_slopes(self, rows: Scattered) -> tuple[float, np.ndarray]:
        """Return the mean log density, and its derivatives by the seven numbers of `of_vector`."""
        order = np.arange(rows.squares.shape[1]) / self.reach
        counts = np.exp(-order)
        weight, total = self.worth + counts.sum(), self.worth + rows.squares @ counts
        scale = total / weight
        of_function, of_noise = self._on(scale, rows.variance, rows.noise)
        square, nu = of_function + of_noise, self.degrees
        value = float(np.mean(student_log_density(rows.off, square, nu)))
        t = rows.off**2 / (nu * square)
        # d log p / d log S = -1/2 + (nu + 1) / 2  t / (1 + t);  what is at its floor moves with nothing
        by_log = -0.5 + 0.5 * (nu + 1.0) * t / (1.0 + t)
        by_function = by_log * of_function / square * (of_function > _LEAST_SQUARE)
        by_noise = by_log * of_noise / square * (of_noise > _LEAST_SQUARE)
        both = by_function + by_noise
        inside = np.log(np.clip(rows.variance, self.least, self.most) / self.middle)
        by_reach = rows.squares @ (counts * order) / total - (counts * order).sum() / weight
        by_degrees = 0.5 * (digamma(0.5 * (nu + 1.0)) - digamma(0.5 * nu) - 1.0 / nu)
        by_degrees = by_degrees - 0.5 * np.log1p(t) + 0.5 * (nu + 1.0) / nu * t / (1.0 + t)
        each = [
            both * self.power * (self.worth / total - self.worth / weight),
            both * self.power * by_reach,
            by_degrees * -2.0 * (nu - _LEAST_DEGREES),  # nu - 2.1 = 2 exp(-2 x)
            both,
            both * np.log(scale),
            by_function * inside,
            by_noise,
        ]
        return value, np.array([np.mean(values) for values in each])

    @classmethod
    def fit(cls, rows: Scattered) -> LocalScale:
        """Return the law by which rows are likeliest."""

        def cost(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, slopes = cls.of_vector(vector, rows).value_and_slopes(rows)
            return -value, -slopes

        options = {"maxiter": _ITERATIONS}
        # sixteen threads took 13 ms for a millisecond of products, and 2 ms for a step over seven numbers
        with one_blas_thread():
            found = [
                minimize(cost, start, jac=True, method="L-BFGS-B", bounds=_BOUNDS, options=options)
                for start in _STARTS
            ]
        return cls.of_vector(min(found, key=lambda one: one.fun).x, rows)

    def to_state(self) -> dict[str, float]:
        """Return the numbers by name."""
        return {name: float(value) for name, value in asdict(self).items()}


def local_scale_of(rows: Scattered) -> tuple[LocalScale | None, float]:
    """Return the law, and what it gains in nats a row; None where that is not more than chance.

    The gain is that over the process itself, of each half of the rows by numbers of the other half.
    """
    n = len(rows.off)
    if n < LEAST_ROWS:
        return None, 0.0
    plain = rows.times(rows.factor).log_density()
    gain = np.empty(n)
    for start in range(2):
        others, here = slice(1 - start, None, 2), slice(start, None, 2)
        mine = rows.of(here)
        gain[here] = LocalScale.fit(rows.of(others)).log_density(mine) - plain[here]
    mean, error = float(np.mean(gain)), float(np.std(gain)) / n**0.5
    if not mean > max(_LEAST_GAIN, error):
        return None, mean
    return LocalScale.fit(rows), mean
