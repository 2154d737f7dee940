"""The canonical operators by family. Every module of this folder is found by itself."""

import importlib
import pkgutil

from .base import Cost, Op, all_ops, get_op, make_op, register_op

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

__all__ = ["Cost", "Op", "all_ops", "get_op", "make_op", "register_op"]
