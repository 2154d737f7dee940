"""Read a .proto text, as far as our own go (proto3 without options): the FileDescriptorProto that protoc would make.

A text that is read when it is needed is one file that people and tools understand, and no generated code that is tied
to a release of protobuf. Language: https://protobuf.dev/reference/protobuf/proto3-spec/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2

_TOKEN = re.compile(r"\s+|//[^\n]*|(?P<token>\"[^\"]*\"|[A-Za-z_][\w.]*|\d+|[{}()<>=;,])")
_Field: Any = descriptor_pb2.FieldDescriptorProto
_SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)


class SchemaError(ValueError):
    """A .proto text that this reader does not understand; the message has file and line."""


@dataclass(frozen=True)
class Method:
    """One RPC of a service: `full_name` is "/package.Service/Name", types are fully qualified without a leading dot."""

    full_name: str
    request: str
    response: str
    request_streams: bool
    response_streams: bool

    @property
    def name(self) -> str:
        return self.full_name.rpartition("/")[2]


def read_schema(text: str, name: str) -> Any:
    """The FileDescriptorProto of `text`, called `name`. Types by name stay relative: a pool resolves them."""
    return _Reader(text, name).file()


def methods_of(file: Any, service: str) -> tuple[Method, ...]:
    """The RPCs of one service of a FileDescriptor (of a pool, so that types are resolved)."""
    found = file.services_by_name[service]
    proto = descriptor_pb2.ServiceDescriptorProto()
    found.CopyToProto(proto)
    return tuple(
        Method(
            f"/{found.full_name}/{method.name}",
            found.methods_by_name[method.name].input_type.full_name,
            found.methods_by_name[method.name].output_type.full_name,
            method.client_streaming,
            method.server_streaming,
        )
        for method in proto.method
    )


class _Reader:
    """Recursive descent over the tokens of one file."""

    def __init__(self, text: str, name: str):
        self._name = name
        self._tokens: list[tuple[str, int]] = []
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise SchemaError(f"{name}:{line}: unexpected {text[position]!r}")
            if match["token"]:
                self._tokens.append((match["token"], line))
            line += match[0].count("\n")
            position = match.end()
        self._next = 0

    def file(self) -> Any:
        file = descriptor_pb2.FileDescriptorProto(name=self._name, syntax="proto3")
        while self._next < len(self._tokens):
            match keyword := self._take():
                case "syntax":
                    self._expect("=", '"proto3"', ";")
                case "package":
                    file.package = self._take()
                    self._expect(";")
                case "import":
                    file.dependency.append(self._take().strip('"'))
                    self._expect(";")
                case "message":
                    self._message(file.message_type.add())
                case "enum":
                    self._enum(file.enum_type.add())
                case "service":
                    self._service(file.service.add())
                case _:
                    raise self._error("syntax, package, import, message, enum or service", keyword)
        return file

    def _message(self, message: Any) -> None:
        message.name = self._take()
        self._expect("{")
        while (token := self._take()) != "}":
            if token == "message":
                self._message(message.nested_type.add())
            elif token == "enum":
                self._enum(message.enum_type.add())
            elif token == "oneof":
                message.oneof_decl.add(name=self._take())
                self._expect("{")
                while (token := self._take()) != "}":
                    self._field(message, token).oneof_index = len(message.oneof_decl) - 1
            else:
                self._field(message, token)

    def _field(self, message: Any, token: str) -> Any:
        """One field, whose first token is already taken: an optional label, the type, name and number."""
        repeated, entry = token == "repeated", None
        kind = self._take() if repeated else token
        if kind == "map":
            self._expect("<")
            key = self._take()
            self._expect(",")
            entry = (key, self._take())
            self._expect(">")
        name = self._take()
        self._expect("=")
        number = self._number()
        self._expect(";")
        if entry is not None:
            kind = "".join(part.capitalize() for part in name.split("_")) + "Entry"
            nested = message.nested_type.add(name=kind)
            nested.options.map_entry = True
            for at, of in enumerate(entry, 1):
                self._set_type(nested.field.add(name=("key", "value")[at - 1], number=at, label=1), of)
        field = message.field.add(name=name, number=number, label=3 if repeated or entry else 1)
        self._set_type(field, kind)
        return field

    @staticmethod
    def _set_type(field: Any, kind: str) -> None:
        if kind in _SCALARS:
            field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
        else:
            field.type_name = kind  # whether message or enumeration: the pool finds out

    def _enum(self, enum: Any) -> None:
        enum.name = self._take()
        self._expect("{")
        while (token := self._take()) != "}":
            self._expect("=")
            enum.value.add(name=token, number=self._number())
            self._expect(";")

    def _service(self, service: Any) -> None:
        service.name = self._take()
        self._expect("{")
        while (token := self._take()) != "}":
            if token != "rpc":
                raise self._error("rpc", token)
            method = service.method.add(name=self._take())
            method.client_streaming, method.input_type = self._passed()
            self._expect("returns")
            method.server_streaming, method.output_type = self._passed()
            self._expect("{", "}")

    def _passed(self) -> tuple[bool, str]:
        """`(Type)` or `(stream Type)`."""
        self._expect("(")
        token = self._take()
        streams = token == "stream"
        kind = self._take() if streams else token
        self._expect(")")
        return streams, kind

    def _take(self) -> str:
        if self._next == len(self._tokens):
            raise SchemaError(f"{self._name}: the text ends too soon")
        self._next += 1
        return self._tokens[self._next - 1][0]

    def _number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise self._error("a number", token)
        return int(token)

    def _expect(self, *wanted: str) -> None:
        for one in wanted:
            if (token := self._take()) != one:
                raise self._error(repr(one), token)

    def _error(self, wanted: str, got: str) -> SchemaError:
        return SchemaError(f"{self._name}:{self._tokens[self._next - 1][1]}: expected {wanted}, found {got!r}")
