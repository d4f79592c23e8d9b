"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace files that exist.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
BatchRows = Annotated[
    int,
    typer.Option(
        "--batch-rows",
        metavar="ROWS",
        min=1,
        help="Rows read and predicted at a time.",
        show_default=True,
    ),
]
# Of commands that compare predictions with targets.
ExposureOfCounts = Annotated[
    str | None,
    typer.Option(
        "--exposure",
        metavar="COLUMN|NUMBER",
        help="Exposures of counts, if their column is not named as in training, or one for all rows.",
    ),
]
