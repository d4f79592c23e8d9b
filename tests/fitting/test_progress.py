"""The progress line: only at a terminal, only when asked for, only when it lasts."""

import io
import sys

import pytest

from vastgp.fitting import progress
from vastgp.fitting.progress import Progress


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "enabled", "quiet", "shown"),
    [(True, True, 0.0, True), (False, True, 0.0, False), (True, False, 0.0, False), (True, True, 99.0, False)],
)  # fmt: skip
def test_when_it_is_shown(monkeypatch, terminal, enabled, quiet, shown):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_QUIET_SECONDS", quiet)
    monkeypatch.setenv("TERM", "xterm")
    with Progress("fitting", enabled) as line:
        line.update(0.25, "objective 1.5")
        line.update(2.0, "objective 1.6")
    assert ("fitting" in screen.getvalue()) == shown
    assert ("objective" in screen.getvalue()) == shown
    if shown:
        assert "100 %" in screen.getvalue()


def test_it_ends_when_the_work_fails(monkeypatch):
    screen = Screen(True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    lines = []

    def work():
        with Progress("fitting", True) as line:
            lines.append(line)
            line.update(0.5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert not lines[0]._bar.live.is_started
