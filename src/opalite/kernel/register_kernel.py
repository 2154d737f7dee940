"""register_kernel: class decorator that makes a class of another package a candidate for an operator."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import PluginError
from ..ir.load_plugins import provider_of
from ..ir.place import Layout
from ..ir.plugins import is_foreign
from ..ir.symbols import hint_of
from ..kernels.kernel import Binding, Kernel, all_kernels, register, withdraw_kernel
from ..kernels.kernel_sources import read_source
from ..kernels.launch import Launch
from .guard_methods import Check, folder_of, guard_methods, is_same_declaration, place_of, wrong_result

_K = TypeVar("_K", bound=type[Kernel])
_MOST_AXES = 3  # of a grid


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
    for x in found:
        if not isinstance(x.entry, str) or not isinstance(x.args, Mapping) or not isinstance(x.defines, Mapping):
            raise wrong_result(kernel, "launch", "Launches of a name, and of arguments and defines by name", x)
        if not _is_grid(x.grid, 0):
            raise wrong_result(kernel, "launch", "Launches with a grid, a tuple of one to three sizes", x.grid)
        if x.group is not None and not (_is_grid(x.group, 1) and len(x.group) == len(x.grid)):
            expected = f"Launches with a group of {len(x.grid)} sizes, one for each of the grid {x.grid}, or None"
            raise wrong_result(kernel, "launch", expected, x.group)
    folder = folder_of(type(kernel))
    return [replace(x, source=str(folder / x.source)) if (folder / x.source).is_file() else x for x in found]


def _is_grid(sizes: Any, least: int) -> bool:
    is_tuple = isinstance(sizes, tuple) and 1 <= len(sizes) <= _MOST_AXES
    return is_tuple and all(isinstance(n, int | np.integer) and hint_of(n) >= least for n in sizes)


def _check_bindings(kernel: Any, args: tuple[Any, ...], found: Any) -> Sequence[Binding]:
    node = args[0].node
    counts = f"{len(node.inputs)} inputs (None for an absent one) and {len(node.outputs)} outputs"
    is_list = isinstance(found, list | tuple) and found and all(isinstance(b, Binding) for b in found)
    if not is_list or not all(_fits(b, node) for b in found):
        raise wrong_result(kernel, "bindings", f"a list of at least one Binding of layouts for {counts}", found)
    return list(found)


def _fits(binding: Binding, node: Any) -> bool:
    ins, outs = binding.inputs, binding.outputs
    if len(ins) != len(node.inputs) or len(outs) != len(node.outputs):
        return False
    is_given = all(isinstance(layout, Layout | None) for layout in ins) and all(isinstance(o, Layout) for o in outs)
    return is_given and not any(v is None and b is not None for v, b in zip(node.inputs, ins, strict=True))


def _check_defaults(kernel: Any, args: tuple[Any, ...], found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping) or found.keys() != kernel.space.keys():
        raise wrong_result(
            kernel, "defaults", f"a value for each of {', '.join(kernel.space) or 'no parameter'}", found
        )
    return found


def _sentence_or_none(kernel: Any, args: tuple[Any, ...], found: Any, name: str) -> str | None:
    if found is not None and not (isinstance(found, str) and found):
        raise wrong_result(kernel, name, "a sentence or None", found)
    return found


def _truth(kernel: Any, args: tuple[Any, ...], found: Any, name: str) -> bool:
    if not isinstance(found, bool | np.bool_):
        raise wrong_result(kernel, name, "True or False", found)
    return bool(found)


def _number(kernel: Any, args: tuple[Any, ...], found: Any, name: str) -> Any:
    is_number = isinstance(found, int | float | np.number) and not isinstance(found, bool)
    if not is_number or not found >= 0 or (name == "share" and not found):
        raise wrong_result(kernel, name, "a positive number" if name == "share" else "a number of seconds", found)
    return found


_CHECKS: dict[str, Check | None] = {
    "launch": _check_launches,
    "bindings": _check_bindings,
    "defaults": _check_defaults,
    "refuse": partial(_sentence_or_none, name="refuse"),
    "illegal": partial(_sentence_or_none, name="illegal"),
    "takes": partial(_truth, name="takes"),
    "gives": partial(_truth, name="gives"),
    "seconds": partial(_number, name="seconds"),
    "share": partial(_number, name="share"),
    "join": None,
}
