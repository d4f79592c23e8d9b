"""Draws of hyperparameters as what ArviZ works with."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.methods.reweighted.chain_diagnosis import import_arviz


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
