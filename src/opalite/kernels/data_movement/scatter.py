"""ScatterElements and ScatterND on row-major tensors: sequential updates, or the last update found by atomics."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...cost.cost_tables import Movement, SequentialSteps
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ops.operator import Cost
from ...ops.scatter import REDUCTIONS, Scatter, ScatterElements
from ..kernel import Params, Problem, register
from ..kernel_sources import read_source
from ..launch import STORAGE, Arg, Args, Launch, Scratch, Table, ceil_div, make_table
from .gather import RowKernel, merged_axes, row_defines, row_strides, span

_OF_BOOLEANS = {"none": "none", "add": "max", "mul": "min", "max": "max", "min": "min"}


class _ScatterKernel(RowKernel):
    """Base class of the four scatter kernels: parameters, defines, launches."""

    source = "data_movement/scatter.cl"

    def _scatter(self, entry: str, node: Node, params: Params, items: int, args: Mapping[str, Arg]) -> Launch:
        defines = row_defines(node, params)
        reduction, stored = node.as_(Scatter).reduction, node.y.type.storage
        if stored is DType.BOOL:
            reduction, stored = _OF_BOOLEANS[reduction], DType.UINT8
        defines["REDUCTION"] = REDUCTIONS.index(reduction)
        defines["STORAGE"] = STORAGE[stored]
        defines["LAST"], defines["TUPLES"] = int(isinstance(self, _LastUpdateScatter)), int(self.op == "ScatterND")
        return Launch(
            entry, args, (items,), (params["WG"],), defines, read_source("data_movement/gather_scatter_indices.cl")
        )


class _SequentialScatter(_ScatterKernel):
    """Copies x, then each work-item applies the updates of its own elements in order; any reduction."""

    def _copy(self, node: Node, params: Params) -> Launch:
        count = node.y.type.count
        spans = ceil_div(count, span(params))
        return self._scatter(
            "copy_all", node, params, spans, {"x": node.x, "y": node.y, "spans": spans, "count": count}
        )

    def _sequences(self, node: Node) -> tuple[int, int]:
        """(independent update sequences, steps of each)."""
        raise NotImplementedError

    def seconds(self, p: Problem, cost: Cost) -> float:
        sequences, steps = self._sequences(p.node)
        walk = SequentialSteps.seconds("Scatter", p.device, sequences, steps)
        return cost.bytes / p.device.bandwidth + walk + 2 * p.device.launch_s


class _LastUpdateScatter(_ScatterKernel):
    """Scatter without reduction: atomic maxima find the last update of each element, then rows are written once."""

    def refuse(self, p: Problem) -> str | None:
        return None if p.node.as_(Scatter).reduction == "none" else "of each place it keeps the last update only"

    def _launches(
        self, node: Node, params: Params, inner: int, find: str, finds: int, args: Mapping[str, Arg]
    ) -> list[Launch]:
        """Launches for y as rows of `inner` elements; kernel `find`, with `args`, marks the last updates."""
        x, indices, updates, y = node.x, node.input(1), node.input(2), node.y
        rows = y.type.count // max(inner, 1)
        last = Scratch("last", 4 * rows)
        chunks = ceil_div(inner, span(params))
        items = rows * chunks
        taken: Args = {
            "x": x,
            "updates": updates,
            "last": last,
            "y": y,
            "items": items,
            "chunks": chunks,
            "inner": inner,
        }
        return [
            self._scatter("no_update", node, params, rows, {"last": last, "count": rows}),
            self._scatter(find, node, params, finds, {"indices": indices, "last": last, **args}),
            self._scatter("take_last", node, params, items, taken),
        ]

    def _row_length(self, node: Node) -> int:
        """Elements that one update writes."""
        raise NotImplementedError

    def seconds(self, p: Problem, cost: Cost) -> float:
        rows = (p.node.x.type.count + p.node.input(2).type.count) / max(self._row_length(p.node), 1)
        each = Movement.of(p.device).marked_row_s / p.device.compute_units
        return cost.bytes / p.device.bandwidth + rows * each + 3 * p.device.launch_s


def _tuples(node: Node) -> tuple[Table, int, int, int]:
    """Of a ScatterND: (size, stride in rows) of each coordinate; tuples; coordinates per tuple; elements per row."""
    shape, indices = node.x.shape, node.input(1).shape
    depth = indices[-1]
    pairs = list(zip(shape[:depth], row_strides(shape[:depth]), strict=True))
    return make_table(pairs or [(1, 0)]), math.prod(indices[:-1]), depth, math.prod(shape[depth:])


@register
class ScatterElementsLastUpdate(_LastUpdateScatter):
    """ScatterElements without reduction, in three launches parallel over elements."""

    op = "ScatterElements"

    def defaults(self, p: Problem) -> Params:
        return {"VEC": 1, "UNROLL": 1, "WG": 64}

    def _row_length(self, node: Node) -> int:
        return 1

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        indices, axis = node.input(1), node.as_(ScatterElements).axis
        strides = row_strides(node.x.shape)
        axes = merged_axes(indices.shape, [0 if a == axis else s for a, s in enumerate(strides)])
        finds = indices.type.count
        args: Args = {"axes": make_table(axes), "items": finds, "rank": len(axes)}
        args |= {"size": node.x.shape[axis], "stride": strides[axis]}
        return self._launches(node, params, 1, "last_elements", finds, args)


@register
class ScatterElementsSequential(_SequentialScatter):
    """ScatterElements with any reduction; one work-item computes a line along the axis."""

    op = "ScatterElements"

    def _sequences(self, node: Node) -> tuple[int, int]:
        indices = node.input(1)
        steps = indices.shape[node.as_(ScatterElements).axis]
        return indices.type.count // max(steps, 1), steps

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, indices, updates, y, axis = node.x, node.input(1), node.input(2), node.y, node.as_(ScatterElements).axis
        lines, length = self._sequences(node)
        strides, steps = row_strides(x.shape), row_strides(indices.shape)
        others = [(indices.shape[a], steps[a], strides[a]) for a in range(x.type.rank) if a != axis]
        rows = others or [(1, 0, 0)]
        args: Args = {"indices": indices, "updates": updates, "y": y, "lines": make_table(rows), "items": lines}
        args |= {"rank": len(rows), "length": length, "step": steps[axis]}
        args |= {"size": x.shape[axis], "stride": strides[axis]}
        walk = self._scatter("walk_elements", node, params, lines, args)
        return [self._copy(node, params), walk]


@register
class ScatterNDLastUpdate(_LastUpdateScatter):
    """ScatterND without reduction, in three launches parallel over rows and their spans."""

    op = "ScatterND"

    def _row_length(self, node: Node) -> int:
        return _tuples(node)[3]

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        axes, count, depth, inner = _tuples(p.node)
        args: Args = {"axes": axes, "count": count, "depth": depth}
        return self._launches(p.node, params, inner, "last_tuples", count, args)


@register
class ScatterNDSequential(_SequentialScatter):
    """ScatterND with any reduction; a work-item owns a span of columns and iterates over all tuples."""

    op = "ScatterND"

    def _sequences(self, node: Node) -> tuple[int, int]:
        _, count, _, inner = _tuples(node)
        return inner, count

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        axes, count, depth, inner = _tuples(node)
        spans = ceil_div(inner, span(params))
        indices, updates, y = node.input(1), node.input(2), node.y
        args: Args = {"indices": indices, "updates": updates, "y": y, "axes": axes}
        args |= {"count": count, "depth": depth, "inner": inner}
        walk = self._scatter("walk_tuples", node, params, spans, args)
        return [self._copy(node, params), walk]
