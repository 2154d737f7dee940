"""Messages of errors: what is too long to be read is shortened, whatever part of a message it is."""

from __future__ import annotations

import pytest

from opalite.errors import MAX_LINE, MAX_LIST, OpaliteError, ShapeError, shorten
from opalite.ir import DType, TensorType


def test_what_is_short_stays() -> None:
    for text in (
        "",
        "Conv node 'a' has 3 inputs; Conv takes up to 2\n  while importing it",
        f"known are {', '.join(f'name_{i}' for i in range(MAX_LIST - 1))}",
        f"there is no file '/{'folder/' * 30}m.onnx'",
        "\n".join("a line of a build log" for _ in range(1000)),
    ):
        assert str(OpaliteError(text)) == text


@pytest.mark.parametrize(
    "part",
    [
        "n" * 3_000_000,
        str((1,) * 5000),
        str([0] * 300_000),
        str(TensorType(DType.FLOAT32, (1,) * 5000)),
        ", ".join(f"'input_{i}'" for i in range(50_000)),
        ", ".join("(1, 2, 3)" for _ in range(1000)),
        "a name with spaces " * 100_000,
        ",".join("x" * 300 for _ in range(500)),
    ],
    ids=["name", "shape", "list", "type", "names", "shapes", "spaces", "long names"],
)
def test_what_is_long_is_shortened_and_its_surroundings_stay(part: str) -> None:
    error = ShapeError(f"Reshape node 'r' got {part} and that is all").add_context(f"while importing {part} of it")
    first, second = str(error).split("\n")
    assert first.startswith("Reshape node 'r' got ")
    assert first.endswith("and that is all")
    assert second.startswith("  while importing ")
    assert second.endswith("of it")
    for line in (first, second):
        assert "…" in line
        assert len(line) <= MAX_LINE + 3
    assert error.args == (str(error),)


def test_a_list_shows_its_two_ends() -> None:
    told = shorten(f"got {', '.join(map(str, range(1000)))}")
    assert told.startswith("got 0, 1, 2, ")
    assert told.endswith(", 998, 999")
    assert len(told) < 100
