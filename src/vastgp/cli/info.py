"""`vastgp info`: what a model learned, from its file alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import explained
from vastgp.cli._options import AsJson, Debug


def info(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model that vastgp fit or model.save wrote.")
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what a model learned: kernel, lengthscale of each feature, noise, how the fit ended.

    Of a model of the default method also what was tried, what was done with each column, and how well intervals held.
    """
    with explained(debug):
        from vastgp.cli import _auto_info, _summary
        from vastgp.cli._console import say
        from vastgp.cli._model import load_model, of_targets, written_by
        from vastgp.cli._tables import is_front_door

        fitted = load_model(model)
        if is_front_door(fitted):
            of_file = {"vastgp": written_by(model), "file_bytes": model.stat().st_size}
            models = of_targets(fitted)
            every = {name: _auto_info.summary(one) | of_file for name, one in models.items()}
            if as_json:
                say(json.dumps(every.get(None, {"targets": every}), indent=2, allow_nan=True))
                return
            for name, found in every.items():
                _auto_info.show(found, str(model) if name is None else f"{model}: {name}")
            return
        if hasattr(fitted, "kriging_"):
            _show_map(fitted, str(model), as_json)
            return
        if not hasattr(fitted, "standardizer_"):
            _show_grids(fitted, str(model), as_json)
            return
        found = _summary.summary(fitted)
        found |= {"vastgp": written_by(model), "file_bytes": model.stat().st_size}
        if as_json:
            say(json.dumps(found, indent=2, allow_nan=True))
        else:
            _summary.show(found, str(model))


def _show_map(fitted: Any, title: str, as_json: bool) -> None:
    from vastgp.cli import map_stations
    from vastgp.cli._console import say

    if as_json:
        say(json.dumps(map_stations.summary(fitted), indent=2))
    else:
        map_stations.show(fitted, title)


def grid_summary(model: Any) -> dict[str, Any]:
    """What a model of a grid learned, as plain data."""
    import numpy as np

    return {
        "method": type(model).__name__,
        "solver": model.solver_,
        "values": None if model.name_ is None else str(model.name_),
        "dimensions": {
            dim: size
            for group in model.groups_
            for dim, size in zip(group.dims, group.sizes, strict=True)
        },
        "gap_share": model.gap_share_,
        "kernel": str(model.kernel_),
        "lengthscales_km": model.lengthscales_km_,
        "noise_std": np.ravel(model.noise_std_).tolist(),
        "log_evidence": model.log_evidence_,
        "log_evidence_unbiased": model.log_evidence_unbiased_,
        "log_evidence_se": model.log_evidence_se_,
        "converged": model.converged_,
        "stop_reason": model.stop_reason_,
        "steps": model.n_iter_,
        "seconds": model.fit_seconds_,
    }


def _show_grids(fitted: Any, title: str, as_json: bool) -> None:
    """Show the model of a grid, or that of each of several fields."""
    from vastgp.cli._console import say

    fields = getattr(fitted, "outputs_", None)
    if fields is None:
        _show_grid(grid_summary(fitted), title, as_json)
        return
    every = {name: grid_summary(one) for name, one in fields.items()}
    if as_json:
        say(json.dumps({"fields": every}, indent=2, allow_nan=True))
        return
    for name, found in every.items():
        _show_grid(found, f"{title}: {name}", as_json)


def _show_grid(found: dict[str, Any], title: str, as_json: bool) -> None:
    from vastgp.cli._console import facts, heading, number, say

    if as_json:
        say(json.dumps(found, indent=2, allow_nan=True))
        return
    heading(title)

    def text(value: Any) -> str:
        if isinstance(value, dict):
            each = {n: number(v) if isinstance(v, float) else v for n, v in value.items()}
            return ", ".join(f"{name}: {size}" for name, size in each.items())
        if isinstance(value, list):
            return ", ".join(number(entry) for entry in value)
        return number(value) if isinstance(value, float) else str(value)

    found = {name: value for name, value in found.items() if value != {}}
    facts([(name.replace("_", " "), text(value)) for name, value in found.items()])
