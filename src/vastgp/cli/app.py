"""The program `vastgp` and what its commands share."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="vastgp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # errors are ours to explain; --debug shows the traceback
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Gaussian process regression on tables of any length, with uncertainty that can be trusted.",
    epilog="DATA, NEW and TEST are Parquet (a file or a folder), CSV, .npz (arrays X and y) or .npy files. "
    "`vastgp demo` shows every command at work on real data.",
)


def _show_version(wanted: bool) -> bool:
    if wanted:
        from vastgp import __version__

        typer.echo(f"vastgp {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Hold the options that come before a command."""
