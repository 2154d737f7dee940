"""Kernels: NAME.cl (OpenCL C) beside NAME.py (its declaration). Every module of this folder is found by itself."""

import importlib
import pkgutil

from .base import Kernel, Launch, all_kernels, kernels_for, register

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

__all__ = ["Kernel", "Launch", "all_kernels", "kernels_for", "register"]
