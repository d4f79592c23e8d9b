"""The progress line: only at a terminal, only when asked for, only when it lasts."""

import io
import signal
import sys
import threading

import pytest
import rich.console
import rich.live

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


INSTANTS = {
    "the line is put together": (rich.live.Live, "__init__"),
    "the display is declared": (rich.console.Console, "set_live"),
    "the cursor is hidden or shown": (rich.console.Console, "show_cursor"),
    "what is printed is redirected": (rich.live.Live, "_enable_redirect_io"),
    "the thread begins": (threading.Thread, "start"),
    "the line is drawn": (rich.live.Live, "refresh"),
    "the display is given up": (rich.console.Console, "clear_live"),
    "the thread is told to end": (rich.live._RefreshThread, "stop"),
    "what is printed is no longer redirected": (rich.live.Live, "_disable_redirect_io"),
}


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("instant", INSTANTS)
def test_ctrl_c_at_any_instant_leaves_the_terminal_as_it_was(monkeypatch, instant, before):
    """It is what the user sees, once the line is whole or gone: the cursor shows, and nothing draws any more."""
    screen, owner, name = Screen(True), *INSTANTS[instant]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    whole, threads, interrupted = getattr(owner, name), [], []
    run = rich.live._RefreshThread.run

    def noted(self):
        threads.append(self)
        run(self)

    def interrupt(self, *arguments, **named):
        if threading.current_thread() is not threading.main_thread():
            return whole(self, *arguments, **named)
        if before:
            interrupted.append(signal.raise_signal(signal.SIGINT))
        found = whole(self, *arguments, **named)
        if not before:
            interrupted.append(signal.raise_signal(signal.SIGINT))
        return found

    monkeypatch.setattr(rich.live._RefreshThread, "run", noted)
    monkeypatch.setattr(owner, name, interrupt)
    with pytest.raises(KeyboardInterrupt), Progress("fitting", True) as line:
        line.update(0.5)
    assert interrupted
    assert sys.stderr is screen
    shown = screen.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert shown.index("\x1b[?25l") < shown.index("\x1b[?25h")
    for thread in threads:
        thread.join(20.0)
        assert not thread.is_alive()
    assert len(threads) == 1


@pytest.mark.parametrize("begun", [False, True])
def test_a_thread_that_does_not_begin_leaves_the_terminal_as_it_was(monkeypatch, begun):
    screen, start, threads = Screen(True), threading.Thread.start, []
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")

    def refused(self):
        threads.append(self)
        if begun:
            start(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(KeyboardInterrupt), Progress("fitting", True) as line:
        line.update(0.5)
    assert sys.stderr is screen
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")
    assert len(threads) == 1
    if begun:
        threads[0].join(20.0)
    assert not threads[0].is_alive()
