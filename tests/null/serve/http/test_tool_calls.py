"""Calls of functions in answers: the forms of several models; what is no call stays text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opalite.serve.http.openai.tool_calls import find_tool_calls

CALL = {"name": "add", "arguments": {"a": 1, "b": "ä"}}


@pytest.mark.parametrize(
    "text, rest, count",
    [
        (f"I add.\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>", "I add.", 1),
        (f"<tool_call>{json.dumps(CALL)}</tool_call>" * 2, "", 2),
        (f"[TOOL_CALLS] [{json.dumps(CALL)}]", "", 1),
        (json.dumps({"name": "add", "parameters": CALL["arguments"]}), "", 1),
        ("<|python_tag|>" + json.dumps({"name": "add", "parameters": CALL["arguments"]}), "", 1),
    ],
)
def test_calls_are_found(text: str, rest: str, count: int) -> None:
    content, calls = find_tool_calls(text)
    assert (content, len(calls)) == (rest, count)
    assert len({c["id"] for c in calls}) == count
    for call in calls:
        assert call["function"]["name"] == "add"
        assert json.loads(call["function"]["arguments"]) == CALL["arguments"]


@pytest.mark.parametrize(
    "text",
    [
        "no call",
        "",
        "<tool_call>{not json}</tool_call>",
        '<tool_call>{"name": 3}</tool_call>',
        '{"name": "add"}',
        "[TOOL_CALLS] [1]",
        "[" * 100_000,
        '{"a": 1}',
    ],
)
def test_other_text_stays(text: str) -> None:
    found: tuple[str, list[Any]] = find_tool_calls(text)
    assert found == (text, [])
