"""Layouts are asked by kind: a kind that a kernel does not know is refused, never taken for another."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, cast

import numpy as np
import pytest

from opalite.errors import KernelError
from opalite.ir import FLAT, IMAGE, DType, Graph, Layout, LayoutKind, Node, TensorType, Value, packed
from opalite.ir.place import OPENCL, Memory
from opalite.kernels.launches import launches_of
from opalite.kernels.packing import pack_array, unpack_array
from opalite.kernels.registry import kernels_for
from opalite.ops.elementwise import PlaceCast
from opalite.place.pick import is_free_cast

from .test_image_plans import ADRENO, load, placed, small_net

CPU = load("pocl_avx512")


class Later(Enum):
    """A kind of layout that comes later."""

    CHANNELS_LAST = "channels-last buffer"


NEW = Layout(cast(LayoutKind, Later.CHANNELS_LAST), 4)


def test_names_and_kinds() -> None:
    kinds = {FLAT: "is_row_major", packed(8): "is_packed", IMAGE: "is_image"}
    for layout, name in kinds.items():
        assert [n for n in kinds.values() if getattr(layout, n)] == [name]
    assert packed(1) == FLAT
    assert [str(x) for x in (*kinds, NEW)] == ["NCHW", "NC8HW8", "IMAGE2D", "channels-last buffer"]


def test_an_unknown_kind_has_no_blocks_and_no_storage() -> None:
    assert [NEW.is_row_major, NEW.is_packed, NEW.is_image] == [False] * 3
    array = np.zeros((1, 4, 2, 2), np.float32)
    asked: list[Any] = [
        lambda: NEW.pack,
        lambda: NEW.storage_shape(array.shape),
        lambda: pack_array(array, NEW),
        lambda: unpack_array(array, array.shape, NEW),
        lambda: TensorType(DType.FLOAT32, array.shape, OPENCL.with_layout(NEW)).nbytes,
    ]
    for ask in asked:
        with pytest.raises(ValueError, match="layout channels-last buffer is none of row-major buffer, channel-packed"):
            ask()
    assert not is_free_cast((1, 4, 1, 1), FLAT, NEW)


@pytest.mark.parametrize("other", [FLAT, packed(16), IMAGE])
def test_casts_refuse_it(other: Layout) -> None:
    for pair in ((NEW, other), (other, NEW)):
        x, y = (Value("", TensorType(DType.FLOAT32, (1, 8, 5, 5), OPENCL.with_layout(one))) for one in pair)
        node = Node(PlaceCast(), [x], [y])
        for kernel in kernels_for("PlaceCast"):
            assert kernel.refuse(kernel.problem(node, ADRENO)), f"{kernel.name} takes {pair[0]} to {pair[1]}"


def nodes() -> Iterator[tuple[Node, Any]]:
    for device, memory in ((CPU, Memory.BUFFER), (ADRENO, Memory.BUFFER), (ADRENO, Memory.IMAGE2D)):
        graph: Graph = placed(small_net(), device, memory)
        yield from ((n, device) for n in graph.nodes if n.choice.kernel is not None and n.op.name != "PlaceCast")


def test_no_kernel_takes_it_for_another() -> None:
    seen = set()
    for node, device in nodes():
        kernel = node.choice.kernel
        params = kernel.defaults(kernel.problem(node, device))
        launches_of(kernel, kernel.problem(node, device), params)
        for v in (*node.outputs, *(v for v in node.inputs if v is not None and not v.is_const)):
            known = v.type
            v.type = known.with_place(known.place.with_layout(NEW))
            with pytest.raises((KernelError, ValueError), match="channels-last buffer"):
                launches_of(kernel, kernel.problem(node, device), params)
            v.type = known
            seen.add(kernel.name)
    assert len(seen) > 8
