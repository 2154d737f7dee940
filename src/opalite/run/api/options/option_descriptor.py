"""Options, the base of SessionOptions and RunOptions, and Option, a descriptor for their typed attributes."""

from __future__ import annotations

import operator
from typing import Any, Generic, TypeVar, overload

from ....errors import InputTypeError, OptionError

T = TypeVar("T")
_MAX_KEY, _MAX_VALUE = 1024, 8192


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


class Options:
    """Options of a session or run: changed values by name, and config entries, texts by key."""

    __slots__ = ("_config", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config: dict[str, str] = {}

    def _add_entry(self, key: str, value: str) -> None:
        """Set one entry. Raises InputTypeError unless both are texts, OptionError if one is too long or empty."""
        for what, text in (("key", key), ("value", value)):
            if not isinstance(text, str):
                raise InputTypeError(f"the {what} of a config entry is a text, got {text!r}")
        if not key or len(key) > _MAX_KEY or len(value) > _MAX_VALUE:
            raise OptionError(
                f"the key of a config entry has 1 to {_MAX_KEY} characters and its value at most "
                f"{_MAX_VALUE}; got {len(key)} and {len(value)}"
            )
        self._config[key] = value

    def _entry(self, key: str) -> str:
        """The value of one entry. Raises OptionError if it was not added."""
        if key not in self._config:
            raise OptionError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._config[key]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"
