"""`vastgp fill`: a gridded file with gaps, filled, with the uncertainty of every value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from vastgp.cli._errors import BadInput, close_match, explained
from vastgp.cli._estimators import make_estimator
from vastgp.cli._grid_files import check_out, write_grid
from vastgp.cli._names import OF_FILL
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
        list[str] | None,
        typer.Option(
            "--var",
            metavar="NAME",
            help="Variable to fill; may be left out if there is one, or repeated for several on one grid.",
        ),
    ] = None,
    noise_std: Annotated[
        list[str] | None,
        typer.Option(
            "--noise-std",
            metavar="NAME",
            help="Variable with the known standard deviation of each cell's own error; of several variables one each, "
            "in their order.",
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            "--mask",
            metavar="NAME",
            help="Variable or coordinate that is 1 in cells not to be filled, such as land.",
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            "-k",
            metavar="DIMS=KERNEL",
            help="Kernel of a dimension, or of a group of them: time=matern32, lat,lon=rbf. May be repeated; "
            "matern52 elsewhere; of times as rough as the data say.",
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
    """Fill the gaps of variables on a grid.

    The output has variables mean and std on the same grid (of several variables NAME and NAME_std of each), with the
    coordinates, their bounds and the attributes of the input; std is that of a new observation, noise included. It
    appears whole or not at all.
    """
    with explained(debug, OF_FILL):
        from vastgp.cli._console import heading
        from vastgp.cli._files import existing, require_folder, writable

        existing(source, "The grid")
        inputs = {"the grid": source}
        check_out(out, force, inputs)
        if model_out is not None:
            others = {**inputs, "the file of --out": out}
            writable(model_out, "--save-model", force=force, others=others)
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
            given = _given(dataset, source, var or [], noise_std or [], mask)
            if model_out is None:
                _refuse_whole(given, source)
            model.fit(given.fields, noise_std=given.errors, mask=given.mask)
            filled = model.predict()
            filled = _of_file(filled, dataset, given, source.name)
        write_grid(filled, out)
        if model_out is not None:
            model.save(model_out)
        heading(str(out))
        for name, one in getattr(model, "outputs_", {None: model}).items():
            _show(one, name)


def _show(model: Any, name: str | None) -> None:
    from vastgp.cli._console import duration, facts, heading, plural

    points = math.prod(size for group in model.groups_ for size in group.sizes)
    masked = 0.0 if model.mask_ is None else float(model.mask_.mean())
    gaps = round((model.gap_share_ - masked) * points)
    if name is not None:
        heading(name)
    facts(
        [
            ("filled", f"{plural(gaps, 'gap')} of {plural(points, 'point')}"),
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
        key = dims[0] if len(dims) == 1 else dims
        if key in kernels:
            raise BadInput(f"--kernel is given more than once for {names.strip()}.")
        kernels[key] = kernel.strip()
    return kernels or None


def _opened(source: Path) -> Any:
    from vastgp.data.dataset_files import open_dataset

    try:
        return open_dataset(source, chunks={})
    except ImportError as error:
        raise BadInput(str(error)) from error


class _Given(NamedTuple):
    """What is to be filled: a field or a Dataset of several, their names, known errors, and cells to leave out."""

    fields: Any
    names: list[str]
    errors: Any
    mask: Any


def _given(
    dataset: Any, source: Path, var: list[str], noise_std: list[str], mask: str | None
) -> _Given:
    """Return the variables that were asked for, or the only one."""
    from vastgp.data.grid_fields import names_beside, names_of_fields

    for name in noise_std:
        _named(dataset, name, source)
    cells = None if mask is None else _mask(dataset, mask, source)
    names = var or [n for n in names_of_fields(dataset) if n not in (*noise_std, mask)]
    if not var and len(names) != 1:
        raise BadInput(
            f"{str(source)!r} has {len(names)} variables ({', '.join(map(repr, names))}); choose one with --var, or "
            "several on one grid with --var each."
        )
    arrays = [_named(dataset, name, source) for name in names]
    again = [name for name in names if names.count(name) > 1]
    if again:
        raise BadInput(f"--var {again[0]} is given more than once.")
    if noise_std and len(noise_std) != len(names):
        raise BadInput(
            f"--noise-std is given {len(noise_std)} times for {len(names)} variables ({', '.join(map(repr, names))}). "
            "Give one for each, in their order."
        )
    errors = {name: dataset[own] for name, own in zip(names, noise_std, strict=False)}
    if len(names) == 1:
        return _Given(arrays[0], names, errors.get(names[0]), cells)
    beside = names_beside(dataset)
    for name in names:
        if name in beside:
            raise BadInput(
                f"--var {name}: {name!r} of {str(source)!r} is no field; others name it as bounds of their cells, as "
                "their grid mapping or measure."
            )
    fields = dataset[[*names, *beside]]
    for name in names:  # a field that was asked for is none that another has beside it
        fields[name].attrs.pop("ancillary_variables", None)
    return _Given(fields, names, errors or None, cells)


def _mask(dataset: Any, name: str, source: Path) -> Any:
    """Return the cells that are not to be filled."""
    import numpy as np

    if name not in dataset.variables:
        return _named(dataset, name, source)  # says what there is
    mask = dataset[name].load()
    values = np.asarray(mask.values)
    other = values[~((values == 0) | (values == 1))]
    if other.size:
        missing = values.dtype.kind == "f" and bool(np.isnan(other).all())
        instead = (
            "give 0 where it is missing" if missing else "compare it, such as land = fraction > 0.5"
        )
        raise BadInput(
            f"--mask {name} of {str(source)!r} holds {'nothing (NaN)' if missing else repr(other[:1].tolist()[0])} in "
            f"{other.size:,} of {values.size:,} cells. Expected 1 in every cell that is not to be filled, 0 elsewhere: "
            f"{instead}, and write that to the file as a variable."
        )
    if mask.attrs.get("standard_name") == "sea_binary_mask":  # 1 where there is sea
        return (mask == 0).drop_attrs()
    return mask


def _refuse_whole(given: _Given, source: Path) -> None:
    """Refuse fields without a gap: nothing would be filled."""
    from vastgp.data.grid import reading, sizes_of
    from vastgp.data.grid_fields import told_of

    fields = [given.fields] if len(given.names) == 1 else [given.fields[n] for n in given.names]
    for field in fields:
        if not field.size:
            return  # the fit says which dimension is empty
        with told_of(field), reading(field):  # chunk by chunk
            gaps = field.isnull() if given.mask is None else field.isnull() & (given.mask == 0)
            if bool(gaps.any()):
                return
    sizes, beyond = sizes_of(fields[0]), "" if given.mask is None else " that --mask leaves"
    raise BadInput(
        f"{', '.join(map(repr, given.names))} of {str(source)!r} has a value in every cell ({sizes}){beyond}: there is "
        "nothing to fill. With --save-model the model is fitted all the same, and predicts other coordinates in Python."
    )


def _of_file(filled: Any, dataset: Any, given: _Given, source: str) -> Any:
    """Return predictions with what the file says of itself, and what it has beside the values."""
    from vastgp.data.cf_attributes import of_file, of_named
    from vastgp.data.grid_fields import beside_of, with_beside

    one = len(given.names) == 1
    for name in given.names:
        mean = filled["mean" if one else name]
        mean.attrs = of_named(mean.attrs, name)
    if one:
        filled = with_beside(filled, beside_of(dataset))
    title = f"{', '.join(given.names)} of {source}, gaps filled"
    before = dataset.attrs.get("history")
    said = "gaps filled by vastgp fill"
    history = said if before is None else f"{before}\n{said}"
    attrs = {"title": title} | of_file(dataset.attrs) | filled.attrs
    return filled.assign_attrs(attrs | {"history": history})


def _named(dataset: Any, var: str, source: Path) -> Any:
    names = [str(name) for name in dataset.data_vars]
    if var not in names:
        raise BadInput(
            f"{str(source)!r} has no variable {var!r}.{close_match(var, names)} It has "
            f"{', '.join(map(repr, names))}."
        )
    return dataset[var]
