"""The kernel registry: `@register` adds a class to the candidates of its operator."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

from ..ir.plugins import watch
from ..ops.operator import all_ops
from .kernel import Kernel

_KERNELS: dict[str, list[Kernel]] = {}
_K = TypeVar("_K", bound=type[Kernel])


def register(cls: _K) -> _K:
    """Class decorator: make the kernel a candidate for its operator. ValueError for an unknown one."""
    if cls.op not in all_ops():
        raise ValueError(f"kernel {cls.__name__} computes {cls.op!r}, not a canonical operator; {_names(cls.op)}")
    known = _KERNELS.setdefault(cls.op, [])
    if any(k.name == cls.__name__ for k in known):
        raise ValueError(f"kernel {cls.__name__} is registered twice")
    known.append(cls())
    known.sort(key=lambda k: k.rank)
    return cls


def _names(op: str) -> str:
    """Names of existing operators that resemble `op`, then all of them, for an error message."""
    close = difflib.get_close_matches(op, all_ops(), 3)
    meant = f"is it {' or '.join(close)}? " if close else ""
    return f"{meant}There are: {', '.join(sorted(all_ops()))}"


def kernels_for(op: str) -> Sequence[Kernel]:
    """Every kernel of an operator, by rank, then in order of registration."""
    return _KERNELS.get(op, ())


def all_kernels() -> Iterator[Kernel]:
    """Every registered kernel."""
    return itertools.chain.from_iterable(_KERNELS.values())


watch(all_kernels)
