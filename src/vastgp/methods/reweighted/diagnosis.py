"""What Markov chains say of themselves: draws, R-hat, effective sample sizes, and what speaks against them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vastgp.fitting.history import History

# With fewer draws a chain says nothing.
_LEAST_DRAWS = 8


@dataclass(frozen=True)
class Chains:
    """Draws of the hyperparameters, and what the chains say of themselves.

    Attributes
    ----------
    theta : ndarray of shape (chains, draws, D)
    log_density : ndarray of shape (chains, draws)
    acceptance : ndarray of shape (chains, draws)
    diverging : ndarray of bool, shape (chains, draws)
    coordinates : ndarray of shape (chains, draws, C, rank), or None
        ``U^T z`` of latent values ``z``, where these are drawn too.
    r_hat, ess : ndarray of shape (D,)
        Rank-normalised split R-hat and bulk effective sample size (Vehtari et al. 2021).
    step_size : ndarray of shape (chains,)
    num_steps : int
        Steps done by every chain after the warm-up.
    reason : str
    history : History
    """

    theta: np.ndarray
    log_density: np.ndarray
    acceptance: np.ndarray
    diverging: np.ndarray
    coordinates: np.ndarray | None = field(repr=False)
    r_hat: np.ndarray
    ess: np.ndarray
    step_size: np.ndarray
    num_steps: int
    reason: str
    history: History = field(repr=False)


def import_blackjax() -> Any:
    """Return blackjax.

    Raises
    ------
    ImportError
        Saying how to get it.
    """
    try:
        import blackjax
    except ImportError as error:
        raise ImportError(
            "Markov chains draw hyperparameters with blackjax, which is not installed: pip install vastgp[mcmc]"
        ) from error
    return blackjax


def import_arviz() -> Any:
    """Return ArviZ.

    Raises
    ------
    ImportError
        Saying how to get it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of its own future
            import arviz
    except ImportError as error:
        raise ImportError(
            "Markov chains are judged and handed out by ArviZ, which is not installed: pip install vastgp[mcmc]"
        ) from error
    return arviz


def diagnose(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rank-normalised split R-hat and bulk effective sample size of every coordinate.

    Parameters
    ----------
    theta : ndarray of shape (chains, draws, D)
        With fewer than eight draws neither means anything: NaN.
    """
    if theta.shape[1] < _LEAST_DRAWS:
        return np.full(theta.shape[2], np.nan), np.full(theta.shape[2], np.nan)
    import xarray as xr

    arviz = import_arviz()
    if len(theta) == 1:  # ArviZ wants two chains: the halves of the one
        half = theta.shape[1] // 2
        theta = theta[0, : 2 * half].reshape(2, half, -1)
    draws = xr.Dataset({"theta": (("chain", "draw", "entry"), theta)})
    return tuple(of(draws)["theta"].values for of in (arviz.rhat, arviz.ess))


def problems_of(chains: Chains, most_r_hat: float = 1.05, least_ess: float = 100.0) -> list[str]:
    """Return what speaks against draws: nothing where chains have mixed."""
    problems = []
    worst, fewest = float(np.max(chains.r_hat)), float(np.min(chains.ess))
    if not worst <= most_r_hat:
        problems.append(f"the largest R-hat is {worst:.3f} (should be below {most_r_hat:g})")
    if not fewest >= least_ess:
        problems.append(
            f"the smallest effective sample size is {fewest:.0f} (should be at least {least_ess:g})"
        )
    divergent = int(np.sum(chains.diverging))
    if divergent:
        problems.append(
            f"{divergent} of {chains.diverging.size} draws ended trajectories that diverged"
        )
    return problems


def inference_data(posterior: dict[str, np.ndarray], sample_stats: dict[str, np.ndarray]) -> Any:
    """Return draws as ``arviz.InferenceData``, or from ArviZ 1 on as the ``xarray.DataTree`` that replaced it.

    Parameters
    ----------
    posterior : dict of ndarray of shape (chains, draws, ...)
    sample_stats : dict of ndarray of shape (chains, draws)
    """
    arviz = import_arviz()
    groups = {"posterior": posterior, "sample_stats": sample_stats}
    if int(str(arviz.__version__).partition(".")[0]) >= 1:
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)
