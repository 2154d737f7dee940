"""Guards around the methods of other packages' classes: faults name the class, the method, the file and the line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import OpaliteError, PluginError
from ..ir.load_plugins import describe_fault
from ..ir.plugins import is_foreign

Check = Callable[[Any, tuple[Any, ...], Any], Any]
"""Checks a method's result: (instance, arguments, result) to the result that the caller gets."""

Prepare = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Changes a call's arguments."""

_MARK = "__opalite_guard__"


def guard_methods(
    cls: type[Any],
    checks: Mapping[str, Check | None],
    where: Callable[[tuple[Any, ...]], str],
    prepare: Mapping[str, Prepare] = MappingProxyType({}),
) -> None:
    """Wrap the methods of `cls`, and of its foreign bases, that `checks` names.

    where: for a call's arguments, a line of context for its errors, or ''. prepare: of methods that get other ones.
    """
    for c in filter(is_foreign, cls.__mro__):
        for name, check in checks.items():
            method = vars(c).get(name)
            if callable(method) and not hasattr(method, _MARK):
                setattr(c, name, _guarded(c, name, method, check, where, prepare.get(name)))


def _guarded(
    cls: type[Any],
    name: str,
    method: Any,
    check: Check | None,
    where: Callable[[tuple[Any, ...]], str],
    prepare: Prepare | None,
) -> Any:
    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        try:
            args = args if prepare is None else prepare(args)
            found = method(self, *args, **named)
            return found if check is None else check(self, args, found)
        except Exception as e:
            if isinstance(e, OpaliteError):
                error = e
            else:
                error = PluginError(f"{cls.__name__}.{name} failed: {describe_fault(e)}")
            context = where(args)
            if context and isinstance(error, PluginError) and context not in error.message:
                error.add_context(context)
            if error is e:
                raise
            raise error from e

    setattr(call, _MARK, True)
    return call


def wrong_result(instance: Any, name: str, expected: str, got: Any) -> PluginError:
    """The error for a method that returned something else than it must."""
    cls = type(instance)
    return PluginError(f"{cls.__name__}.{name} must return {expected}, got {got!r}{place_of(cls, name)}")


def place_of(cls: type[Any], method: str = "") -> str:
    """' (FILE:LINE)' of a class or of one of its methods; '' where there is no file."""
    for c in cls.__mro__:
        if not method or method in vars(c):
            function = getattr(vars(c).get(method), "__wrapped__", None)
            file = getattr(sys.modules.get(c.__module__), "__file__", None)
            if function is not None:
                return f" ({function.__code__.co_filename}:{function.__code__.co_firstlineno})"
            return f" ({file})" if file else ""
    return ""


def folder_of(cls: type[Any]) -> Path:
    """The folder of the file that declares a class; the current one for a class typed into an interpreter."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return Path(file).resolve().parent if file else Path.cwd()


def is_same_declaration(old: type[Any], new: type[Any]) -> bool:
    """Whether `new` is `old`, declared again: a cell of a notebook that ran twice, a reloaded module."""
    if old.__qualname__ != new.__qualname__:
        return False
    files = [getattr(sys.modules.get(c.__module__), "__file__", None) for c in (old, new)]
    return old.__module__ == new.__module__ or (files[0] is not None and files[0] == files[1])
