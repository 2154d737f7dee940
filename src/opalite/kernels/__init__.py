"""Kernels: NAME.cl (OpenCL C) and NAME.py (its declaration), in a folder for each operator family.


    conv/ pool/ matmul/ attention/ reduce/ norm/ data_movement/ elementwise/ recurrent/ vision/ ml/    by operator
    image/       kernels on image2d tensors, for any operator
    generic/     shape-generic programs of the baseline tier, slower than the others (docs/tiers.md)
    experts/     mixture-of-experts products
    quantized/   products with low-bit weights    integer/  products of 8-bit integers
    mma/         tiles of matrix-unit kernels     fma/      tiles of kernels with plain multiply-adds
    codegen/     generated OpenCL C: expressions and epilogues
    include/     OpenCL C that several folders include

Importing this package imports every module below it. Adding a kernel therefore takes only its two files.
"""

import importlib
import pkgutil

from .kernel import Kernel, all_kernels, kernels_for, register
from .launch import Launch

for _module in sorted(m.name for m in pkgutil.walk_packages(__path__, f"{__name__}.")):
    importlib.import_module(_module)

__all__ = ["Kernel", "Launch", "all_kernels", "kernels_for", "register"]
