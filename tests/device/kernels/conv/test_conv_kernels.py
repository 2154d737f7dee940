"""Every kernel of the convolutions and pooling that is registered, on every case it takes, against the reference.

A new kernel is tested here by being registered. What is particular to one, tiles and refusals above all, has a file of
its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding, Kernel, kernels_for

from ..conv_checks import Array, as_gpu, check_kernel


@dataclass(frozen=True)
class Case:
    """Sizes of one node: channels in and out, groups, spatial sizes and the window. Primes, where nothing else asks."""

    channels: int
    filters: int
    group: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    batch: int = 2


CASES = {
    "plain": Case(5, 7, 1, (11, 13), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "blocks": Case(37, 53, 1, (7, 17), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "few filters": Case(37, 3, 1, (7, 17), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "strides": Case(19, 33, 1, (11, 29), (3, 5), (2, 2), (0, 2, 1, 1), (1, 2)),
    "pointwise": Case(37, 53, 1, (5, 11), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "one pixel": Case(37, 131, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "groups": Case(15, 9, 3, (5, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "depthwise": Case(37, 37, 37, (11, 13), (5, 3), (2, 1), (2, 1, 2, 1), (1, 1)),
    "rank 1": Case(17, 19, 1, (67,), (5,), (2,), (2, 1), (1,)),
    "whole blocks": Case(32, 9, 1, (5, 11), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "rank 3": Case(5, 19, 1, (5, 3, 7), (3, 2, 3), (2, 1, 1), (1, 0, 1, 1, 1, 0), (1, 1, 1)),
}
OPERATORS = ("Conv", "ConvTranspose", "IntegerConv", "Pool")
KERNELS = [pytest.param(k, id=k.name) for op in OPERATORS for k in kernels_for(op)]
FUSED = ("blocks", "pointwise", "depthwise")
"""Cases with an expression behind the sum, where operator and kernel take one, and once more in half storage."""
DESCRIBED = [read_description(name) for name in description_names()]
HALVES = (*FUSED, "whole blocks")
"""Cases in half storage, the last one for kernels that read channels in chunks, which take no floats."""
RUNS = [(n, None) for n in CASES if n not in HALVES or n in FUSED] + [(n, DType.FLOAT16) for n in HALVES]


def window(case: Case) -> dict[str, Any]:
    return {"strides": case.strides, "pads": case.pads, "dilations": case.dilations}


def inputs(op: str, case: Case, rng: np.random.Generator) -> tuple[dict[str, Any], list[Array | None]] | None:
    """(attributes, arrays) of `case` for an operator; None where the operator has no such case."""
    x = (case.batch, case.channels, *case.size)
    w = (case.filters, case.channels // case.group, *case.kernel)

    def floats(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 4).astype(np.float32)

    def words(*shape: int) -> Array:
        return rng.integers(0, 256, shape, np.uint8)

    attrs = {**window(case), "group": case.group}
    match op:
        case "Conv":
            return attrs, [floats(*x), floats(*w), floats(case.filters)]
        case "ConvTranspose":
            w = (case.channels, case.filters // case.group, *case.kernel)
            return {**attrs, "output_padding": (0,) * len(case.size)}, [floats(*x), floats(*w), floats(case.filters)]
        case "IntegerConv":
            zero = np.array(131, np.uint8)
            if case.group == case.channels:  # filters that have no zero points
                return attrs, [words(*x), words(*w).view(np.int8), None, zero, None]
            return attrs, [words(*x), words(*w), None, zero, zero]
        case "Pool":
            fits = all(0 <= p < k for p, k in zip(case.pads, (*case.kernel, *case.kernel), strict=True))
            wanted = {**window(case), "kernel": case.kernel, "kind": "max", "p": 2, "storage_order": 0}
            wanted |= dict.fromkeys(("ceil_mode", "count_include_pad", "with_indices"), False)
            return (wanted, [floats(*x)]) if fits and math.prod(case.kernel) > 1 else None
    raise AssertionError(op)


def nodes(rt: Runtime, kernel: Kernel, name: str, stored: DType | None) -> Iterator[tuple[Node, list[Array | None]]]:
    """The node of a case in all layouts that the kernel binds, with an expression if it takes one, and its weights
    constant if it wants them so."""
    made = inputs(kernel.op, CASES[name], np.random.default_rng(0))
    if made is None or (stored is not None and kernel.op == "IntegerConv"):
        return
    attrs, arrays = made
    forms = [attrs]
    if name in FUSED and kernel.op in ("Conv", "ConvTranspose"):
        forms.insert(0, {**attrs, "epilogue": parse_expr("max($0, 0.0:f32)", [DType.FLOAT32])})
    for form, const in product(forms, ((), range(1, len(arrays)))):
        flat = make_node(kernel.op, form, arrays, const=const, precision=stored)
        problem = kernel.problem(flat, rt.info)
        if kernel.refuse(problem) is None:
            for binding in kernel.bindings(problem):
                node = make_node(kernel.op, form, arrays, const=const, binding=binding, precision=stored)
                if _is_held(rt, binding):
                    yield node, arrays
            return


def _is_held(rt: Runtime, binding: Binding) -> bool:
    layouts = [x for x in (*binding.inputs, *binding.outputs) if x is not None]
    return rt.info.image_support or not any(x.is_image for x in layouts)


@pytest.mark.parametrize("name, stored", RUNS, ids=lambda x: x if isinstance(x, str) else "fp16" if x else "fp32")
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel(rt: Runtime, kernel: Kernel, name: str, stored: DType | None) -> None:
    for device in (rt, as_gpu(rt)):
        found = list(nodes(device, kernel, name, stored))
        for node, arrays in found:
            check_kernel(device, kernel, node, arrays)
        if found:
            return
    pytest.skip("the kernel takes no such node here")


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_takes_a_case(rt: Runtime, kernel: Kernel) -> None:
    """Here, or on a device of the fixtures: some are for processors alone, or for instructions that few have."""
    described: list[Any] = [rt, as_gpu(rt), *(SimpleNamespace(info=info) for info in DESCRIBED)]
    if not any(next(nodes(device, kernel, *run), None) for device in described for run in RUNS):
        attrs, arrays = inputs(kernel.op, CASES["plain"], np.random.default_rng(0)) or ({}, [])
        node = make_node(kernel.op, attrs, arrays, precision=DType.FLOAT16)
        why = kernel.refuse(kernel.problem(node, rt.info))
        pytest.fail(f"no case is one for {kernel.name}, which says {why!r}: add one")
