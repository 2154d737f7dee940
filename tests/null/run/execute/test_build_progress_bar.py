"""The progress bar of builds."""

from __future__ import annotations

import io

import pytest

from opalite.run.execute.build_progress_bar import PATIENCE_S, build_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def draw(stream: io.StringIO, seconds: float) -> str:
    times = iter((0.0, *[seconds] * 9))
    with build_progress(stream, lambda: next(times)) as report:
        if report is not None:
            report(1, 3)
            report(3, 3)
    return stream.getvalue()


def test_a_bar_that_is_cleared_in_the_end() -> None:
    lines = draw(Terminal(), PATIENCE_S + 1).split("\r")
    assert lines[1:] == [
        "compiling kernels [##########....................] 1/3 ",
        "compiling kernels [##############################] 3/3 ",
        "\x1b[K",
    ]


def test_quick_builds_show_nothing() -> None:
    assert draw(Terminal(), PATIENCE_S / 2) == ""


def test_files_and_pipes_get_nothing() -> None:
    assert draw(io.StringIO(), PATIENCE_S + 1) == ""


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PROGRESS", "0")
    assert draw(Terminal(), PATIENCE_S + 1) == ""


def interrupted(stream: io.StringIO) -> None:
    times = iter((0.0, 9.0))
    with build_progress(stream, lambda: next(times)) as report:
        assert report is not None
        report(1, 2)
        raise KeyboardInterrupt


def test_a_build_that_ends_early_clears_it_too() -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt):
        interrupted(stream)
    assert stream.getvalue().endswith("\x1b[K")
