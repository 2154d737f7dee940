"""Generic convolutions and matrix products of any size, by one program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.constants.lazy_array import LazyArray, page_empty, read_slices
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.symbols import symbolic_max
from ...ir.tensor_type import Shape
from ...ops.conv import Conv, ConvTranspose
from ..filter_window import Window, WindowProblem, find_span, window_refusal
from ..kernel import Params, register
from ..launch import Arg, Args, Array, Launch, Scratch, Weight, ceil_div
from ..matmul.matmul_problem import MatmulProblem
from .generic_kernel import INT_MAX, Build, GenericKernel, clamp_bounds, sum_refusal, vector_defines
from .generic_pool_reduce import is_depthwise

ROWS = 4  # a constant of generic_conv_matmul.cl
_BEYOND = 1 << 20  # more positions than any row has


class GenericGemm(GenericKernel):
    """Base class of convolutions and matrix products."""

    by_column: bool
    """Whether positions are the last axis of y, so that what is like that can be added."""

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source, vector_defines(device))]

    def refuse_epilogue(self, node: Node) -> str | None:
        """The reason why the program does not compute the node's epilogue, or None."""
        return sum_refusal(node, self.by_column)

    def product(self, p: Any, args: Args, stacks: int, remainders: int = 1) -> list[Launch]:
        """The launch with the given arguments and those derived from them.

        remainders: stacks of a transposed convolution's outputs for each of `stacks`.
        """
        node = p.node
        defines = GenericGemm.builds(self, p.device)[0].defines
        span = defines["PACK"] * defines["VECTORS"]
        clamp = clamp_bounds(node.epilogue)
        args |= {"added": node.x, "has_added": 0} | {f"added_step_{axis}": 0 for axis in "smp"}
        if clamp is None:
            clamp, added = clamp_bounds(node.epilogue, adds=True), node.inputs[node.op.arity]
            assert added is not None
            args |= {"added": added, "has_added": 1} | _added_steps(added.shape, node.y.shape, args)
        assert clamp is not None
        positions, rows, line, wrap = (args[name] for name in ("positions", "rows", "qw", "qw"))
        assert isinstance(positions, int)
        assert isinstance(rows, int)
        assert isinstance(line, int)
        # Lanes read adjacent elements of x as long as strides are equal: across row ends only if x has as many columns.
        if args["sw"] != 1 or args["iw"] == line:
            line = positions
        else:
            wrap = _BEYOND
        args |= {"line": line, "wrap": wrap}
        blocks, tiles = positions // max(line, 1) * ceil_div(line, span), ceil_div(rows, ROWS)
        # Adjacent work-items share x in the cache on a CPU; on a GPU they read and write adjacent elements.
        first = p.device.is_cpu
        args |= {"y": node.y, "low": clamp[0], "high": clamp[1], "rows_first": int(first), "stacks": stacks}
        parts = stacks * remainders
        grid = (tiles, blocks, parts) if first else (blocks, tiles, parts)
        return [Launch("product", {**_UNSPLIT, **args}, grid, defines=defines)]


_UNSPLIT: Args = {"split_h": 1, "split_w": 1, "phases_w": 1, "phase_step": 0, "ud": 0, "uh": 0, "uw": 0}


