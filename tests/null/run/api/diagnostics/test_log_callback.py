"""A function that takes all messages."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opalite.errors import InputTypeError, OptionError
from opalite.run.api.diagnostics.ort_logging import (
    SessionLog,
    StderrHandler,
    set_default_logger_callback,
    set_default_logger_severity,
)

Message = tuple[int, str, str, str, str]
root = logging.getLogger("opalite")
log = logging.getLogger("opalite.cache.binary_store")


@pytest.fixture(autouse=True)
def _logging_stays() -> Iterator[None]:
    level, handlers, propagate = root.level, list(root.handlers), root.propagate
    yield
    set_default_logger_callback(None)
    root.setLevel(level)
    root.handlers[:], root.propagate = handlers, propagate


@pytest.fixture
def told() -> list[Message]:
    found: list[Message] = []
    set_default_logger_callback(lambda *message: found.append(message))
    return found


class Seen(logging.Handler):
    """Keeps the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What Python's logging gets; pytest's caplog also listens at loggers that hand nothing on."""
    seen = Seen()
    logging.getLogger().addHandler(seen)
    yield seen.texts
    logging.getLogger().removeHandler(seen)


def test_the_callback_gets_each_part_of_a_message(told: list[Message], logged: list[str]) -> None:
    log.warning("cannot write %s", "there")
    SessionLog(1, "mine").log(logging.INFO, "a session's own severity counts")
    SessionLog().log(logging.INFO, "below the default")
    here = Path(__file__).name
    assert [(s, c, i, m) for s, c, i, _, m in told] == [
        (2, "opalite.cache.binary_store", "", "cannot write there"),
        (1, "opalite.session", "mine", "a session's own severity counts"),
    ]
    for *_, where, _ in told:
        assert where.startswith(f"{here}:")
        assert where.endswith(" test_the_callback_gets_each_part_of_a_message")
    assert logged == [], "a callback takes the messages from Python's logging"


def test_severities(told: list[Message]) -> None:
    for severity, want in ((0, [0, 1, 2, 3, 4]), (2, [2, 3, 4]), (4, [4])):
        set_default_logger_callback(lambda *message: told.append(message), severity=severity)
        told.clear()
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
            log.log(level, "text")
        assert [m[0] for m in told] == want


def test_none_restores_pythons_logging(told: list[Message], logged: list[str]) -> None:
    set_default_logger_callback(None, severity=4)
    log.warning("again")
    assert told == []
    assert logged == ["again"], "the severity is that of before: None changes none"


def test_the_handler_of_opalite_is_set_aside(capsys: pytest.CaptureFixture[str]) -> None:
    """Opalite's handler exists if the program has none, and returns after a callback."""
    root.propagate = False
    set_default_logger_severity(1)
    assert [type(h) for h in root.handlers] == [StderrHandler]
    log.info("one")
    set_default_logger_callback(lambda *message: None, 1)
    log.info("two")
    set_default_logger_callback(None)
    log.info("three")
    assert capsys.readouterr().err == "I opalite: one\nI opalite: three\n"


def test_handlers_of_the_program_still_get_messages(told: list[Message]) -> None:
    seen = Seen()
    root.addHandler(seen)
    log.warning("both")
    assert (seen.texts, told[0][4]) == (["both"], "both")


def raise_it(*message: Any) -> None:
    raise ValueError("the callback's own fault")


def tell_more(*message: Any) -> None:
    log.warning("within: %s", message[4])


@pytest.mark.parametrize(
    "callback, want, unraisable",
    [(raise_it, ["text"], ["the callback's own fault"]), (tell_more, ["within: text"], [])],
    ids=["raises", "tells"],
)
def test_messages_of_a_failing_callback_go_to_logging(
    callback: Callable[..., None],
    want: list[str],
    unraisable: list[str],
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: raised.append(str(told.exc_value)))
    set_default_logger_callback(callback)
    log.warning("text")
    assert (logged, raised) == (want, unraisable)


def test_a_callback_may_wait_for_a_thread_that_tells_something() -> None:
    found: list[str] = []

    def callback(*message: Any) -> None:
        found.append(message[4])
        if message[4] == "one":
            other = threading.Thread(target=log.warning, args=("two",))
            other.start()
            other.join(10)

    set_default_logger_callback(callback)
    log.warning("one")
    assert found == ["one", "two"]


def test_a_callback_may_remove_itself(logged: list[str]) -> None:
    found: list[str] = []

    def callback(*message: Any) -> None:
        found.append(message[4])
        set_default_logger_callback(None)

    set_default_logger_callback(callback)
    log.warning("taken")
    logged.clear()
    log.warning("after")
    assert (found, logged) == (["taken"], ["after"])


@pytest.mark.parametrize("callback", ["print", 5, ()])
def test_a_callback_can_be_called(callback: Any) -> None:
    with pytest.raises(OptionError, match="a log callback is a function of"):
        set_default_logger_callback(callback)


def test_a_severity_is_checked_in_any_case(told: list[Message]) -> None:
    with pytest.raises(OptionError, match="got 9"):
        set_default_logger_callback(None, 9)
    with pytest.raises(InputTypeError, match="severity is a whole number"):
        set_default_logger_callback(print, "warning")  # type: ignore[arg-type]
    log.warning("still")
    assert told[-1][4] == "still"
