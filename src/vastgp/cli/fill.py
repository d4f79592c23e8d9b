"""`vastgp fill`: a gridded file with gaps, filled, with the uncertainty of every value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vastgp.cli._errors import BadInput, close_match, explained
from vastgp.cli._estimators import make_estimator
from vastgp.cli._grid_files import check_out, write_grid
from vastgp.cli._options import Debug, Force


def fill(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="A NetCDF file, or a Zarr folder, with gaps as NaN."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write: .nc or .zarr.")
    ],
    var: Annotated[
        str | None,
        typer.Option(
            "--var", metavar="NAME", help="Variable to fill; may be left out if there is one."
        ),
    ] = None,
    noise_std: Annotated[
        str | None,
        typer.Option(
            "--noise-std",
            metavar="NAME",
            help="Variable with the known standard deviation of each cell's own error.",
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            "-k",
            metavar="DIMS=KERNEL",
            help="Kernel of a dimension, or of a group of them: time=matern32, lat,lon=rbf. May be repeated; "
            "matern52 elsewhere.",
        ),
    ] = None,
    solver: Annotated[
        str | None, typer.Option("--solver", help="auto, fill-gaps, ignore-gaps or penalize-gaps.")
    ] = None,
    criterion: Annotated[str | None, typer.Option("--criterion", help="evidence or gcv.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="float64 or float32.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", metavar="S", help="Budget of learning.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="FILE",
            help="Save the state of learning here every half minute, and go on from it if it is there.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of everything random.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any other argument of GridGP; repeatable."
        ),
    ] = None,
    model_out: Annotated[
        Path | None,
        typer.Option("--save-model", metavar="FILE", help="Also write the fitted model."),
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Fill the gaps of a variable on a grid.

    The output has variables mean and std on the same grid, with the coordinates and attributes of the input; std is
    that of a new observation, noise included. It appears whole or not at all.
    """
    with explained(debug):
        from vastgp.cli._console import duration, facts, heading, plural
        from vastgp.cli._files import existing, require_folder, writable

        existing(source, "The grid")
        check_out(out, force)
        if model_out is not None:
            writable(model_out, "--save-model", force=force)
        if checkpoint is not None:
            require_folder(checkpoint.parent, f"--checkpoint {str(checkpoint)!r} cannot be written")
        options = {
            "kernels": _kernels(kernel or []),
            "solver": solver,
            "criterion": criterion,
            "dtype": dtype,
            "max_seconds": max_seconds,
            "checkpoint": checkpoint and str(checkpoint),
            "random_state": seed or None,
        }
        model = make_estimator("GridGP", options, settings or [])
        with _opened(source) as dataset:
            errors = None if noise_std is None else _named(dataset, noise_std, source)
            if noise_std is not None:
                dataset = dataset.drop_vars(noise_std)
            model.fit(_chosen(dataset, var, source), noise_std=errors)
        filled = model.predict()
        filled.attrs["history"] = "gaps filled by vastgp fill"
        write_grid(filled, out)
        if model_out is not None:
            model.save(model_out)
        gaps = round(model.gap_share_ * filled["mean"].size)
        heading(str(out))
        facts(
            [
                ("filled", f"{plural(gaps, 'gap')} of {plural(filled['mean'].size, 'point')}"),
                ("kernel", str(model.kernel_)),
                ("noise", f"{_noise(model)}, in units of {model.name_ or 'the variable'}"),
                ("log evidence", f"{model.log_evidence_:.6g}"),
                ("ended", f"{model.stop_reason_}, {duration(model.fit_seconds_)}"),
            ]
        )


def _noise(model: Any) -> str:
    import numpy as np

    return ", ".join(f"{value:.4g}" for value in np.ravel(model.noise_std_))


def _kernels(given: list[str]) -> dict[Any, str] | None:
    """Read ``lat,lon=rbf``."""
    kernels: dict[Any, str] = {}
    for text in given:
        names, sign, kernel = text.partition("=")
        dims = tuple(name.strip() for name in names.split(","))
        if not sign or not kernel.strip() or not all(dims):
            raise BadInput(
                f"--kernel {text!r}: expected DIMS=KERNEL, such as time=matern32 or lat,lon=rbf."
            )
        kernels[dims[0] if len(dims) == 1 else dims] = kernel.strip()
    return kernels or None


def _opened(source: Path) -> Any:
    from vastgp.data.dataset_files import open_dataset

    try:
        return open_dataset(source, chunks={})
    except ImportError as error:
        raise BadInput(str(error)) from error


def _chosen(dataset: Any, var: str | None, source: Path) -> Any:
    names = [str(name) for name in dataset.data_vars]
    if var is None:
        if len(names) != 1:
            raise BadInput(
                f"{str(source)!r} has {len(names)} variables ({', '.join(map(repr, names))}); choose one with --var."
            )
        (var,) = names
    return _named(dataset, var, source)


def _named(dataset: Any, var: str, source: Path) -> Any:
    names = [str(name) for name in dataset.data_vars]
    if var not in names:
        raise BadInput(
            f"{str(source)!r} has no variable {var!r}.{close_match(var, names)} It has "
            f"{', '.join(map(repr, names))}."
        )
    return dataset[var]