@register
class ConvGeneric(GenericGemm):
    """Grouped convolutions of up to three spatial axes."""

    op = "Conv"
    by_column = False
    problem = WindowProblem

    def refuse(self, p: WindowProblem) -> str | None:
        if is_depthwise(p.node):
            return "each channel has a filter of its own, which DepthwiseGeneric computes"
        return window_refusal(p.node) or self.refuse_epilogue(p.node)

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node, win = p.node, p.window
        x, w, bias = node.x, node.input(1), node.get(2)
        groups, depth = node.as_(Conv).group, w.shape[1]
        rows, taps = w.shape[0] // groups, math.prod(win.kernel)
        plane = math.prod(win.size)
        args: Args = {"x": x, "w": w, "bias": x if bias is None else bias, "has_bias": int(bias is not None)}
        args |= {
            "positions": math.prod(win.out),
            "rows": rows,
            "depth": depth,
            "groups": groups,
            "x_count": x.type.count,
        }
        args |= {
            "w_step_b": 0,
            "w_step_g": rows * depth * taps,
            "w_step_m": depth * taps,
            "w_step_c": taps,
            **_walk(win),
        }
        launches: list[Launch] = []
        if win.strides[2] > 1:
            launches, plane, changed = self.split(p)
            args |= changed
        args |= {"x_step_b": x.shape[1] * plane, "x_step_g": depth * plane, "x_step_c": plane}
        return [*launches, *self.product(p, args, x.shape[0] * groups)]

    def split(self, p: WindowProblem) -> tuple[list[Launch], int, Args]:
        """The launch that sorts the columns and rows of x by their remainders, so that lanes read adjacent elements.

        Also the elements of a channel then, and the arguments that change.
        """
        x, win = p.node.x, p.window
        (_, sh, sw), (_, dh, dw), (_, ph, pw) = win.strides, win.dilations, win.begin
        (_, kh, kw), (_, oh, ow), (depth, ih, iw) = win.kernel, win.out, win.size
        phases_h, phases_w = min(sh, (kh - 1) * dh + 1), min(sw, (kw - 1) * dw + 1)
        height, width = oh + (kh - 1) * dh // sh, ow + (kw - 1) * dw // sw
        planes, step = x.shape[0] * x.shape[1], depth * height * width
        lines = planes * phases_h * phases_w * depth * height
        plane = phases_h * phases_w * step
        made = Scratch("split", 4 * symbolic_max((planes * plane, 1)))
        span = find_span(lines, 1, p.device)
        args: Args = {"x": x, "y": made, "x_count": x.type.count, "lines": lines, "depth": depth, "ih": ih, "iw": iw}
        args |= {"height": height, "width": width, "sh": sh, "sw": sw, "ph": ph, "pw": pw}
        args |= {"phases_h": phases_h, "phases_w": phases_w, "span": span}
        launch = Launch("split_phases", args, (ceil_div(lines, span),), defines=self.builds(p.device)[0].defines)
        changed: Args = {"x": made, "x_count": planes * plane, "ih": height, "iw": width, "sh": 1, "sw": 1, "ph": 0}
        changed |= {"pw": 0, "split_h": sh, "split_w": sw, "phases_w": phases_w, "phase_step": step}
        return [launch], plane, changed


@register
class ConvTransposeGeneric(GenericGemm):
    """Convolutions of x for each remainder of output coordinates by the strides, in one launch."""

    op = "ConvTranspose"
    by_column = False
    problem = WindowProblem

    def refuse(self, p: WindowProblem) -> str | None:
        return window_refusal(p.node) or self.refuse_epilogue(p.node)

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node, win = p.node, p.window
        x, w, bias = node.x, node.input(1), node.get(2)
        groups = node.as_(ConvTranspose).group
        depth, rows, taps = w.shape[0] // groups, w.shape[1], math.prod(win.kernel)
        plane = math.prod(win.size)
        each = [ceil_div(o, s) for o, s in zip(win.out, win.strides, strict=True)]
        args: Args = {"x": x, "w": w, "bias": bias or x, "has_bias": int(bias is not None)}
        args |= {"positions": math.prod(each), "rows": rows, "depth": depth, "groups": groups}
        args |= {"x_count": x.type.count, "x_step_b": x.shape[1] * plane, "x_step_g": depth * plane, "x_step_c": plane}
        args |= {"w_step_b": 0, "w_step_g": depth * rows * taps, "w_step_m": taps, "w_step_c": rows * taps}
        args |= _walk(replace(win, strides=(1, 1, 1)))
        args |= {"q" + axis: n for axis, n in zip("dhw", each, strict=True)}
        args |= {"u" + axis: n for axis, n in zip("dhw", win.strides, strict=True)}
        return self.product(p, args, x.shape[0] * groups, math.prod(win.strides))


def _walk(win: Window) -> Args:
    """The arguments of generic_conv_matmul.cl for the strides of windows over x."""
    table = {"k": win.kernel, "s": win.strides, "d": win.dilations, "p": win.begin}
    table |= {"i": win.size, "o": win.out, "q": win.out}
    return {letter + axis: n for letter, sizes in table.items() for axis, n in zip("dhw", sizes, strict=True)}


