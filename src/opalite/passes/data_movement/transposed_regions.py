"""Regions of a graph whose nodes can compute on tensors in either of two orders of axes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...kernels.kernel import Tier
from ...ops.data_movement import Transpose
from ..rewrite_driver import Sweep
from .axis_orders import Order, Reordered, inverse, is_same_order, moved_axes, reorder, source_order, unchanged
from .channels_last import reorder_conv
from .flattened_products import flattened_product

_LAUNCH = 1 << 14  # bytes, for an unknown device


@dataclass(eq=False)
class Region:
    """Values that each have one other order, such that the whole region can be stored either way.

    orders: the other order of each value, and the side on which its own order is; Transposes within the region connect
    both sides. links: these Transposes. movable: nodes that compute on either side, in the other order. indifferent:
    readers that give the same result on either side. products: Reshapes that flatten either order for a product with
    constant weights, whose rows can be permuted, with the other order. convs: whether convolutions can be computed
    channels last. launch: bytes that are transposed in the time that a launch takes.
    """

    sweep: Sweep
    seed: Node
    convs: bool
    launch: int
    orders: dict[Value, tuple[Order, bool]] = field(default_factory=dict)
    links: set[Node] = field(default_factory=set)
    movable: dict[Node, Reordered] = field(default_factory=dict)
    indifferent: dict[Node, Reordered] = field(default_factory=dict)
    products: dict[Node, Order] = field(default_factory=dict)

    def __post_init__(self) -> None:
        perm = self.seed.as_(Transpose).perm
        waiting: list[Value] = []
        for v, order, side in ((self.seed.x, perm, True), (self.seed.y, inverse(perm), False)):
            self._add(v, order, side, waiting)
        while waiting:
            v = waiting.pop()
            near = list(self.sweep.uses.get(v, ()))
            if v.producer is not None:
                near.append(v.producer)
            for node in near:
                if isinstance(node.op, Transpose):
                    self._link(node, waiting)
                elif node not in self.movable:
                    self._move(node, waiting)

    def _add(self, v: Value, order: Order, side: bool, waiting: list[Value]) -> None:
        self.orders[v] = order, side
        waiting.append(v)

    def _fits(self, v: Value, order: Order, side: bool) -> bool:
        """Whether `v` has this order in the region, or is not in it yet."""
        if v not in self.orders:
            return True
        known, own = self.orders[v]
        return own is side and is_same_order(known, order, v.shape)

    def _link(self, node: Node, waiting: list[Value]) -> None:
        """Add a Transpose between the two orders."""
        perm = node.as_(Transpose).perm
        x, y = self.orders.get(node.x), self.orders.get(node.y)
        side = x[1] if x is not None else not y[1] if y is not None else True
        if node in self.links or not self._fits(node.x, perm, side) or not self._fits(node.y, inverse(perm), not side):
            return
        self.links.add(node)
        for v, order, own in ((node.x, perm, side), (node.y, inverse(perm), not side)):
            if v not in self.orders:
                self._add(v, order, own, waiting)

    def _move(self, node: Node, waiting: list[Value]) -> None:
        """Add a node that can compute in the other order, with its inputs and its output."""
        if len(node.outputs) != 1 or not node.inputs:
            return
        found = self._reordered(node)
        if found is None:
            return
        moved, side = found
        pairs = [(v, o) for v, o in zip(node.inputs, moved.inputs, strict=True) if v is not None and o is not None]
        if not all(v.is_const or self._fits(v, o, side) for v, o in pairs):
            return
        if moved.output == unchanged(len(node.y.shape)):
            if len(pairs) == 1 and pairs[0][0] in self.orders:
                self.indifferent[node] = moved
            return
        if not self._fits(node.y, moved.output, side):
            return
        self.movable[node] = moved
        for v, o in (*pairs, (node.y, moved.output)):
            if v not in self.orders and not v.is_const:
                self._add(v, o, side, waiting)

    def _reordered(self, node: Node) -> tuple[Reordered, bool] | None:
        """The node in the other order of one of its inputs or of its output, with the side on which it is written."""
        for i, v in enumerate(node.inputs):
            if v in self.orders:
                order, side = self.orders[v]
                moved = self._in_order(node, order)
                if moved is not None and moved.inputs[i] is not None:
                    return moved, side
                if moved is None and i == 0 and flattened_product(node, order, self.sweep) is not None:
                    self.products[node] = order
        if node.y in self.orders:
            written, side = self.orders[node.y]
            source = source_order(node, written)
            moved = None if source is None else self._in_order(node, source)
            return None if moved is None else (moved, side)
        return None

    def _in_order(self, node: Node, order: Order) -> Reordered | None:
        moved = reorder_conv(node, order) if self.convs else None
        return moved or reorder(node, order)


def find_regions(sweep: Sweep, device: DeviceInfo | None, tier: Tier = "optimized") -> dict[Node, Region]:
    """All regions, by the Transpose that each was found from.

    Convolutions stay channels first on devices that hold images in image2d, in blocks of channels, and in the generic
    tier, which has one kernel for them.
    """
    convs = tier == "optimized" and (device is None or not device.prefers_images)
    launch = _LAUNCH if device is None else int(device.launch_s * device.bandwidth / 2)
    found: dict[Node, Region] = {}
    linked: set[Node] = set()
    for node in sweep.graph.nodes:
        if isinstance(node.op, Transpose) and node not in linked and _moves(node):
            found[node] = Region(sweep, node, convs, launch)
            linked |= found[node].links
    return found


def _moves(node: Node) -> bool:
    """Whether the Transpose is more than a reshape."""
    perm, shape = node.as_(Transpose).perm, node.x.shape
    return not node.x.is_const and moved_axes(perm, shape) != moved_axes(unchanged(len(perm)), shape)
