"""register_kernel: class decorator that makes a class of another package a candidate for an operator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..errors import PluginError
from ..ir.load_plugins import provider_of
from ..ir.plugins import is_foreign
from ..kernels.kernel import Kernel, all_kernels, register, withdraw_kernel
from ..kernels.kernel_sources import read_source
from ..kernels.launch import Launch
from .guard_methods import folder_of, guard_methods, is_same_declaration, place_of, wrong_result

_K = TypeVar("_K", bound=type[Kernel])


def register_kernel(cls: _K) -> _K:
    """Class decorator: make a Kernel a candidate for the operator that `op` names.

    `source` is a .cl file in the folder of the class's own file; by default the module's name with .cl. PluginError for
    a name that is taken, an unknown operator, a missing file or a declaration that is not complete. A class that is
    declared again takes the place of the one before.
    """
    _check_declaration(cls)
    known = next((type(k) for k in all_kernels() if k.name == cls.__name__), None)
    if known is not None:
        if not is_same_declaration(known, cls):
            theirs = provider_of(known.__module__) if is_foreign(known) else "Opalite"
            raise PluginError(
                f"kernel {cls.__name__}: {theirs} has a kernel of this name; choose another class name{place_of(cls)}"
            )
        withdraw_kernel(known)
        read_source.cache_clear()  # its .cl may have changed too
    if vars(cls).get("source") is not None or not hasattr(cls, "source"):
        cls.source = _find_source(cls)
    bases = [c for c in cls.__mro__ if not is_foreign(c)]
    if bases[0] is Kernel and not any("takes_epilogue" in vars(c) for c in cls.__mro__ if is_foreign(c)):
        cls.takes_epilogue = False
    guard_methods(cls, _CHECKS, _where)
    try:
        return register(cls)
    except ValueError as e:
        raise PluginError(f"{e}{place_of(cls)}") from None


def _check_declaration(cls: type[Any]) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Kernel)):
        raise PluginError(f"register_kernel takes a class derived from opalite.kernel.Kernel, got {cls!r}")
    if not isinstance(getattr(cls, "op", None), str):
        raise PluginError(f'kernel {cls.__name__} must name its operator, such as op = "Softmax"{place_of(cls)}')
    if cls.launch is Kernel.launch:
        raise PluginError(f"kernel {cls.__name__} has no method launch(self, p, params){place_of(cls)}")
    space = cls.space
    if not isinstance(space, Mapping) or not all(isinstance(v, tuple) and v for v in space.values()):
        raise PluginError(
            f'kernel {cls.__name__}: space maps names to tuples of values, such as {{"PACK": (4, 1)}}, got {space!r}'
            f"{place_of(cls)}"
        )


def _find_source(cls: type[Kernel]) -> str:
    """The absolute path of the kernel's OpenCL C."""
    folder = folder_of(cls)
    name = vars(cls).get("source") or f"{_stem(cls)}.cl"
    path = folder / name
    if not path.is_file():
        raise PluginError(f"kernel {cls.__name__}: there is no {name} in {folder}; its OpenCL C is expected there")
    return str(path)


def _stem(cls: type[Kernel]) -> str:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return Path(file).stem if file else cls.__name__.lower()


# Checks of results


def _where(args: tuple[Any, ...]) -> str:
    node = getattr(args[0], "node", None) if args else None
    return "" if node is None else f"while planning {node.label}"


def _check_launches(kernel: Any, args: tuple[Any, ...], found: Any) -> list[Launch]:
    if isinstance(found, Launch):
        found = [found]
    if not isinstance(found, list | tuple) or not all(isinstance(x, Launch) for x in found):
        raise wrong_result(kernel, "launch", "a list of Launch", found)
    folder = folder_of(type(kernel))
    return [replace(x, source=str(folder / x.source)) if (folder / x.source).is_file() else x for x in found]


def _check_refusal(kernel: Any, args: tuple[Any, ...], found: Any) -> str | None:
    if found is not None and not isinstance(found, str):
        raise wrong_result(kernel, "refuse", "a sentence or None", found)
    return found


def _check_illegal(kernel: Any, args: tuple[Any, ...], found: Any) -> str | None:
    if found is not None and not isinstance(found, str):
        raise wrong_result(kernel, "illegal", "a sentence or None", found)
    return found


def _check_seconds(kernel: Any, args: tuple[Any, ...], found: Any) -> Any:
    if isinstance(found, bool) or not isinstance(found, int | float) or not found >= 0:
        raise wrong_result(kernel, "seconds", "a number of seconds", found)
    return found


_CHECKS = {
    "launch": _check_launches,
    "refuse": _check_refusal,
    "illegal": _check_illegal,
    "seconds": _check_seconds,
    "bindings": None,
    "takes": None,
    "defaults": None,
    "join": None,
    "share": None,
}
