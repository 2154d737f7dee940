"""Requests of OpenAI's API: checked, and converted to options of Generator.stream.

Fields and their meaning: https://platform.openai.com/docs/api-reference. Fields that OpenAI does not have are those of
other servers of open models: top_k, min_p, repetition_penalty, ignore_eos, chat_template_kwargs.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...wire.datatypes import is_unicode
from ...wire.serve_errors import Invalid, Unsupported, nearest_hint

_MOST_CHOICES = 16
_MOST_STOPS = 16
_SEEDS = (1 << 62) - 1
_DEFAULT_COMPLETION_TOKENS = 16  # of OpenAI's /v1/completions
NO_UNICODE = "has a text that is no Unicode: half of a surrogate pair is no character"
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class TextRequest:
    """One request. prompts: the texts to continue, or one list of messages. choices: texts for each prompt.

    options: those of Generator.stream. echo: begin texts with their prompts. most_calls: calls of functions that are
    looked for in the answer; None for any number. usage: send the numbers of tokens at the end of a stream.
    """

    model: str
    prompts: Sequence[Any]
    choices: int
    options: Mapping[str, Any]
    stream: bool = False
    usage: bool = False
    echo: bool = False
    most_calls: int | None = 0

    def option_sets(self) -> list[dict[str, Any]]:
        """The options of each text, prompts first. Texts of one prompt differ by their seeds."""
        made = []
        for prompt in self.prompts:
            seed = self.options.get("seed")
            for number in range(self.choices):
                own = {**self.options, "prompt": prompt}
                if self.choices > 1:
                    own["seed"] = (secrets.randbits(48) if seed is None else seed) + number
                made.append(own)
        return made


def read_completion(body: Mapping[str, Any]) -> TextRequest:
    """A request for /v1/completions. Invalid, Unsupported."""
    fields = read_fields(body, {**_COMMON, **_COMPLETION})
    prompts = _prompts(fields.pop("prompt", None))
    fields.setdefault("max_tokens", _DEFAULT_COMPLETION_TOKENS)
    if (best := fields.pop("best_of", None)) is not None and best != fields.get("n", 1):
        raise _lacking("best_of", "other than 'n' is not offered; ask for 'n' texts, and choose by their logprobs")
    if fields.pop("suffix", None):
        raise _lacking("suffix", "is not offered; write the gap into the prompt, in the words of the model")
    echo = fields.pop("echo", False)
    if echo and fields.get("logprobs") is not None:
        raise _lacking("logprobs", "of prompts are not offered; ask for logprobs or for echo")
    return _request(fields, prompts, echo)


def read_chat(body: Mapping[str, Any]) -> TextRequest:
    """A request for /v1/chat/completions. Invalid, Unsupported."""
    fields = read_fields(body, {**_COMMON, **_CHAT})
    messages = fields.pop("messages", None)
    if messages is None:
        raise wrong("messages", "is missing: a list of {'role', 'content'}")
    longest = fields.pop("max_completion_tokens", None)
    if longest is not None:
        fields["max_tokens"] = longest
    count = fields.pop("top_logprobs", None)
    if fields.pop("logprobs", False):
        fields["logprobs"] = count or 0
    elif count is not None:
        raise wrong("top_logprobs", "needs 'logprobs': true")
    tools, choice = fields.pop("tools", None), fields.pop("tool_choice", None)
    if choice is not None and not tools:
        raise wrong("tool_choice", "needs 'tools'")
    if choice not in (None, "auto", "none"):
        raise _lacking("tool_choice", f"{str(choice)[:64]!r} is not offered: texts are not constrained; use 'auto'")
    if (form := fields.pop("response_format", None)) is not None and form.get("type") != "text":
        raise _lacking("response_format", "is not offered except {'type': 'text'}: texts are not constrained")
    several_calls = fields.pop("parallel_tool_calls", True)
    if tools and choice != "none":
        fields["tools"] = tools
    if (template := fields.pop("chat_template_kwargs", None)) is not None:
        fields["template_options"] = template
    most_calls = (None if several_calls else 1) if fields.get("tools") else 0
    return _request(fields, [messages], most_calls=most_calls)


def _request(
    fields: dict[str, Any], prompts: Sequence[Any], echo: bool = False, most_calls: int | None = 0
) -> TextRequest:
    stream, details = fields.pop("stream", False), fields.pop("stream_options", None)
    if details is not None and not stream:
        raise wrong("stream_options", "needs 'stream': true")
    if "ignore_eos" in fields:
        fields["ignore_end"] = fields.pop("ignore_eos")
    model, choices = fields.pop("model", None), fields.pop("n", 1)
    if model is None:
        raise wrong("model", "is missing: GET /v1/models lists names")
    if len(prompts) * choices > _MOST_CHOICES:
        raise wrong("n", f"{choices} and {len(prompts)} prompts are more than {_MOST_CHOICES} texts at once")
    usage = bool(details and details.get("include_usage"))
    return TextRequest(model, prompts, choices, fields, stream, usage, echo, most_calls)


def read_fields(body: Mapping[str, Any], known: Mapping[str, Check | None]) -> dict[str, Any]:
    """The checked fields that have a value. Invalid for unknown ones, with the nearest known name."""
    found = {}
    for name, value in body.items():
        if name not in known:
            failure = Invalid(f"there is no field '{name[:64]}'{nearest_hint(name, known)}")
            failure.param = name[:64]
            raise failure
        check = known[name]
        if value is not None and check is not None:
            found[name] = check(name, value)
    return found


def wrong(name: str, rest: str) -> Invalid:
    """An error about a field."""
    failure = Invalid(f"'{name}' {rest}")
    failure.param = name.partition("[")[0]
    return failure


def _lacking(name: str, rest: str) -> Unsupported:
    """An error about a field of OpenAI's that is not offered."""
    failure = Unsupported(f"'{name}' {rest}")
    failure.param = name.partition("[")[0]
    return failure


