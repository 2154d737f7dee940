"""Insert casts between producers and readers in different places.

One PlaceCast serves all readers of one place. Host-device transfers move flat row-major arrays; layout and precision
change on the device in one cast (as in MNN: host to buffer to image, never host to image).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import PlacementError
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Graph, Node, Value, new_value
from ..ir.place import FLAT, HOST, OPENCL, Layout, Place, Target
from ..ir.precision import Precision
from ..ir.symbols import always_equal
from ..ir.tensor_type import TensorType
from ..kernels.image.image_layout import blocks_to_texels
from ..kernels.kernel import Binding, Tier
from ..kernels.weight_packing import pack_array
from ..ops.data_movement import Reshape
from ..ops.elementwise import Elementwise, place_cast
from .kernel_candidates import Answers, Choice, Measured, Option, confirm, find_options


@dataclass
class _Caster:
    graph: Graph
    device: DeviceInfo
    measured: Measured | None
    tier: Tier
    answers: Answers
    nodes: list[Node] = field(default_factory=list)
    made: dict[tuple[Value, Place], Value] = field(default_factory=dict)

    def to(self, v: Value, place: Place) -> Value:
        """`v` in `place`, by a cast if needed."""
        if v.type.place == place:
            return v
        found = self.made.get((v, place))
        if found is None:
            found = self.made[v, place] = self._cast(v, place)
        return found

    def _cast(self, v: Value, place: Place) -> Value:
        if v.is_const:  # cast ahead of time
            found = self.graph.adopt(new_value(v.name, v.type.with_place(place)))
            found.share(v)
            return found
        if v.type.place.target is Target.HOST:
            near = self.to_node(v, OPENCL)
            return self.to(near, place)
        if place.target is Target.HOST:
            return self.to_node(self.to(v, OPENCL), HOST)
        return self.to_node(v, place)

    def to_node(self, v: Value, place: Place) -> Value:
        """A PlaceCast node, shared by all readers of `v` in `place`."""
        if v.type.place == place:
            return v
        found = self.made.get((v, place))
        if found is not None:
            return found
        out = self.graph.adopt(new_value(v.name, v.type.with_place(place)))
        node = place_cast(v, out)
        binding = Binding((v.type.layout,), (place.layout,))
        if v.type.place.target is place.target:
            options, refusals = find_options(
                node, self.device, None, self.measured, tier=self.tier, answers=self.answers
            )
            fits = (o for o in options if self.graph.trace is None or confirm(node, self.device, o) is None)
            picked = next(fits, None)
            if picked is None:
                return self._by_rows(v, place, refusals)
            node.choice = Choice(replace(picked, binding=binding), options, refusals)
        else:
            node.choice = Choice(Option(None, binding, 0.0))
        self.nodes.append(node)
        self.made[v, place] = out
        return out

    def _by_rows(self, v: Value, place: Place, refusals: Mapping[str, str]) -> Value:
        """`v` in `place` by two casts through row-major order, for layouts without a direct cast."""
        source = v.type.place
        between = (place if source.layout == FLAT else source).with_layout(FLAT)
        if between in (source, place):
            why = "; ".join(f"{kernel}: {reason}" for kernel, reason in refusals.items())
            raise PlacementError(f"no kernel casts {v!r} from {source} to {place}, which a reader needs: {why}")
        return self.to_node(self.to_node(v, between), place)


def insert_casts(
    graph: Graph,
    device: DeviceInfo,
    measured: Measured | None = None,
    tier: Tier = "optimized",
    answers: Answers | None = None,
) -> None:
    """Give every input of every node the place that its kernel binds; graph outputs end on the host.

    Reserved memory stays on the device. tier: the tier of cast kernels; casts without a generic kernel use an optimized
    one. answers: as in `find_options`.
    """
    caster = _Caster(graph, device, measured, tier, answers or Answers(device))
    lasting = {graph.outputs[o] for _, o in graph.input_output_aliases}
    precisions = _Precisions(graph, lasting)
    writers = {v: n for n in reversed(graph.nodes) for v in n.inputs} if graph.input_output_aliases else {}
    for i, _ in graph.input_output_aliases:
        memory = graph.inputs[i]
        writer = writers[memory]
        memory.type = memory.type.with_place(Place(Target.OPENCL, FLAT, writer.precision.override(memory.dtype)))
    for node in graph.nodes:
        on_host = bool(node.chosen.host_reason)
        wanted: tuple[Layout | None, ...] = node.chosen.option.binding.inputs
        if not on_host:
            for out in node.outputs:
                out.type = out.type.with_place(out.type.place.with_precision(precisions.stored(node, out)))
        for i, (v, layout) in enumerate(zip(node.inputs, wanted, strict=True)):
            if v is None or (layout is None and v.is_const):
                continue
            if on_host:
                node.inputs[i] = caster.to(v, HOST)
            else:
                assert layout is not None
                node.inputs[i] = caster.to(v, Place(Target.OPENCL, layout, precisions.read(node, i, v)))
        caster.nodes.append(node)
    graph.outputs = [v if v in lasting else caster.to(v, HOST) for v in graph.outputs]
    graph.nodes = caster.nodes


class _Precisions:
    """The precision in which each node of a graph with chosen kernels reads and stores its values.

    lasting: outputs in reserved memory.
    """

    def __init__(self, graph: Graph, lasting: set[Value]) -> None:
        exposed = Counter(graph.outputs)
        reads = Counter(v for n in graph.nodes for v in n.inputs if v is not None)
        self._last = {v for v in exposed if not reads[v] and v not in lasting}
        self._views: set[Node] = set()
        for node in reversed(graph.nodes):
            x = node.get(0)
            if x is None or x.is_const or reads[x] + exposed[x] > 1 or not _is_view(node):
                continue  # other readers share a cast of the input
            self._views.add(node)
            if node.y in self._last:
                self._last.add(x)

    def stored(self, node: Node, out: Value) -> DType | None:
        """Type of a stored output: a view's is its input's, and the last ones are stored as the host reads them."""
        wanted, kernel = node.precision.override(out.dtype), node.chosen.option.kernel
        if node in self._views:
            return node.x.type.place.precision
        if kernel is None or wanted is None or out not in self._last or not out.type.layout.is_row_major:
            return wanted
        return None if kernel.gives(out.dtype, wanted) else wanted

    def read(self, node: Node, i: int, v: Value) -> DType | None:
        """Type in which an input is read: the value's own, if the node takes either."""
        wanted, kernel = node.stored_input(i), node.chosen.option.kernel
        if node in self._views:
            return v.type.place.precision
        if v.is_const or v.dtype is not DType.FLOAT32 or kernel is None:
            return wanted
        takes = kernel.takes(i, v.type.storage, wanted or DType.FLOAT32)
        layout = node.chosen.option.binding.inputs[i]
        stays = layout is not None and layout.is_image and v.type.layout == layout
        if stays and node.precision is not Precision.FP16_FAST:
            takes = True  # texels are read as floats, whatever the image stores
        elif kernel.tier == "optimized" and v.type.count == 1 and _is_operand(node, i):
            takes = True
        return v.type.place.precision if takes else wanted


def _is_operand(node: Node, i: int) -> bool:
    """Whether input `i` is an operand of an expression, and not what a kernel copies through it."""
    if isinstance(node.op, Elementwise):
        return not always_equal(node.input(i).shape, node.y.shape)
    return i >= node.op.arity


def _is_view(node: Node) -> bool:
    return isinstance(node.op, Reshape) and not node.chosen.host_reason


def stored_array(v: Value) -> np.ndarray[Any, Any]:
    """A constant's data as stored in its place: packed by channel, image texels, or in the storage precision."""
    data = v.data  # read once: a lazy array loads at each access
    assert data is not None
    return stored_as(data, v.type)


def stored_as(array: np.ndarray[Any, Any], type_: TensorType) -> np.ndarray[Any, Any]:
    """`array` as stored by a tensor of `type_`."""
    data = pack_array(array, type_.layout)
    if type_.layout.is_image:
        data = blocks_to_texels(data)
    return np.ascontiguousarray(data, type_.storage.np)
