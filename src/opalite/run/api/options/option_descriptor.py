"""Option: a descriptor for an attribute of an options object, with a type and a default."""

from __future__ import annotations

import operator
from typing import Any, Generic, TypeVar, overload

from ....errors import InputTypeError, OptionError

T = TypeVar("T")


class Option(Generic[T]):
    """An attribute of the type of `default`. Setting a value of another type raises InputTypeError.

    The owner stores changed values in its dict `_values`. no_effect: the reason why the option has no effect, '' if it
    has one.
    """

    def __init__(self, default: T, doc: str, no_effect: str = "") -> None:
        self.default = default
        self.no_effect = no_effect
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
    """Config entries of session or run options: texts by key."""

    __slots__ = ("_owner", "entries")

    _MAX_KEY = 1024
    _MAX_VALUE = 8192

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.entries: dict[str, str] = {}

    def add(self, key: str, value: str) -> None:
        """Set one entry. Raises InputTypeError unless both are texts, OptionError if one is too long or empty."""
        for what, text in (("key", key), ("value", value)):
            if not isinstance(text, str):
                raise InputTypeError(f"the {what} of a config entry is a text, got {text!r}")
        if not key or len(key) > self._MAX_KEY or len(value) > self._MAX_VALUE:
            raise OptionError(
                f"the key of a config entry has 1 to {self._MAX_KEY} characters and its value at most "
                f"{self._MAX_VALUE}; got {len(key)} and {len(value)}"
            )
        self.entries[key] = value

    def get(self, key: str) -> str:
        """The value of one entry. Raises OptionError if it was not added."""
        if key not in self.entries:
            raise OptionError(f"{self._owner} does not have configuration with key: {key}")
        return self.entries[key]
