"""Move Transposes through all operators that can compute on tensors in another order of axes.

Networks written channels last have a Transpose around each convolution and other operators between them. Each node of a
region (`transposed_regions.py`) computes in one of two orders, and Transposes are left where the order changes. The
orders with the fewest transposed bytes are a minimum cut between what needs one order and what needs the other.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...kernels.kernel import Tier
from ...ops.conv import Conv
from ...ops.data_movement import Reshape, Transpose
from ...ops.elementwise import Elementwise
from ..fusion.fold_into_conv import constant_like
from ..rewrite_driver import Added, Rule, Sweep, value_like
from .axis_orders import Order, composed, inverse, is_same_order, picked, unchanged
from .channels_last import conv_last
from .flattened_products import permuted_weights
from .region_orders import Tensor, find_tensors, flipped_nodes, needs_own_order
from .transposed_regions import Region, find_regions


def move_transposes(device: DeviceInfo | None, tier: Tier = "optimized") -> Rule:
    """Rule: the Transposes of a region are moved to where they take the least time."""
    sweeps: WeakKeyDictionary[Sweep, dict[Node, Region]] = WeakKeyDictionary()

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, Transpose):
            return None
        if sweep not in sweeps:
            sweeps[sweep] = find_regions(sweep, device, tier)
        region = sweeps[sweep].get(node)
        if region is None:
            return None
        tensors = find_tensors(region)
        rebuilt = _Rebuilt(region, tensors, flipped_nodes(region, tensors))
        if not rebuilt.flipped and all(rebuilt.is_wanted(n.y) for n in region.links):
            return "every other place takes as long"
        return rebuilt.patch()

    return rule


class _Rebuilt:
    """The region with some nodes `flipped` to the other order.

    stored: each tensor in the orders in which the new graph has it, relative to its root.
    """

    def __init__(self, region: Region, tensors: dict[Value, Tensor], flipped: set[Node]) -> None:
        self.region, self.sweep, self.tensors, self.flipped = region, region.sweep, tensors, flipped
        self.stored: dict[Tensor, dict[Order, Value]] = {t: {} for t in tensors.values()}
        for tensor, stored in self.stored.items():
            if tensor.root.producer not in flipped:
                stored[unchanged(len(tensor.root.shape))] = tensor.root
        self.added = Added()
        self.removed: list[Node] = []
        self.replaced: dict[Value, Value] = {}

    def patch(self) -> Patch:
        """The patch that rebuilds the region."""
        for node in self.sweep.graph.nodes:
            if node in self.region.links:
                self._link(node)
            elif node in self.flipped and not isinstance(node.op, Transpose):
                self._flip(node)
            elif any(v in self.region.orders for v in node.inputs) or node in self.flipped:
                if isinstance(node.op, Transpose):
                    self._turn(node)
                elif node in self.region.indifferent or node in self.region.products:
                    self._reread(node)
        return Patch(self.removed, self.added, self.replaced)

    def _link(self, node: Node) -> None:
        """Keep a Transpose between both orders if it is needed still."""
        tensor = self.tensors[node.y]
        stored, order = self.stored[tensor], tensor.names[node.y]
        if not self.is_wanted(node.y):
            self.removed.append(node)
        elif node.x in stored.values() and not any(is_same_order(o, order, tensor.root.shape) for o in stored):
            stored[order] = node.y
        else:
            self._replace(node, node.y)

    def _flip(self, node: Node) -> None:
        moved = self.region.movable[node]
        out = value_like(node.y, picked(node.y.shape, moved.output))
        if isinstance(node.op, Conv):
            order = moved.inputs[0]
            assert order is not None
            made = conv_last(node, self._in_order(node, node.x, order), out, self.added)
        else:
            pairs = zip(node.inputs, moved.inputs, strict=True)
            inputs = [self._operand(node, v, order, moved.output) for v, order in pairs]
            made = node.with_(op=moved.op, inputs=inputs, outputs=[out])
            if isinstance(moved.op, Elementwise) and all(v is None or len(v.shape) < len(out.shape) for v in inputs):
                made.op = replace(moved.op, shape=out.shape)  # no operand has all axes
        self._put(node, made, moved.output)

    def _turn(self, node: Node) -> None:
        """A Transpose to or from an order that the region does not have reads and writes what is there."""
        y, order, x = node.y, unchanged(len(node.y.shape)), node.x
        perm = node.as_(Transpose).perm
        if node in self.flipped:
            order = self.region.orders[y][0]
        elif x not in self.region.orders or self._is_kept(x):
            return
        if x in self.region.orders and not self._is_kept(x):
            x, own = self._any_order(x)
            perm = composed(inverse(own), perm)
        perm = composed(perm, order)
        self._put(
            node, node.with_(op=Transpose(perm), inputs=[x], outputs=[value_like(y, picked(y.shape, order))]), order
        )

    def _reread(self, node: Node) -> None:
        """A node whose result is the same for both orders of its input reads that which is there."""
        x = next(v for v in node.inputs if v in self.region.orders)
        assert x is not None
        if self._is_kept(x):
            return
        _, own = self._any_order(x)
        if is_same_order(own, unchanged(len(own)), x.shape):
            self._replace(node, x)
        elif node in self.region.indifferent:
            moved = self.region.indifferent[node]
            inputs = [
                v if o is None else self._in_order(node, x, o) for v, o in zip(node.inputs, moved.inputs, strict=True)
            ]
            self._put(node, node.with_(op=moved.op, inputs=inputs), moved.output)
        else:
            order = self.region.products[node]
            (product,) = self.sweep.uses[node.y]
            flat = self.added.put(node.with_(inputs=[self._in_order(node, x, order)]))
            weights = permuted_weights(node, order, product)
            self.removed.append(node)
            self._put(
                product, product.with_(inputs=[flat, weights, *product.inputs[2:]]), unchanged(len(product.y.shape))
            )

    def _put(self, node: Node, made: Node, order: Order) -> None:
        """Replace `node` by `made`, whose output is in `order`."""
        out = self.added.put(made)
        self.removed.append(node)
        if node.y in self.tensors:
            self.stored[self.tensors[node.y]][order] = out
            if self.is_wanted(node.y):
                self._replace(node, node.y)
        else:
            self.replaced[node.y] = out

    def _replace(self, node: Node, v: Value) -> None:
        """Replace `v` by what is stored."""
        if v.producer is not None and v.producer not in self.removed:
            self.removed.append(v.producer)
        self.replaced[v] = self._in_order(node, v, unchanged(len(v.shape)))

    def _is_kept(self, v: Value) -> bool:
        return v in self.stored[self.tensors[v]].values()

    def is_wanted(self, v: Value) -> bool:
        """Whether `v` is read as it is written."""
        if v in self.sweep.exposed:
            return True
        region = self.region
        users = self.sweep.uses.get(v, ())
        return any(needs_own_order(n, v, region) or (n in region.movable and n not in self.flipped) for n in users)

    def _any_order(self, v: Value) -> tuple[Value, Order]:
        """`v` as stored in the first of its orders, with the order."""
        tensor = self.tensors[v]
        order, stored = next(iter(self.stored[tensor].items()))
        return stored, composed(inverse(tensor.names[v]), order)

    def _in_order(self, node: Node, v: Value, order: Order) -> Value:
        """`v` in `order`, read by `node`."""
        tensor = self.tensors[v]
        stored, shape = self.stored[tensor], tensor.root.shape
        wanted = composed(tensor.names[v], order)
        if wanted not in stored:
            same = next((o for o in stored if is_same_order(o, wanted, shape)), None)
            if same is not None:
                helper = node.make_helper(Reshape(picked(shape, wanted)), [stored[same]])
            else:
                first = next(iter(stored))
                helper = node.make_helper(Transpose(composed(inverse(first), wanted)), [stored[first]], like=v.name)
            stored[wanted] = self.added.put(helper)
        return stored[wanted]

    def _operand(self, node: Node, v: Value | None, order: Order | None, output: Order) -> Value | None:
        """Operand `v` of a flipped node: in its order, or broadcast to the order of the output."""
        if v is None or (order is None and not isinstance(node.op, Elementwise)):
            return v
        if order is not None and not v.is_const:
            return self._in_order(node, v, order)
        if v.type.count == 1:
            return v
        rank = len(output)
        whole = (1,) * (rank - len(v.shape)) + v.shape
        shape = picked(whole, order or output)
        while order is None and always_equal(shape[0], 1):
            shape = shape[1:]
        if v.is_const:
            return constant_like(v, v.array.reshape(whole).transpose(order or output).reshape(shape))
        if is_same_order(output, unchanged(rank), whole):
            return v if shape == v.shape else self.added.put(node.make_helper(Reshape(shape), [v]))
        apart = self.added.put(node.make_helper(Reshape(whole), [v]))
        return self.added.put(node.make_helper(Transpose(output), [apart]))
