"""Calls of functions in a model's answer, in the forms that open models write."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

_TAGGED = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_LISTED = re.compile(r"\[TOOL_CALLS\]\s*(\[.*\])", re.DOTALL)


def find_tool_calls(text: str, most: int | None = None) -> tuple[str, list[dict[str, Any]]]:
    """The text without calls, and the first `most` calls as OpenAI's objects; text that is no call stays text.

    Forms: <tool_call>{"name", "arguments"}</tool_call> (Hermes, Qwen), [TOOL_CALLS][...] (Mistral), and an answer that
    is one object {"name", "parameters"} (Llama 3).
    """
    if found := _TAGGED.findall(text):
        calls = [_call(_parse(one)) for one in found]
        rest = _TAGGED.sub("", text)
    elif listed := _LISTED.search(text):
        several = _parse(listed[1])
        calls = [_call(one) for one in several] if isinstance(several, list) else [None]
        rest = _LISTED.sub("", text)
    else:
        calls, rest = [_call(_parse(text.removeprefix("<|python_tag|>")))], ""
    made = [call for call in calls if call is not None]
    return (rest.strip(), made[:most]) if made and len(made) == len(calls) else (text, [])


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _call(found: Any) -> dict[str, Any] | None:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters"))
    if not isinstance(arguments, dict | str):
        return None
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    identity = f"call_{secrets.token_hex(12)}"
    return {"id": identity, "type": "function", "function": {"name": found["name"], "arguments": text}}
