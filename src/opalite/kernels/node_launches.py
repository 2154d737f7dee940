"""The launches of a kernel for a node, in the arithmetic type of its precision, and drivers that miscompile some."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from ..errors import KernelError
from ..ir.device.device_family import SHARED_VALUES
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Node
from ..ir.precision import Precision
from .kernel import Kernel, Params, Problem
from .kernel_sources import program_parts, read_source
from .launch import STORAGE, Launch
from .opencl_preprocessor import Preprocessed
from .wave_request import ask_wave


def launches_of(kernel: Kernel, p: Problem, params: Params) -> list[Launch]:
    """`kernel.launch`, with half accumulation (ACC_HALF of include/common.cl) if node and kernel allow it, and waves.

    KernelError if a value has a layout kind that the kernel does not bind.
    """
    node, device = p.node, p.device
    _check_layouts(kernel, p)
    launches = kernel.launch(p, params)
    if sums_in_half(kernel, node, device):
        launches = _in_half(launches, node, device)
    return [ask_wave(x, kernel.source, device) for x in launches]


def _in_half(launches: list[Launch], node: Node, device: DeviceInfo) -> list[Launch]:
    half = {"STORAGE": STORAGE[DType.FLOAT16], "ACC_HALF": 1}
    functions = "" if device.half_functions else read_source("include/half_math.cl")
    return [
        replace(x, defines={**x.defines, **half}, prelude=functions + x.prelude) if _holds_half(x, node) else x
        for x in launches
    ]


def _check_layouts(kernel: Kernel, p: Problem) -> None:
    """KernelError unless each value's layout kind is one that the kernel binds."""
    bindings = kernel.bindings(p)
    for i, v in enumerate((*p.node.inputs, *p.node.outputs)):
        if v is None:
            continue
        bound = [(*b.inputs, *b.outputs)[i] for b in bindings]
        kinds = {layout.kind for layout in bound if layout is not None}
        if None not in bound and v.type.layout.kind not in kinds:
            wanted = " or ".join(sorted(kind.value for kind in kinds))
            raise KernelError(
                f"{p.node.label}: kernel {kernel.name} takes {v!r} in a {wanted}, and is given layout {v.type.layout}"
            )


def sums_in_half(kernel: Kernel, node: Node, device: DeviceInfo) -> bool:
    """Whether `kernel` accumulates in half: fp16_fast, float32 values, `Kernel.half_sums`.

    Image kernels also need cl_khr_fp16, which provides read_imageh.
    """
    return (
        kernel.half_sums
        and node.precision is Precision.FP16_FAST
        and node.y.dtype is DType.FLOAT32
        and node.y.type.storage is DType.FLOAT16
        and (device.has("cl_khr_fp16") or not _has_images(node))
    )


def _has_images(node: Node) -> bool:
    return any(v is not None and v.type.layout.is_image for v in (*node.inputs, *node.outputs))


def _holds_half(launch: Launch, node: Node) -> bool:
    """Whether the launch may define ACC as half. Image kernels define no STORAGE: texel reads convert."""
    stored = launch.defines.get("STORAGE")
    return stored == STORAGE[DType.FLOAT16] or (stored is None and node.y.type.layout.is_image)


_BARRIER = re.compile(r"\bbarrier\s*\(")


def barrier_refusal(kernel: Kernel, p: Problem, params: Params) -> str | None:
    """The reason why the driver may miscompile `kernel` with `params` for the placed node, or None."""
    if SHARED_VALUES not in p.device.quirks:
        return None
    for launch in launches_of(kernel, p, params):
        if math.prod(launch.group or (1,)) == 1:
            continue
        options = tuple((k, str(int(v) if isinstance(v, bool) else v)) for k, v in sorted(launch.defines.items()))
        if _has_barrier(program_parts(launch.source or kernel.source, launch.prelude), options):
            return "it uses barriers, across which this driver sometimes merges the private values of work-items"
    return None


@lru_cache(maxsize=1024)
def _has_barrier(parts: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> bool:
    """Whether the compiled branches of the program contain a barrier, directly or through a macro."""
    try:
        return Preprocessed(parts, dict(options)).find(_BARRIER) is not None
    except ValueError:  # a preprocessor condition that cannot be evaluated
        return any(_BARRIER.search(part) for part in parts)
