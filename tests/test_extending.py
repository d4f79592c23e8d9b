"""The worked examples of how to extend the library run, with the checks that they end with."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_example_of_the_page_runs():
    text = PAGE.read_text()
    place: dict[str, object] = {"__name__": "examples"}
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) >= 8
    for block in blocks:
        # errors name the line of the page
        above = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(above + block.group(1), str(PAGE), "exec"), place)
