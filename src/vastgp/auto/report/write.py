"""A report as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vastgp.auto.report.data import ReportData
from vastgp.auto.report.html import POLICY, number, percent, text
from vastgp.auto.report.sections import sections
from vastgp.auto.report.style import STYLE
from vastgp.data.whole_files import written_whole


def write_report(record: ReportData, path: str | os.PathLike[str]) -> Path:
    """Write a report: one HTML file that needs no network and runs no script.

    Parameters
    ----------
    record : ReportData
    path : str or path
        Written whole or not at all; a file that is there is replaced.

    Returns
    -------
    Path
        Of the file.
    """
    page = report_html(record)
    with written_whole(path) as partial:
        # a lone half of a surrogate pair, which JSON and Python may hold, has no UTF-8
        partial.write_bytes(page.encode("utf-8", errors="replace"))
    return Path(path)


def report_html(record: ReportData) -> str:
    """Return the page of a report."""
    parts = list(sections(record))
    links = "".join(f'<a href="#{name}">{title}</a>\n' for name, title, _ in parts)
    body = "".join(section for _, _, section in parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(record.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<h1>{text(record.title)}</h1>
{_tiles(record)}<nav aria-label="Sections">
{links}</nav>
</header>
{body}<footer>{_footer(record)}</footer>
</main>
</body>
</html>
"""


def _tiles(record: ReportData) -> str:
    """The few numbers that a reader wants first."""
    kept: Any = next((row for row in record.leaderboard if row.get("kept")), {})
    tiles = [("rows", number(record.rows))]
    if kept.get("method"):
        tiles.append(("model", text(kept["method"])))
    if record.calibration is not None:
        whole = record.calibration.overall[-1]
        tiles.append((f"{100.0 * whole.level:.0f} % intervals hold", percent(whole.coverage)))
    tiles += [(text(name), text(value)) for name, value in record.scores]
    if kept.get("rmse") is not None and not record.scores:
        tiles.append(("typical error (RMSE)", number(kept["rmse"])))
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in tiles)
    return f'<dl class="tiles">\n{cells}</dl>\n'


def _footer(record: ReportData) -> str:
    parts = [f"{name} {version}" for name, version in record.versions.items()]
    if record.seed is not None:
        parts.append(f"seed {record.seed}")
    return text(", ".join(parts))
