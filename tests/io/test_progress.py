"""Bars on a terminal: work inside of work shares one display, and elsewhere only long work is told of."""

from __future__ import annotations

import io

import pytest

from gnndelete.io.progress import bar, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_within_a_bar_is_a_line_of_the_same_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    for item in track(["one", "two"], "outside", show=True):
        with bar("inside", 3) as update:
            update(2, f"inside {item}")
    shown = terminal.getvalue()
    assert shown.count("\x1b[?25l") == 1  # the cursor is hidden once: there was one display
    assert shown.count("\x1b[?25h") == 1
    assert "outside: two" in shown


def test_long_work_shows_a_line_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnndelete.io.progress.SILENCE", 0.0)
    assert list(track(["one", "two"], "counting", show=True)) == ["one", "two"]
    assert "counting: two: 1 of 2 done" in capsys.readouterr().err
    assert list(track([1], "counting", show=False)) == [1]
    assert capsys.readouterr() == ("", "")


def test_nothing_is_shown_of_short_work_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track([1, 2], "counting", show=True)) == [1, 2]
    with bar("counting", 2) as update:
        update(1, "one")
    assert capsys.readouterr() == ("", "")


def test_an_error_ends_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with pytest.raises(KeyError), bar("first", 1), bar("inside", 1):
        raise KeyError
    with bar("second", 1):
        pass
    assert terminal.getvalue().count("\x1b[?25h") == 2