@register
class MatmulGeneric(GenericGemm):
    """Matrix products whose batch dimensions merge into at most two."""

    op = "MatMul"
    by_column = True
    problem = MatmulProblem

    def refuse(self, p: MatmulProblem) -> str | None:
        if (why := self.refuse_epilogue(p.node)) is not None:
            return why
        s = p.sizes
        if len(s.batch) > 2:
            return f"{len(s.batch)} batch dimensions that cannot be merged; the general kernel walks two"
        if s.n * s.ldb > INT_MAX or s.m * s.lda > INT_MAX:
            return "a matrix is beyond 32-bit indices"
        return None

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        (outer, a_outer, b_outer), (inner, a_inner, b_inner) = ((1, 0, 0),) * (2 - len(s.batch)) + s.batch
        a_size, b_size = s.m * s.k, s.k * s.n
        w = _Side(node.x, *((1, s.lda) if s.trans_a else (s.lda, 1)), a_outer * a_size, a_inner * a_size)
        x = _Side(node.input(1), *((s.ldb, 1) if s.trans_b else (1, s.ldb)), b_outer * b_size, b_inner * b_size)
        rows, positions = s.m, s.n
        if s.trans_b and s.m == 1:  # equivalent to the product of b's rows with one column
            w, x, rows, positions = x, w, s.n, 1
        elif s.trans_b and node.input(1).is_const:  # adjacent elements along n are read as vectors
            x = replace(x, arg=_transposed_weight(node.input(1)), line=1, depth=s.n)
        args: Args = {"x": x.arg, "w": w.arg, "bias": node.x, "has_bias": 0}
        args |= {"positions": positions, "rows": rows, "depth": s.k, "groups": inner}
        args |= {"x_count": b_size * s.b_count if x.arg is not node.x else a_size * s.a_count}
        args |= {"x_step_b": x.outer, "x_step_g": x.inner, "x_step_c": x.depth}
        args |= {"w_step_b": w.outer, "w_step_g": w.inner, "w_step_m": w.line, "w_step_c": w.depth}
        args |= {name + axis: n for name, n in (("k", 1), ("s", 1), ("d", 1), ("p", 0)) for axis in "dhw"}
        args |= dict.fromkeys(("id", "ih", "qd", "qh", "od", "oh"), 1)
        args |= {"sw": x.line, "iw": positions * x.line, "qw": positions, "ow": positions}
        return self.product(p, args, outer * inner)


def _added_steps(added: Shape, y: Shape, args: Mapping[str, Arg]) -> Args:
    """Strides of the added operand per stack, row and position of generic_conv_matmul.cl."""
    rows, positions = args["rows"], args["positions"]
    assert isinstance(rows, int)
    assert isinstance(positions, int)
    if added == y:
        steps = rows * positions, positions, 1
    elif math.prod(added) == 1:
        steps = 0, 0, 0
    else:  # one per column; columns are the rows of the transposed product
        steps = (0, 0, 1) if positions == y[-1] else (0, 1, 0)
    return {f"added_step_{axis}": step for axis, step in zip("smp", steps, strict=True)}


@dataclass(frozen=True)
class _Side:
    """A stack of matrices: strides per line (row of a, column of b), per term, and along both batch dimensions."""

    arg: Value | Weight
    line: int
    depth: int
    outer: int
    inner: int


def _transposed_weight(v: Value) -> Weight:
    made = np.dtype(np.float32), (*v.shape[:-2], v.shape[-1], v.shape[-2])
    return Weight(v, "transposed", _transposed, by_slices=True, packed_type=made)


def _transposed(held: Array | LazyArray) -> Array:
    """A stack of matrices with the last axes exchanged, in float32."""
    *batch, rows, columns = held.shape
    out = page_empty((*batch, columns, rows), np.dtype(np.float32))
    for part, found in read_slices(held):
        out[part if batch else (slice(None), part)] = np.swapaxes(found, -1, -2)
    return out
