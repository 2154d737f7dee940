"""Option: an attribute of an options object that takes values of one type, as onnxruntime's do."""

from __future__ import annotations

import operator
from typing import Any, Generic, TypeVar, overload

from ....errors import InputTypeError, OptionError

T = TypeVar("T")


class Option(Generic[T]):
    """An attribute with a default. Setting a value of another type is an InputTypeError.

    The owner keeps what was set in the dict `_values`. why_not: why the setting has no effect, if it has none.
    """

    def __init__(self, default: T, doc: str, why_not: str = "") -> None:
        self.default = default
        self.why_not = why_not
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> Option[T] | T:
        if instance is None:
            return self
        found: T = instance._values.get(self.name, self.default)
        return found

    def __set__(self, instance: Any, value: T) -> None:
        instance._values[self.name] = self._convert(value)

    def _convert(self, value: Any) -> Any:
        kind = type(self.default)
        if kind is bool:
            return bool(value)
        if kind is int and not isinstance(value, str):
            try:
                return operator.index(value)
            except TypeError:
                pass
        elif kind is not int and isinstance(value, kind):
            return value
        raise InputTypeError(f"{self.name} is of type {kind.__name__}, got {value!r} of {type(value).__name__}")


class ConfigEntries:
    """Texts by key, as `add_session_config_entry` and `add_run_config_entry` take them."""

    __slots__ = ("_owner", "entries")

    _LONGEST_KEY = 1024
    _LONGEST_VALUE = 8192

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.entries: dict[str, str] = {}

    def add(self, key: str, value: str) -> None:
        """Set one entry. InputTypeError unless both are texts, OptionError for a key or value of a wrong length."""
        for what, text in (("key", key), ("value", value)):
            if not isinstance(text, str):
                raise InputTypeError(f"the {what} of a config entry is a text, got {text!r}")
        if not key or len(key) > self._LONGEST_KEY or len(value) > self._LONGEST_VALUE:
            raise OptionError(
                f"the key of a config entry has 1 to {self._LONGEST_KEY} characters and its value at most "
                f"{self._LONGEST_VALUE}; got {len(key)} and {len(value)}"
            )
        self.entries[key] = value

    def get(self, key: str) -> str:
        """The value of one entry. OptionError if it was not added."""
        if key not in self.entries:
            raise OptionError(f"{self._owner} does not have configuration with key: {key}")
        return self.entries[key]