def _of(kind: str, *types: type) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise wrong(name, f"is {kind}, got {str(value)[:64]!r}")
        return value

    return check


def _between(kind: Check, low: float, high: float) -> Check:
    def check(name: str, value: Any) -> Any:
        if not low <= kind(name, value) <= high:
            raise wrong(name, f"is from {low:g} to {high:g}, got {value}")
        return value

    return check


def _stops(name: str, value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or len(found) > _MOST_STOPS or not all(isinstance(s, str) and s for s in found):
        raise wrong(name, f"is a text, or a list of up to {_MOST_STOPS} texts, each of one character at least")
    return found


def _bias(name: str, value: Any) -> dict[str, float]:
    fits = isinstance(value, dict) and all(
        key.isascii() and key.isdigit() and isinstance(n, int | float) and not isinstance(n, bool) and -100 <= n <= 100
        for key, n in value.items()
    )
    if not fits:
        raise wrong(name, "is an object of numbers from -100 to 100 by token ids")
    return dict(value)


def _messages(name: str, value: Any) -> list[dict[str, Any]]:
    """Messages for a chat template: contents are texts, arguments of calls are objects.

    Invalid, Unsupported for pictures and sounds.
    """
    if not isinstance(value, list) or not value:
        raise wrong(name, "is a list of {'role', 'content'}")
    made = []
    for number, message in enumerate(value):
        where = f"{name}[{number}]"
        if not isinstance(message, dict) or message.get("role") not in tuple(_ROLES):
            raise wrong(where, f"is an object whose 'role' is one of {', '.join(_ROLES)}")
        if strange := next((key for key in message if key not in _OF_MESSAGES), ""):
            raise wrong(where, f"has no field '{strange[:64]}'{nearest_hint(strange, _OF_MESSAGES)}")
        content = message.get("content")
        if isinstance(content, list):
            kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
            if other := next((k for k in kinds if k != "text"), ""):
                raise _lacking(where, f"has a part of type {str(other)[:64]!r}; the model reads texts")
            if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
                raise wrong(where, "has parts that are not {'type': 'text', 'text'}")
            content = "".join(part["text"] for part in content)
        elif content is not None and not isinstance(content, str):
            raise wrong(where, "has a 'content' that is no text and no list of parts")
        calls = message.get("tool_calls")
        if content is None and not calls:
            raise wrong(where, "has no 'content'")
        own = {**message, "role": _ROLES[message["role"]], "content": content or ""}
        if calls is not None:
            own["tool_calls"] = _past_calls(where, calls)
        made.append(own)
    return made


def _past_calls(where: str, calls: Any) -> list[dict[str, Any]]:
    """Calls of an earlier answer. Their arguments are JSON in a text for clients, and an object for templates."""
    made = []
    for call in calls if isinstance(calls, list) else [None]:
        function: Any = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise wrong(where, "has 'tool_calls' that are no list of {'id', 'type', 'function': {'name', 'arguments'}}")
        arguments = function.get("arguments")
        try:
            parsed = json.loads(arguments) if isinstance(arguments, str) and arguments else arguments or {}
        except (ValueError, RecursionError):
            raise wrong(where, f"calls '{function['name'][:64]}' with arguments that are no JSON") from None
        made.append({**call, "function": {**function, "arguments": parsed}})
    return made


def _tools(name: str, value: Any) -> list[dict[str, Any]]:
    tools: list[Any] = value if isinstance(value, list) else [None]
    functions = [t.get("function") if isinstance(t, dict) and t.get("type") == "function" else None for t in tools]
    if not all(isinstance(f, dict) and isinstance(f.get("name"), str) for f in functions):
        raise wrong(name, "is a list of {'type': 'function', 'function': {'name', ...}}")
    return tools


def _stream_options(name: str, value: Any) -> dict[str, Any]:
    known = ("include_usage", "include_obfuscation")
    for key, flag in _OBJECT(name, value).items():
        if key not in known or not isinstance(flag, bool):
            raise wrong(
                name, f"is an object of flags, {' and '.join(known)}, got {key[:64]!r}{nearest_hint(key, known)}"
            )
    found: dict[str, Any] = value
    return found


def _prompts(value: Any) -> list[Any]:
    """The prompts of a completion: texts, or lists of tokens."""
    several: Any = [value] if isinstance(value, str) else value
    if isinstance(several, list) and several:
        if all(isinstance(v, str) for v in several):
            if not all(map(is_unicode, several)):
                raise wrong("prompt", NO_UNICODE)
            return list(several)
        if are_tokens(value):
            return [value]
        if all(isinstance(v, list) and v and are_tokens(v) for v in value):
            return list(value)
    raise wrong("prompt", "is a text, a list of texts, a list of tokens, or a list of lists of tokens")


def are_tokens(values: list[Any]) -> bool:
    """Whether all values are ids of tokens."""
    return all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 31 for v in values)


