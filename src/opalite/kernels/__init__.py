"""Kernels: NAME.cl (OpenCL C) beside NAME.py (its declaration), in a folder for each family of operators.

    conv/ pool/ matmul/ attention/ reduce/ norm/ move/ elementwise/ recurrent/ vision/ ml/    by operator
    image/       every operator on tensors that lie in images
    general/     a few programs that serve any model at once, slower than the others (docs/tiers.md)
    experts/     products with the matrices of picked experts
    integer/     products of 8-bit integers        mma/     what kernels for matrix units share
    codegen/     OpenCL C that is made of expressions
    include/     OpenCL C that several folders include

Every module of this folder and of those below it is imported here, so that a new kernel is its two files alone.
"""

import importlib
import pkgutil

from .kernel import Kernel, Launch
from .kernel_registry import all_kernels, kernels_for, register

for _module in sorted(m.name for m in pkgutil.walk_packages(__path__, f"{__name__}.")):
    importlib.import_module(_module)

__all__ = ["Kernel", "Launch", "all_kernels", "kernels_for", "register"]
