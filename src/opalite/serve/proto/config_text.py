"""Parser of model configurations: `config.pbtxt` in protobuf's text format, and JSON.

Fields that Opalite does not support are skipped, and their names returned for a warning. Errors in supported fields are
Invalid. Format: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format, text_format

from ..wire.serve_errors import Invalid
from .message_classes import ModelConfig

_TOKEN = re.compile(r"""\s+|\#[^\n]*|(?P<token>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[\w.+-]+|\S)""", re.VERBOSE)
_CLOSING = {"{": "}", "<": ">", "[": "]"}
_QUOTES = "\"'"


@dataclass(frozen=True)
class ReadConfig:
    """A ModelConfig message. ignored: paths of unsupported fields, such as 'input.format'.

    gives_batch_size: whether max_batch_size is present, which the message does not distinguish from 0.
    """

    message: Any
    ignored: tuple[str, ...]
    gives_batch_size: bool


def read_config_text(text: str, where: str) -> ReadConfig:
    """Parse a config.pbtxt. Invalid, with `where` (a path) and the line."""
    message = ModelConfig()
    scan = _Scan(text)
    try:
        text_format.Parse(scan.text_of_ours(), message)
    except text_format.ParseError as e:
        raise Invalid(f"{where}: not a model configuration in protobuf's text format: {e}") from None
    return ReadConfig(message, scan.ignored, "max_batch_size" in scan.given)


def read_config_json(config: Mapping[str, Any], where: str) -> ReadConfig:
    """Parse a JSON configuration with Triton's names (`max_batch_size`) or camel case. Invalid."""
    message = ModelConfig()
    ignored: dict[str, None] = {}
    _find_unknown_in_json(config, ModelConfig.DESCRIPTOR, "", ignored)
    try:
        json_format.ParseDict(config, message, ignore_unknown_fields=True)
    except (json_format.ParseError, TypeError, ValueError, AttributeError) as e:
        raise Invalid(f"{where}: not a model configuration: {e}") from None
    return ReadConfig(message, tuple(ignored), "max_batch_size" in config or "maxBatchSize" in config)


def config_as_json(message: Any) -> dict[str, Any]:
    """A ModelConfig message as JSON of Triton's HTTP API: snake-case names, numbers, scalar defaults."""
    plain: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    _complete(plain, message.DESCRIPTOR)
    return plain


def _complete(plain: dict[str, Any], descriptor: Any) -> None:
    """Convert 64-bit numbers, which protobuf writes as texts, and add defaults."""
    for name, field in descriptor.fields_by_name.items():
        if name not in plain:
            if not field.has_presence:
                plain[name] = _default(field)
            continue
        value = plain[name]
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"].message_type
            for one in value.values():
                _complete(one, inner)
        elif field.message_type is not None:
            for one in value if isinstance(value, list) else [value]:
                _complete(one, field.message_type)
        elif field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            plain[name] = [int(v) for v in value] if isinstance(value, list) else int(value)


def _default(field: Any) -> Any:
    """The JSON form of a field's default."""
    if _is_map(field):
        return {}
    value = field.default_value
    if isinstance(value, list):
        return []
    return value if field.enum_type is None else field.enum_type.values_by_number[value].name


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _find_unknown_in_json(config: Any, descriptor: Any, path: str, found: dict[str, None]) -> None:
    if not isinstance(config, Mapping):
        return  # ParseDict refuses it
    by_name = {name: f for f in descriptor.fields for name in (f.name, f.json_name)}
    for name, value in config.items():
        field = by_name.get(name)
        if field is None:
            found[f"{path}{name}"] = None
        elif _is_map(field):
            for one in value.values() if isinstance(value, Mapping) else ():
                _find_unknown_in_json(
                    one, field.message_type.fields_by_name["value"].message_type, f"{path}{name}.", found
                )
        elif field.message_type is not None:
            for one in value if isinstance(value, list) else [value]:
                _find_unknown_in_json(one, field.message_type, f"{path}{name}.", found)


class _Scan:
    """Scans protobuf's text format for fields that our messages do not have.

    Malformed text is left to the parser, which reports the error.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(m["token"], m.start(), m.end()) for m in _TOKEN.finditer(text) if m["token"]]
        self._next = 0
        self._spans: list[tuple[int, int]] = []
        self._ignored: dict[str, None] = {}
        self.given: set[str] = set()
        while self._next < len(self._tokens):
            self.given.add(self._field(ModelConfig.DESCRIPTOR, ""))

    @property
    def ignored(self) -> tuple[str, ...]:
        """Paths of unsupported fields, each once, in order."""
        return tuple(self._ignored)

    def text_of_ours(self) -> str:
        """The text with unsupported fields blanked, so that lines and columns stay."""
        text = self._text
        for start, end in self._spans:
            text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        return text

    def _field(self, descriptor: Any, path: str) -> str:
        """Scan one field, `name: value`, `name { ... }` or `name: [ ... ]`; return its name."""
        first, ends = self._next, True
        name = self._take()
        field = descriptor.fields_by_name.get(name)
        self._try(":")
        if field is None or field.message_type is None:
            ends = self._value()
        elif self._try("["):
            while not self._try("]") and self._left():
                self._message(field.message_type, f"{path}{name}.")
                self._try(",")
        else:
            self._message(field.message_type, f"{path}{name}.")
        if not self._try(";"):
            self._try(",")
        if field is None and ends and name.isidentifier():
            self._ignored[f"{path}{name}"] = None
            self._spans.append((self._tokens[first][1], self._tokens[self._next - 1][2]))
        return name

    def _message(self, descriptor: Any, path: str) -> None:
        closing = _CLOSING.get(self._take(), "}")
        while self._left() and not self._try(closing):
            self._field(descriptor, path)

    def _value(self) -> bool:
        """Scan a scalar or a bracketed value; False if the text ends before its end."""
        closing: list[str] = []
        while self._left():
            token = self._take()
            if token in _CLOSING:
                closing.append(_CLOSING[token])
            elif closing and token == closing[-1]:
                closing.pop()
            adjacent = token[0] in _QUOTES and self._left() and self._tokens[self._next][0][0] in _QUOTES
            if not closing and not adjacent:  # adjacent texts are one text
                return True
        return False

    def _left(self) -> bool:
        return self._next < len(self._tokens)

    def _take(self) -> str:
        if not self._left():
            return ""
        self._next += 1
        return self._tokens[self._next - 1][0]

    def _try(self, token: str) -> bool:
        found = self._left() and self._tokens[self._next][0] == token
        self._next += found
        return found
