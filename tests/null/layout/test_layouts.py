"""Layouts are asked by kind: a kind that a kernel does not know is refused, never taken for another."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, cast

import numpy as np
import pytest

from opalite.errors import DeviceError, PlacementError
from opalite.expr.trace_function import call
from opalite.ir import FLAT, HOST, IMAGE, DType, Graph, Layout, LayoutKind, Node, TensorType, Value, packed
from opalite.ir.place import OPENCL
from opalite.ir.precision import Precision
from opalite.kernels import kernel as kernel_module
from opalite.kernels.kernel import Binding, Kernel, kernels_for
from opalite.kernels.weight_packing import pack_array, unpack_array
from opalite.layout.assign_layouts import is_free_cast
from opalite.layout.insert_casts import insert_casts
from opalite.layout.kernel_candidates import Choice, Option
from opalite.ops.elementwise import Elementwise, PlaceCast

from .test_image_plans import ADRENO, load

CPU = load("pocl_avx512")


class Later(Enum):
    """A kind of layout that comes later."""

    CHANNELS_LAST = "channels-last buffer"


NEW = Layout(cast(LayoutKind, Later.CHANNELS_LAST), 4)


class CastLater(Kernel):
    """Between NEW and row-major order, of one precision: all that a layout has to bring along."""

    op, source = "PlaceCast", "data_movement/layout_cast.cl"

    def refuse(self, p: Any) -> str | None:
        x, y = p.node.x.type, p.node.y.type
        fits = {x.layout, y.layout} == {NEW, FLAT} and x.storage is y.storage
        return None if fits else "it casts between NEW and row-major order"

    def bindings(self, p: Any) -> list[Binding]:
        return [Binding((p.node.x.type.layout,), (p.node.y.type.layout,))]


def casts(graph: Graph) -> list[tuple[str, str]]:
    """What each cast of a graph placed by hand comes from and goes to, transfers aside."""
    insert_casts(graph, CPU)
    nodes = [n for n in graph.nodes if isinstance(n.op, PlaceCast) and n.choice is not None and n.choice.kernel]
    return [(str(n.x.type.place), str(n.y.type.place)) for n in nodes]


def read_in(layouts: Sequence[Layout], precision: Precision = Precision.FP32) -> Graph:
    """Nodes one after another, each of which reads and writes one of `layouts`."""
    graph = Graph()
    v = Value("x", TensorType(DType.FLOAT32, (1, 8, 5, 5), HOST))
    graph.inputs = [v]
    for i, layout in enumerate(layouts):
        node = Node(Elementwise(call("neg", DType.FLOAT32)), [v], [], precision=precision)
        v = Value(f"v{i}", TensorType(DType.FLOAT32, (1, 8, 5, 5), OPENCL.with_layout(layout)), producer=node)
        node.outputs = [v]
        node.choice = Choice(Option(None, Binding((layout,), (layout,)), 0.0))
        graph.nodes.append(node)
    graph.outputs = [v]
    return graph


def test_a_layout_needs_no_cast_to_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """To row-major order and back, of one precision, is enough: other casts go by way of these."""
    own = kernels_for("PlaceCast")
    monkeypatch.setitem(kernel_module._KERNELS, "PlaceCast", [*own, CastLater()])
    later = f"opencl/{NEW}"
    assert casts(read_in([NEW, packed(16), NEW])) == [
        ("opencl/NCHW", later),
        (later, "opencl/NCHW"),
        ("opencl/NCHW", "opencl/NC16HW16"),
        ("opencl/NC16HW16", "opencl/NCHW"),
        ("opencl/NCHW", later),
        (later, "opencl/NCHW"),
    ]
    half = f"opencl/f16/{NEW}"
    assert casts(read_in([NEW], Precision.FP16)) == [
        ("opencl/NCHW", "opencl/f16/NCHW"),
        ("opencl/f16/NCHW", half),
        (half, "opencl/f16/NCHW"),
        ("opencl/f16/NCHW", "opencl/NCHW"),
    ]


def test_a_layout_without_casts_is_refused_by_name() -> None:
    with pytest.raises(PlacementError, match=r"no kernel casts %x\S*: .* to opencl/channels-last buffer"):
        casts(read_in([NEW]))


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


def test_lanes_past_the_last_channel_are_zero() -> None:
    """Kernels rely on it, so that a kernel that leaves other numbers there is found out."""
    stored = pack_array(np.ones((1, 3, 2, 2), np.float32), packed(4))
    assert unpack_array(stored, (1, 3, 2, 2), packed(4)).shape == (1, 3, 2, 2)
    stored[..., 3] = 1
    with pytest.raises(DeviceError, match="lanes past the 3 channels"):
        unpack_array(stored, (1, 3, 2, 2), packed(4))