_FLAG, NAME, _OBJECT = _of("true or false", bool), _of("a text", str), _of("an object", dict)
_NUMBER, _WHOLE = _of("a number", int, float), _of("a whole number", int)
_ROLES = {role: role for role in ("system", "user", "assistant", "tool", "function")} | {"developer": "system"}
"""Roles of messages, as templates know them."""
_OF_MESSAGES = (
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"),
    *("reasoning", "reasoning_content"),
)
"""Fields of a message, those of answers that clients send back included."""
COUNT = _between(_WHOLE, 1, 1 << 30)
_COMMON: dict[str, Check | None] = {
    "model": NAME,
    "max_tokens": COUNT,
    "temperature": _between(_NUMBER, 0, 2),
    "top_p": _between(_NUMBER, 0, 1),
    "n": _between(_WHOLE, 1, _MOST_CHOICES),
    "stream": _FLAG,
    "stream_options": _stream_options,
    "stop": _stops,
    "presence_penalty": _between(_NUMBER, -2, 2),
    "frequency_penalty": _between(_NUMBER, -2, 2),
    "logit_bias": _bias,
    "seed": lambda name, value: _WHOLE(name, value) & _SEEDS,
    "top_k": _between(_WHOLE, 0, 1 << 30),
    "min_p": _between(_NUMBER, 0, 1),
    "repetition_penalty": _between(_NUMBER, 0.01, 100),
    "ignore_eos": _FLAG,
    "user": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
}
"""Fields of both calls; those with None change no answer, and are accepted with any value."""
_COMPLETION: dict[str, Check | None] = {
    "prompt": lambda name, value: value,
    "echo": _FLAG,
    "logprobs": _between(_WHOLE, 0, 20),
    "best_of": _WHOLE,
    "suffix": NAME,
}
_CHAT: dict[str, Check | None] = {
    "messages": _messages,
    "max_completion_tokens": COUNT,
    "logprobs": _FLAG,
    "top_logprobs": _between(_WHOLE, 0, 20),
    "tools": _tools,
    "tool_choice": lambda name, value: value,
    "parallel_tool_calls": _FLAG,
    "response_format": _OBJECT,
    "chat_template_kwargs": _OBJECT,
    "metadata": None,
    "store": None,
    "service_tier": None,
}
