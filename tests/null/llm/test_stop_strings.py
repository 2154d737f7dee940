"""Stop strings: found across pieces, never emitted, and no other text is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opalite.errors import OptionError
from opalite.llm.stop_strings import StopStrings


def write(pieces: list[str], *strings: str) -> tuple[str, bool]:
    stops, told = StopStrings(strings), ""
    for piece in pieces:
        text, met = stops.add(piece)
        told += text
        if met:
            return told, True
    return told + stops.end(), False


@given(st.lists(st.text("ab\n", max_size=4)), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_text_ends_at_the_first_string(pieces: list[str], strings: list[str]) -> None:
    told, met = write(pieces, *strings)
    assert met == any(s in "".join(pieces) for s in strings)
    assert not any(s in told for s in strings)
    assert "".join(pieces).startswith(told)
    if not met:
        assert told == "".join(pieces)


def test_what_may_begin_a_string_is_held_back() -> None:
    stops = StopStrings(["\n\nUser:"])
    assert stops.add("Yes.\n") == ("Yes.", False)
    assert stops.add("\nUs") == ("", False)
    assert stops.add("e it.") == ("\n\nUse it.", False)
    assert stops.add(" No.\n\nUser: more") == (" No.", True)


def test_an_empty_string_is_refused() -> None:
    with pytest.raises(OptionError, match="at least one character"):
        StopStrings([""])
