"""Dataclasses whose methods are generated on first use.

A start makes a hundred dataclasses and calls methods of few: plans are decoded without `__init__`. Generating and
compiling the methods of all took a quarter of the time in which Opalite's modules are imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, eq=True, frozen=False, **options):
        """`dataclasses.dataclass`; with other options than `eq` and `frozen` the methods are generated at once."""
        if cls is None:
            return partial(dataclass, eq=eq, frozen=frozen, **options)
        if options:
            return dataclasses.dataclass(cls, eq=eq, frozen=frozen, **options)
        own = {name for name, value in vars(cls).items() if value is not None}  # `__eq__` alone sets `__hash__` to None
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        names = ["__init__", "__repr__", *(["__eq__"] if eq else ()), *(["__hash__"] if eq and frozen else ())]
        names = [name for name in names if name not in own]
        for name in names:
            setattr(cls, name, _on_use(cls, name, frozen))
        if eq and not frozen and "__hash__" not in own:
            cls.__hash__ = None
        if frozen:
            cls.__setattr__, cls.__delattr__ = _refuse_set, _refuse_delete
        return cls


def _on_use(cls: type, name: str, frozen: bool) -> Callable[..., Any]:
    """A method that replaces itself by the generated one called `name`, and calls that. Threads may repeat it."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        generated = _generate(cls, name, frozen)
        setattr(cls, name, generated)
        return generated(self, *args, **options)

    return method


def _generate(cls: Any, name: str, frozen: bool) -> Any:
    """The method `name` of a dataclass with the fields of `cls`."""
    options = ("default", "default_factory", "init", "repr", "hash", "compare", "metadata", "kw_only")
    fields = {f.name: dataclasses.field(**{o: getattr(f, o) for o in options}) for f in dataclasses.fields(cls)}
    content: dict[str, Any] = {"__annotations__": dict.fromkeys(fields, object), "__doc__": name, **fields}
    if hasattr(cls, "__post_init__"):
        content["__post_init__"] = None
    of = {"init": name == "__init__", "repr": name == "__repr__", "eq": name in ("__eq__", "__hash__")}
    made: Any = dataclasses.dataclass(**of, frozen=frozen, match_args=False)(type(cls.__name__, (), content))
    return getattr(made, name)


def _refuse_set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
