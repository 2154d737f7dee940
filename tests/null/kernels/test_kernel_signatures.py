"""Every kernel's launches give what its `.cl` file declares: names, types and address spaces, as built."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_type_hints

import numpy as np
import pytest

from opalite.errors import KernelError
from opalite.ir import DeviceInfo, DType, Layout, Node, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.place import FLAT, IMAGE, OPENCL, packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding, Kernel, all_kernels, kernels_for
from opalite.kernels.launch import Scratch, Weight
from opalite.kernels.lower_arguments import lower
from opalite.kernels.node_launches import launches_of
from opalite.ops.elementwise import PlaceCast

from ...helpers.kernel_nodes import samples
from ..layout.test_layouts import NEW

DEVICES = {n: read_description(n) for n in ("pocl_avx512", "adreno_640")}
DEVICES |= {n: read_description(n) for n in ("nvidia_h200", "intel_uhd_630")}
PRECISIONS = (None, DType.FLOAT16)
QUESTIONS = ("refuse", "bindings", "illegal", "launch", "defaults", "points", "seconds")


class Names:
    """Memory that is told by a name; weights are made, for their types."""

    def of_value(self, value: Value) -> str:
        return value.name

    def of_weight(self, weight: Weight, texels: bool) -> tuple[str, np.dtype[Any]]:
        assert weight.value.data is not None
        return weight.form, weight.fn(weight.value.data).dtype

    def of_scratch(self, scratch: Scratch) -> str:
        return scratch.name

    def of_table(self, name: str, table: np.ndarray[Any, Any]) -> str:
        return name


def bindings(op: str, kernel: Kernel, plain: Node, device: DeviceInfo) -> Iterator[Binding]:
    """Those of the kernel; of a cast, pairs of layouts."""
    if op == "PlaceCast":
        pairs: list[tuple[Layout, Layout]] = [(FLAT, packed(4)), (packed(4), FLAT), (FLAT, FLAT)]
        pairs += [(FLAT, IMAGE), (IMAGE, packed(4))] if device.image_support else []
        yield from (Binding((x,), (y,)) for x, y in pairs)
    else:
        yield from kernel.bindings(kernel.problem(plain, device))


def placed_cast(node: Node, binding: Binding) -> Node:
    """A cast between the layouts of `binding`; to half where they are the same."""
    x, y = (
        Value("", node.x.type.with_place(OPENCL.with_layout(b))) for b in (binding.inputs[0], binding.outputs[0]) if b
    )
    if x.type.layout == y.type.layout:
        y.type = y.type.with_place(y.type.place.with_precision(DType.FLOAT16))
    return Node(PlaceCast(), [x], [y])


def taken(device: DeviceInfo, precision: DType | None) -> Iterator[tuple[Kernel, Node]]:
    """Each kernel with each node that it takes, in each of its bindings."""
    for op, attrs, arrays, const in samples():
        plain = make_node(op, attrs, arrays, const=const, precision=precision)
        for kernel in kernels_for(op):
            if op != "PlaceCast" and kernel.refuse(kernel.problem(plain, device)) is not None:
                continue
            for binding in bindings(op, kernel, plain, device):
                if op == "PlaceCast":
                    node = placed_cast(plain, binding)
                    if kernel.refuse(kernel.problem(node, device)) is not None:
                        continue
                else:
                    node = make_node(op, attrs, arrays, const=const, binding=binding, precision=precision)
                yield kernel, node


@cache
def lower_samples(device: str, precision: DType | None) -> frozenset[str]:
    """Names of the kernels that took a node; KernelError where one's arguments are not what it declares."""
    lowered: set[str] = set()
    for kernel, node in taken(DEVICES[device], precision):
        p = kernel.problem(node, DEVICES[device])
        for params in (kernel.defaults(p), next(iter(kernel.points(p)))):
            for launch in launches_of(kernel, p, params):
                lower(kernel, launch, Names())
                lowered.add(kernel.name)
    return frozenset(lowered)


@pytest.mark.parametrize("precision", PRECISIONS, ids=["fp32", "fp16"])
@pytest.mark.parametrize("device", DEVICES)
def test_arguments_are_what_is_declared(device: str, precision: DType | None) -> None:
    assert len(lower_samples(device, precision)) > 40


def test_every_kernel_takes_a_sample() -> None:
    found = {name for device in DEVICES for precision in PRECISIONS for name in lower_samples(device, precision)}
    missing = {k.name for k in all_kernels()} - found
    assert not missing, f"add nodes that {', '.join(sorted(missing))} take to tests/helpers/kernel_nodes.py"


@pytest.mark.parametrize("device", DEVICES)
def test_no_kernel_takes_an_unknown_layout_for_another(device: str) -> None:
    """Of each tensor in turn; a cast refuses it, other kernels are never given it."""
    for kernel, node in taken(DEVICES[device], None):
        for v in (*node.outputs, *(v for v in node.inputs if v is not None and not v.is_const)):
            known = v.type
            v.type = known.with_place(known.place.with_layout(NEW))
            p = kernel.problem(node, DEVICES[device])
            if node.op.name == "PlaceCast":
                assert kernel.refuse(p), f"{kernel.name} takes {v!r} in {NEW}"
            else:
                with pytest.raises((KernelError, ValueError), match="channels-last buffer"):
                    launches_of(kernel, p, {})
            v.type = known


@pytest.mark.parametrize("kernel", list(all_kernels()), ids=lambda k: k.name)
def test_questions_take_the_kernels_own_problem(kernel: Kernel) -> None:
    for name in QUESTIONS:
        hint = get_type_hints(getattr(type(kernel), name)).get("p")
        assert hint is not None, f"{kernel.name}.{name} says of its `p` that it is a Problem, or the family's own"
        assert hint is Any or issubclass(kernel.problem, hint), f"{kernel.name}.{name} takes {hint}"
