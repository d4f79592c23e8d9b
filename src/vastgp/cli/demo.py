"""`vastgp demo`: the other commands at work on real data that the package carries."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from vastgp.cli._errors import BadInput, explained
from vastgp.cli._options import Debug

_FILES = (
    "about.md",
    "train.parquet",
    "test.parquet",
    "protein.vastgp",
    "predictions.parquet",
    "calibration.png",
)


def demo(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the files of the demo."),
    ] = Path("vastgp-demo"),
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", metavar="SECONDS", min=1.0, help="Time for the fit.")
    ] = 60.0,
    num_rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="COUNT", min=100, help="Train on the first rows only."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Train on 41,157 real rows, predict 4,573 others and check the uncertainty; about a minute.

    The data are physicochemical properties of protein structures (UCI, CC BY 4.0); the target says
    how far a candidate structure is from the true one.
    """
    with explained(debug):
        from vastgp.cli._console import duration, heading, say

        began = time.perf_counter()
        _unpack(out, num_rows)
        train, test, _, predictions, plot = (out / name for name in _FILES[1:])
        model = out / "protein.vastgp"
        fit = ["fit", str(train), "--target", "log_rmsd", "--out", str(model)]
        for command in (
            [*fit, "--max-seconds", f"{max_seconds:g}", "--force"],
            ["predict", str(model), str(test), "--out", str(predictions), "--range", "--force"],
            ["evaluate", str(model), str(test), "--plot", str(plot), "--force"],
        ):
            _run([*command, "--debug"] if debug else command)
        heading(f"\nDone in {duration(time.perf_counter() - began)}. Calibration plot: {plot}")
        say(f"What the model learned, input by input: vastgp info {model}", style="dim")
        say(f"The data and their licence: {out / 'about.md'}", style="dim")


def _unpack(folder: Path, num_rows: int | None) -> None:
    """Write the packaged rows as the files that a user would have."""
    from vastgp.cli._console import facts, heading
    from vastgp.cli._files import require_folder
    from vastgp.data.whole_files import written_whole
    from vastgp.datasets import load_protein

    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--out {str(folder)!r} is a file; give a folder for the files of the demo.")
    foreign = (
        sorted(entry.name for entry in folder.iterdir() if entry.name not in _FILES)
        if folder.is_dir()
        else []
    )
    if foreign:
        raise BadInput(
            f"--out {str(folder)!r} holds other files ({', '.join(foreign[:3])}); give a new or empty folder."
        )
    if not folder.is_dir():
        require_folder(folder.parent, f"--out {str(folder)!r} cannot be made")
        folder.mkdir()
    data = load_protein()
    y_train = data.y_train[:num_rows]
    for name, X, y in (
        ("train", data.X_train[:num_rows], y_train),
        ("test", data.X_test, data.y_test),
    ):
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = dict(zip(data.feature_names, X.T, strict=True)) | {data.target_name: y}
        with written_whole(folder / f"{name}.parquet") as partial:
            pq.write_table(pa.table(columns), partial)
    with written_whole(folder / "about.md") as partial:
        partial.write_text(data.description, encoding="utf-8")
    heading("Physicochemical properties of protein structures, unpacked")
    facts(
        [
            (
                str(folder / "train.parquet"),
                f"{len(y_train):,} rows, {len(data.feature_names)} features",
            ),
            (str(folder / "test.parquet"), f"{len(data.y_test):,} rows that the fit does not see"),
        ]
    )


def _run(arguments: list[str]) -> None:
    """Run one command as a shell would, and show what was typed."""
    from vastgp.cli._console import say
    from vastgp.cli.app import app

    say(f"\n$ vastgp {shlex.join(arguments)}", style="bold cyan")
    code = app(arguments, standalone_mode=False)
    if code:
        raise typer.Exit(int(code))
