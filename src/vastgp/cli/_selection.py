"""Which columns of a table are inputs."""

from __future__ import annotations

import csv
from pathlib import Path

from vastgp.cli._errors import BadInput
from vastgp.cli._files import existing
from vastgp.cli._model import require_columns, table_columns
from vastgp.cli._names import in_option

QUOTED = "a name with a comma stands in double quotes:"


def chosen_inputs(
    data: Path,
    targets: list[str],
    features: str | None,
    exclude: str | None,
    exposure: str | None = None,
) -> list[str] | None:
    """Names of the input columns; None of a file of arrays, which have no names."""
    existing(data, "The data")
    columns = table_columns(data)
    if columns is None:
        if features or exclude:
            raise BadInput(
                f"--features and --exclude name columns, and {str(data)!r} holds arrays without names."
            )
        if exposure is not None or len(targets) > 1:
            what = "--exposure" if exposure is not None else "several times --target"
            raise BadInput(
                f"{what} names columns, and {str(data)!r} holds arrays without names. Give a table, or use "
                "GPRegressor().fit(X, y) in Python, which takes arrays of both."
            )
        return None
    if not targets:
        shown = ", ".join(map(repr, columns[:30])) + (", ..." if len(columns) > 30 else "")
        raise BadInput(f"--target is missing: name the column to predict, one of {shown}.")
    require_columns(targets, data, "named by --target")
    twice = next((name for name in targets if targets.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"--target names {twice!r} several times; name each column once.")
    own = dict.fromkeys(targets, "target")
    if exposure is not None:
        require_columns([exposure], data, "named by --exposure")
        if exposure in own:
            raise BadInput(
                f"--exposure {exposure!r} is a target as well; name the column that its counts were taken over."
            )
        own[exposure] = "exposure"
    chosen, left_out = names_in("--features", features), names_in("--exclude", exclude)
    quoted = next((f", where {QUOTED} {in_option([name])}" for name in columns if "," in name), "")
    require_columns(chosen, data, f"named by --features{quoted}")
    require_columns(left_out, data, f"named by --exclude{quoted}")
    for name in chosen:
        if name in own:
            raise BadInput(
                f"--features names the {own[name]} {name!r} as well; leave it out there."
            )
    names = [name for name in chosen or columns if name not in own and name not in left_out]
    if not names:
        shown = ", ".join(map(repr, targets))
        raise BadInput(
            f"No column of {str(data)!r} is left to predict {shown} from; name some with --features, or fewer with "
            "--exclude."
        )
    return names


def names_in(option: str, text: str | None) -> list[str]:
    """Return the names that an option gives with commas between, as a line of a CSV file has them."""
    try:
        fields = list(csv.reader([text or ""], skipinitialspace=True, strict=True))
    except csv.Error:
        raise BadInput(
            f"{option} {text!r}: a double quote that begins a name has none that ends it before the next comma; "
            f"{QUOTED} {in_option(['a,b'])}, and a double quote inside of these is written twice."
        ) from None
    return [name.strip() for line in fields for name in line if name.strip()]


def pair_of(option: str, text: str) -> tuple[str, str]:
    """Return the two columns that an option names with a comma between."""
    names = names_in(option, text)
    if len(names) != 2:
        raise BadInput(
            f"{option} {text!r}: expected two columns with a comma between, such as lat,lon; {QUOTED} "
            f"{in_option(['a,b'])}."
        )
    return names[0], names[1]


def place_of(text: str, data: Path, inputs: list[str] | None) -> tuple[str, str]:
    """Return the two columns that --space names, which must be inputs; None of a file of arrays."""
    pair = pair_of("--space", text)
    if inputs is not None:
        require_columns(list(pair), data, "named by --space")
        for name in pair:
            if name not in inputs:
                raise BadInput(
                    f"--space names {name!r}, which is no input: it is the target or the exposure, or left out by "
                    "--features or --exclude. Name two columns that the target is predicted from."
                )
    return pair
