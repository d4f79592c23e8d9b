"""Results of benchmarks/faults.py: counted together, and as a page."""

from __future__ import annotations

from typing import Any

import numpy as np

# What is counted, and so can be added up.
_COUNTS = (
    "cases", "fitted", "refused", "failed", "processor_seconds", "kills", "fits", "equal", "loaded",
)  # fmt: skip
_SAYS = {
    "tables": "Tables drawn by hypothesis: fitted with all promises kept, refused by name, or failed",
    "quality": "Predictions at default arguments beside those of a Bayesian line, on tables of 40 and 120 rows",
    "kills": "Fits ended by signals 9, 15 and 2 up to three times in a row, and what the resumed one answered",
    "files": "Saved models changed by structure and by bytes, the checksum right where it can be",
    "serving": "Predictions from eight threads at once, and of one row at a time",
    "soak": "Fits saved, loaded and asked, over and over in one process, and its resident memory",
}


def added(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return what two runs of one part counted together.

    Raises
    ------
    ValueError
        For a seed that was counted already, and for means, which have no sum.
    """
    seeds = [each for one in (before, row) for each in np.atleast_1d(one["seed"]).tolist()]
    other = set(row) - {*_COUNTS, "failures", "seed"}
    if len(set(seeds)) < len(seeds) or other:
        raise ValueError(f"cannot be added: seeds {seeds}, {sorted(other)}")
    counts = {key: before.get(key, 0) + row.get(key, 0) for key in _COUNTS if key in before | row}
    return counts | {"failures": before["failures"] + row["failures"], "seed": seeds}


def page(known: dict[str, Any]) -> str:
    """Return all results as tables."""
    lines = [
        "# Faults",
        "",
        "Made by `python -m benchmarks.faults PART --cases N`; see its first lines.",
        "",
    ]
    for part, rows in known.items():
        shown = [key for key in next(iter(rows.values())) if key not in ("failures", "seed")]
        shown = list(
            dict.fromkeys(
                [
                    *shown,
                    *(k for row in rows.values() for k in row if k not in ("failures", "seed")),
                ]
            )
        )
        lines += [f"## {_SAYS[part]}", "", "| estimator | " + " | ".join(shown) + " | failures |"]
        lines += ["| --- |" + " ---: |" * (len(shown) + 1)]
        for name, row in rows.items():
            cells = [str(row.get(key, 0 if key in ("failed", "refused") else "")) for key in shown]
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {len(row['failures'])} |")
        failed = [f"- {name}: {each}" for name, row in rows.items() for each in row["failures"]]
        lines += ["", *failed, *([""] if failed else [])]
    return "\n".join(lines).rstrip() + "\n"
