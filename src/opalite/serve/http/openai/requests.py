"""Requests of OpenAI's API: checked, and converted to options of Generator.stream.

Fields and their meaning: https://platform.openai.com/docs/api-reference. Fields that OpenAI does not have are those of
other servers of open models: top_k, min_p, repetition_penalty, ignore_eos, chat_template_kwargs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...wire.serve_errors import Invalid, Unsupported, nearest_hint

_MOST_CHOICES = 16
_MOST_STOPS = 16
_SEEDS = (1 << 62) - 1
_DEFAULT_COMPLETION_TOKENS = 16  # of OpenAI's /v1/completions
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class TextRequest:
    """One request. prompts: the texts to continue, or one list of messages. choices: texts for each prompt.

    options: those of Generator.stream. echo: begin texts with their prompts. has_tools: whether calls of functions are
    looked for in the answer. usage: send the numbers of tokens at the end of a stream.
    """

    model: str
    prompts: Sequence[Any]
    choices: int
    options: Mapping[str, Any]
    stream: bool = False
    usage: bool = False
    echo: bool = False
    has_tools: bool = False

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
    fields = _read(body, {**_COMMON, **_COMPLETION})
    prompts = _prompts(fields.pop("prompt", None))
    fields.setdefault("max_tokens", _DEFAULT_COMPLETION_TOKENS)
    if (best := fields.pop("best_of", None)) is not None and best != fields.get("n", 1):
        raise Unsupported("'best_of' other than 'n' is not offered; ask for 'n' texts, and choose by their logprobs")
    if fields.pop("suffix", None):
        raise Unsupported("'suffix' is not offered; write the gap into the prompt, in the words of the model")
    echo = fields.pop("echo", False)
    return _request(fields, prompts, echo)


def read_chat(body: Mapping[str, Any]) -> TextRequest:
    """A request for /v1/chat/completions. Invalid, Unsupported."""
    fields = _read(body, {**_COMMON, **_CHAT})
    messages = fields.pop("messages", None)
    if messages is None:
        raise Invalid("'messages' is missing: a list of {'role', 'content'}")
    longest = fields.pop("max_completion_tokens", None)
    if longest is not None:
        fields["max_tokens"] = longest
    count = fields.pop("top_logprobs", None)
    if fields.pop("logprobs", False):
        fields["logprobs"] = count or 0
    elif count is not None:
        raise Invalid("'top_logprobs' needs 'logprobs': true")
    tools, choice = fields.pop("tools", None), fields.pop("tool_choice", None)
    if choice not in (None, "auto", "none"):
        raise Unsupported(f"'tool_choice' {choice!r} is not offered, because texts are not constrained; use 'auto'")
    if (form := fields.pop("response_format", None)) is not None and form.get("type") != "text":
        raise Unsupported("'response_format' is not offered except {'type': 'text'}: texts are not constrained")
    if tools and choice != "none":
        fields["tools"] = tools
    if (template := fields.pop("chat_template_kwargs", None)) is not None:
        fields["template_options"] = template
    return _request(fields, [messages], False, bool(fields.get("tools")))


def _request(fields: dict[str, Any], prompts: Sequence[Any], echo: bool, has_tools: bool = False) -> TextRequest:
    stream, details = fields.pop("stream", False), fields.pop("stream_options", None)
    if details is not None and not stream:
        raise Invalid("'stream_options' needs 'stream': true")
    if "ignore_eos" in fields:
        fields["ignore_end"] = fields.pop("ignore_eos")
    model, choices = fields.pop("model", None), fields.pop("n", 1)
    if model is None:
        raise Invalid("'model' is missing: GET /v1/models lists names")
    if len(prompts) * choices > _MOST_CHOICES:
        raise Invalid(f"{len(prompts)} prompts with 'n' {choices} are more than {_MOST_CHOICES} texts at once")
    usage = bool(details and details.get("include_usage"))
    return TextRequest(model, prompts, choices, fields, stream, usage, echo, has_tools)


def _read(body: Mapping[str, Any], known: Mapping[str, Check | None]) -> dict[str, Any]:
    """The checked fields that have a value. Invalid for unknown ones, with the nearest known name."""
    found = {}
    for name, value in body.items():
        if name not in known:
            raise Invalid(f"there is no field '{name[:64]}'{nearest_hint(name, known)}")
        check = known[name]
        if value is not None and check is not None:
            found[name] = check(name, value)
    return found


def _of(kind: str, *types: type) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise Invalid(f"'{name}' is {kind}, got {str(value)[:64]!r}")
        return value

    return check


def _between(kind: Check, low: float, high: float) -> Check:
    def check(name: str, value: Any) -> Any:
        if not low <= kind(name, value) <= high:
            raise Invalid(f"'{name}' is from {low:g} to {high:g}, got {value}")
        return value

    return check


def _stops(name: str, value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or len(found) > _MOST_STOPS or not all(isinstance(s, str) and s for s in found):
        raise Invalid(f"'{name}' is a text, or a list of up to {_MOST_STOPS} texts, each of one character at least")
    return found


def _bias(name: str, value: Any) -> dict[str, float]:
    fits = isinstance(value, dict) and all(
        key.isascii() and key.isdigit() and isinstance(n, int | float) and not isinstance(n, bool) and -100 <= n <= 100
        for key, n in value.items()
    )
    if not fits:
        raise Invalid(f"'{name}' is an object of numbers from -100 to 100 by token ids")
    return dict(value)


def _messages(name: str, value: Any) -> list[dict[str, Any]]:
    """Messages whose contents are texts. Invalid, Unsupported for pictures and sounds."""
    if not isinstance(value, list) or not value:
        raise Invalid(f"'{name}' is a list of {{'role', 'content'}}")
    made = []
    for number, message in enumerate(value):
        where = f"{name}[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Invalid(f"'{where}' is an object with a 'role'")
        content = message.get("content")
        if isinstance(content, list):
            kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
            if other := next((k for k in kinds if k != "text"), ""):
                raise Unsupported(f"'{where}' has a part of type {other!r}; the model reads texts")
            if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
                raise Invalid(f"the parts of '{where}' are {{'type': 'text', 'text'}}")
            content = "".join(part["text"] for part in content)
        elif content is not None and not isinstance(content, str):
            raise Invalid(f"the content of '{where}' is a text or a list of parts")
        if content is None and not message.get("tool_calls"):
            raise Invalid(f"'{where}' has no 'content'")
        made.append({**message, "content": content or ""})
    return made


def _tools(name: str, value: Any) -> list[dict[str, Any]]:
    functions = [t.get("function") if isinstance(t, dict) and t.get("type") == "function" else None for t in value]
    if not isinstance(value, list) or not all(
        isinstance(f, dict) and isinstance(f.get("name"), str) for f in functions
    ):
        raise Invalid(f"'{name}' is a list of {{'type': 'function', 'function': {{'name', ...}}}}")
    return value


def _prompts(value: Any) -> list[Any]:
    """The prompts of a completion: texts, or lists of tokens."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if all(isinstance(v, str) for v in value):
            return value
        if _are_tokens(value):
            return [value]
        if all(isinstance(v, list) and v and _are_tokens(v) for v in value):
            return value
    raise Invalid("'prompt' is a text, a list of texts, a list of tokens, or a list of lists of tokens")


def _are_tokens(values: list[Any]) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 31 for v in values)


_FLAG, _TEXT, _OBJECT = _of("true or false", bool), _of("a text", str), _of("an object", dict)
_NUMBER, _WHOLE = _of("a number", int, float), _of("a whole number", int)
_COUNT = _between(_WHOLE, 1, 1 << 30)
_COMMON: dict[str, Check | None] = {
    "model": _TEXT,
    "max_tokens": _COUNT,
    "temperature": _between(_NUMBER, 0, 2),
    "top_p": _between(_NUMBER, 0, 1),
    "n": _between(_WHOLE, 1, _MOST_CHOICES),
    "stream": _FLAG,
    "stream_options": _OBJECT,
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
}
"""Fields of both calls; those with None change no answer, and are accepted with any value."""
_COMPLETION: dict[str, Check | None] = {
    "prompt": lambda name, value: value,
    "echo": _FLAG,
    "logprobs": _between(_WHOLE, 0, 20),
    "best_of": _WHOLE,
    "suffix": _TEXT,
}
_CHAT: dict[str, Check | None] = {
    "messages": _messages,
    "max_completion_tokens": _COUNT,
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
