"""Generic Gather and Scatter in all forms and element types, by one program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.symbols import always_equal
from ...ops.gather import Gather, GatherElements, GatherND
from ...ops.scatter import REDUCTIONS, Scatter, ScatterElements
from ..data_movement.gather import row_strides
from ..kernel import Params, Problem, register
from ..launch import Arg, Args, Launch, ceil_div, make_table
from .generic_kernel import Build, GenericKernel, storage_of, vector_defines

Axes = Sequence[tuple[int, int, int]]
"""(extent, step in x or y, step in indices) of each axis that a row or line runs along."""


class GenericRowKernel(GenericKernel):
    """Base class of gather and scatter kernels."""

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source, {"PACK": vector_defines(device)["PACK"], "SPAN": 256 if device.is_cpu else 4})]

    def rows(
        self,
        p: Problem,
        entry: str,
        axes: Axes,
        coordinates: Sequence[tuple[int, int]],
        inner: int,
        args: Mapping[str, Arg],
    ) -> Launch:
        """A launch of `entry` for all items of `axes`.

        coordinates: (extent, stride) of each index that selects a row of `inner` elements.
        """
        node = p.node
        kept = [axis for axis in axes if not always_equal(axis[0], 1)]
        all_args: Args = {"y": node.y, "indices": node.input(1), "axes": make_table(kept or [(1, 0, 0)])}
        all_args |= {"coordinates": make_table(coordinates or [(1, 0)]), "rank": len(kept), "depth": len(coordinates)}
        all_args |= {"wide": int(node.input(1).dtype is DType.INT64), "inner": inner}
        all_args |= {"bytes": node.y.type.storage.size, **args}
        (build,) = self.builds(p.device)
        grid = ceil_div(inner, build.defines["SPAN"]), math.prod(axis[0] for axis in axes)
        return Launch(entry, all_args, grid, defines=build.defines)


class _GenericGather(GenericRowKernel):
    def reads(self, p: Problem, axes: Axes, coordinates: Sequence[tuple[int, int]], inner: int) -> list[Launch]:
        """The launch that copies the selected row of each item of `axes`."""
        args: Args = {"x": p.node.x, "rows": math.prod(axis[0] for axis in axes)}
        return [self.rows(p, "read_rows", axes, coordinates, inner, args)]


@register
class GatherGeneric(_GenericGather):
    """Copies the row of each index."""

    op = "Gather"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, axis = p.node.x, p.node.as_(Gather).axis
        size, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
        axes = [(math.prod(x.shape[:axis]), size * inner, 0), (p.node.input(1).type.count, 0, 1)]
        return self.reads(p, axes, [(size, inner)], inner)


@register
class GatherElementsGeneric(_GenericGather):
    """Copies rows of one element."""

    op = "GatherElements"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, y, axis = p.node.x, p.node.y, p.node.as_(GatherElements).axis
        strides = row_strides(x.shape)
        steps = [0 if a == axis else s for a, s in enumerate(strides)]
        axes = list(zip(y.shape, steps, row_strides(y.shape), strict=True))
        return self.reads(p, axes, [(x.shape[axis], strides[axis])], 1)


@register
class GatherNDGeneric(_GenericGather):
    """Copies the row of each coordinate tuple."""

    op = "GatherND"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, indices, batch = p.node.x, p.node.input(1), p.node.as_(GatherND).batch_dims
        depth = indices.shape[-1]
        each = math.prod(indices.shape[batch:-1])
        axes = [(math.prod(x.shape[:batch]), math.prod(x.shape[batch:]), each * depth), (each, 0, depth)]
        sizes = list(zip(x.shape, row_strides(x.shape), strict=True))
        return self.reads(p, axes, sizes[batch : batch + depth], math.prod(x.shape[batch + depth :]))


class _GenericScatter(GenericRowKernel):
    def refuse(self, p: Problem) -> str | None:
        reduction, stored = p.node.as_(Scatter).reduction, storage_of(p.node, p.node.y)
        if reduction != "none" and stored is not DType.FLOAT32:
            return f"the general kernel reduces float32, not {stored}"
        return None

    def writes(
        self,
        p: Problem,
        axes: Axes,
        coordinates: Sequence[tuple[int, int]],
        inner: int,
        length: int,
        step: int,
        update_step: int,
    ) -> list[Launch]:
        """A copy of x, then `length` updates for each item of `axes`."""
        node = p.node
        copy: Args = {"x": node.x, "rows": 1}
        args: Args = {"updates": node.input(2), "lines": math.prod(axis[0] for axis in axes)}
        args |= {"length": length, "step": step, "update_step": update_step}
        args["reduction"] = REDUCTIONS.index(node.as_(Scatter).reduction)
        return [
            self.rows(p, "read_rows", (), (), node.y.type.count, copy),
            self.rows(p, "write_rows", axes, coordinates, inner, args),
        ]


@register
class ScatterElementsGeneric(_GenericScatter):
    """A work-item per line along the axis."""

    op = "ScatterElements"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, indices, axis = p.node.x, p.node.input(1), p.node.as_(ScatterElements).axis
        strides, steps = row_strides(x.shape), row_strides(indices.shape)
        axes = [(indices.shape[a], strides[a], steps[a]) for a in range(x.type.rank) if a != axis]
        named = [(x.shape[axis], strides[axis])]
        return self.writes(p, axes, named, 1, indices.shape[axis], steps[axis], steps[axis])


@register
class ScatterNDGeneric(_GenericScatter):
    """A work-item per span of a row, which iterates over all coordinate tuples."""

    op = "ScatterND"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, indices = p.node.x, p.node.input(1)
        depth = indices.shape[-1]
        inner = math.prod(x.shape[depth:])
        sizes = list(zip(x.shape, row_strides(x.shape), strict=True))
        return self.writes(p, (), sizes[:depth], inner, math.prod(indices.shape[:-1]), depth, inner)
