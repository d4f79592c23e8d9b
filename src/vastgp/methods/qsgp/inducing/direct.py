"""The weights of a few inducing inputs, solved for directly: one pass over the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer
from vastgp.data.tiles import row_tiles
from vastgp.fitting.accumulate import accumulate
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import kernel_matrix
from vastgp.linalg.cholesky import factorize

_TILE = 2048
# Added to the diagonal of S, relative to the prior variance: without it the weights of inputs close to each other grow
# beyond what features in float32 can be multiplied with.
_JITTER = 1e-6


def solve_directly(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    inputs: np.ndarray,
    noise_variance: float,
    run: Run,
) -> tuple[np.ndarray, LoopResult]:
    """Return the minimiser of ``L_mu``, ``(Phi^T Phi + sigma^2 S)^-1 Phi^T y``, in float64.

    With ``S = L L^T`` and the whitened features ``A = Phi L^-T`` it is ``L^-T (A^T A + sigma^2 I)^-1 A^T y``. Time is
    O(n m^2) and memory O(m^2).

    Parameters
    ----------
    rows, standardizer, kernel, noise_variance
        As in `fit_inducing`.
    inputs : ndarray of shape (m, d)
        Standardised inducing inputs.
    run : Run
        Keeps the weights in its file.
    """
    began, m = run.elapsed(), len(inputs)

    def solve() -> tuple[np.ndarray, float]:
        what = "the kernel matrix of the inducing inputs"
        variance = float(kernel.total_variance())
        root = factorize(_kernel(kernel, inputs, inputs), _JITTER * variance, what=what).lower
        root = np.tril(root)

        def whitened_features(X: Any) -> np.ndarray:
            phi = _kernel(kernel, inputs, X)
            return np.asarray(solve_triangular(root, phi, lower=True, check_finite=False)).T

        sums = accumulate(whitened_features, row_tiles(rows, standardizer, _TILE), m)
        system = factorize(sums.gram, noise_variance, what="the system of the weights")
        whitened = cho_solve((system.lower, True), sums.target)
        mean = solve_triangular(root, whitened, lower=True, trans=1)
        # at the optimum L_mu = -y^T Phi mu / sigma^2
        fit = (sums.square - float(sums.target @ whitened)) / noise_variance
        return mean, -0.5 * (fit + rows.n * float(np.log(2.0 * np.pi * noise_variance)))

    mean, objective = run.once("weights", solve)
    history, seconds = History(), run.elapsed() - began
    history.append(1, seconds, {"objective": objective, "objective_se": 0.0, "residual": 0.0})
    return mean, LoopResult(1, seconds, True, "solved directly", history)


def _kernel(kernel: Kernel, Z: np.ndarray, X: Any) -> np.ndarray:
    with precision("float64"):
        return np.array(kernel_matrix(kernel, np.asarray(Z), X))
