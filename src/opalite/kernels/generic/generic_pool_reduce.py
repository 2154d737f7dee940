"""Generic pooling, depthwise convolutions and reductions over any window, by one program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ir.symbols import always_equal
from ...ir.tensor_type import Shape
from ...ops.conv import Conv
from ...ops.pool import Pool
from ...ops.reduce import Reduce
from ..filter_window import Window, WindowProblem, find_span, window_refusal
from ..kernel import Params, Problem, register
from ..launch import Arg, Args, Launch, ceil_div
from .generic_kernel import Build, GenericKernel, clamped_refusal, clamped_sum, sum_refusal, vector_defines

_SUM, _MAX, _MIN, _PRODUCT, _MAX_NUMBER = range(5)  # `join` values of generic_pool_reduce.cl
_PLAIN, _ABS, _SQUARE, _WEIGHTED = range(4)  # `change`
_AS_IT_IS, _MEAN, _ROOT, _LOG = range(4)  # `finish`


@dataclass(frozen=True)
class _Kind:
    """The computation over the elements of a window."""

    join: int = _SUM
    change: int = _PLAIN
    finish: int = _AS_IT_IS
    start: float = 0.0

    @property
    def args(self) -> Args:
        return {"join": self.join, "change": self.change, "finish": self.finish, "start": self.start}


_REDUCTIONS = {
    "sum": _Kind(),
    "mean": _Kind(finish=_MEAN),
    "max": _Kind(_MAX, start=-math.inf),
    "min": _Kind(_MIN, start=math.inf),
    "prod": _Kind(_PRODUCT, start=1.0),
    "l1": _Kind(change=_ABS),
    "l2": _Kind(change=_SQUARE, finish=_ROOT),
    "sumsq": _Kind(change=_SQUARE),
    "logsum": _Kind(finish=_LOG),
}
_POOLS = {
    ("max", 0): _Kind(_MAX_NUMBER, start=math.nan),
    ("average", 0): _Kind(finish=_MEAN),
    ("lp", 1): _Kind(change=_ABS),
    ("lp", 2): _Kind(change=_SQUARE, finish=_ROOT),
}


def _pool_kind(op: Pool) -> _Kind | None:
    return _POOLS.get((op.kind, op.p if op.kind == "lp" else 0))


@dataclass(frozen=True)
class _Axis:
    """An output axis with the window axis that moves along it, as in generic_pool_reduce.cl; one element by default."""

    o: int = 1
    s: int = 0
    k: int = 1
    w: int = 0
    move: int = 0
    pad: int = 0
    gap: int = 0
    size: int = 1
    begin: int = 0
    end: int = 1

    def args(self, axis: int) -> Args:
        """The arguments of axis number `axis`."""
        names = {"o": self.o, "s": self.s, "k": self.k, "w": self.w, "move": self.move, "pad": self.pad}
        names |= {"gap": self.gap, "size": self.size, "from": self.begin, "to": self.end}
        return {f"{name}{axis}": value for name, value in names.items()}


class GenericWindowKernel(GenericKernel):
    """Base class of pooling, depthwise convolutions and reductions."""

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source, {"PACK": vector_defines(device)["PACK"] if device.is_cpu else 1})]

    def windows(
        self,
        p: Problem,
        kind: _Kind,
        first: tuple[int, int],
        axes: list[_Axis],
        x0: int = 0,
        more: Mapping[str, Arg] | None = None,
    ) -> list[Launch]:
        """The launch for outputs of extent and stride `first` and of three more axes. more: further arguments."""
        node = p.node
        (build,) = self.builds(p.device)
        rows = first[0] * axes[0].o * axes[1].o
        args: Args = {"x": node.x, "y": node.y, "x0": x0, "rows": rows, "o0": first[0], "s0": first[1]}
        args |= {"weights": node.x, "bias": node.x, "planes": 1, "has_bias": 0, "x_count": node.x.type.count}
        for number, axis in enumerate(axes, 1):
            args |= axis.args(number)
        args |= {**kind.args, **clamped_sum(node, node.y.shape), **(more or {})}
        vectors = ceil_div(axes[2].o, build.defines["PACK"])
        across, lines = find_span(vectors, rows, p.device), find_span(rows, 1, p.device)
        args |= {"across": across, "lines": lines}
        grid = (ceil_div(vectors, across), ceil_div(rows, lines))
        return [Launch("windows", args, grid, defines=build.defines)]

    def window_axes(self, win: Window, counts_pads: bool = False) -> tuple[list[_Axis], int]:
        """The axes of a window that slides over planes, and where the first one begins."""
        axes, x0 = [], 0
        for a in range(3):
            step = math.prod(win.size[a + 1 :])
            begin, size = win.begin[a], win.size[a]
            counted = (-begin, size + win.end[a]) if counts_pads else (0, size)
            move, gap = win.strides[a], win.dilations[a]
            x0 -= begin * step
            axes.append(_Axis(win.out[a], move * step, win.kernel[a], gap * step, move, begin, gap, size, *counted))
        return axes, x0


@register
class DepthwiseGeneric(GenericWindowKernel):
    """Convolutions with a filter for each channel: weighted windows."""

    op = "Conv"
    problem = WindowProblem

    def refuse(self, p: WindowProblem) -> str | None:
        if not is_depthwise(p.node):
            return "not each channel has a filter of its own"
        return window_refusal(p.node) or sum_refusal(p.node, by_column=False)

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node, win = p.node, p.window
        axes, x0 = self.window_axes(win)
        bias, channels = node.get(2), node.x.shape[1]
        more: Args = {"weights": node.input(1), "planes": channels, "has_bias": int(bias is not None)}
        more["bias"] = bias or node.x
        kind = _Kind(change=_WEIGHTED)
        return self.windows(p, kind, (node.x.shape[0] * channels, math.prod(win.size)), axes, x0, more)


@register
class PoolGeneric(GenericWindowKernel):
    """Pooling over up to three spatial axes, without indices."""

    op = "Pool"
    problem = WindowProblem

    def refuse(self, p: WindowProblem) -> str | None:
        op = p.node.as_(Pool)
        if len(p.node.outputs) > 1:
            return "the general kernel gives no positions of maxima"
        if _pool_kind(op) is None:
            return f"the general kernel takes no norm of {op.p}"
        return window_refusal(p.node) or clamped_refusal(p.node)

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node, win, op = p.node, p.window, p.node.as_(Pool)
        kind = _pool_kind(op)
        assert kind is not None
        axes, x0 = self.window_axes(win, bool(op.count_include_pad))
        return self.windows(p, kind, (node.x.shape[0] * node.x.shape[1], math.prod(win.size)), axes, x0)


@register
class ReduceGeneric(GenericWindowKernel):
    """Reductions whose reduced axes merge into at most three and kept axes into at most four."""

    op = "Reduce"

    def refuse(self, p: Problem) -> str | None:
        op = p.node.as_(Reduce)
        if op.kind not in _REDUCTIONS:
            return f"the general kernel has no {op.kind}"
        kept, reduced = _split(p.node.x.shape, op.axes)
        if len(kept) > 4 or len(reduced) > 3:
            return (
                f"{len(reduced)} axes to reduce and {len(kept)} to keep, once merged; the general kernel takes 3 and 4"
            )
        return clamped_refusal(p.node)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        op = p.node.as_(Reduce)
        kept, reduced = _split(p.node.x.shape, op.axes)
        kept, reduced = [(1, 0)] * (4 - len(kept)) + kept, [(1, 0)] * (3 - len(reduced)) + reduced
        axes = [_Axis(o, s, k, w) for (o, s), (k, w) in zip(kept[1:], reduced, strict=True)]
        return self.windows(p, _REDUCTIONS[op.kind], kept[0], axes)


def is_depthwise(node: Node) -> bool:
    """Whether each channel of a convolution has a filter of its own."""
    channels, w = node.x.shape[1], node.input(1).shape
    return always_equal((node.as_(Conv).group, w[0], w[1]), (channels, channels, 1))


def _split(shape: Shape, reduced: tuple[int, ...]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(extent, stride) of the kept axes and of the reduced ones, neighbours merged."""
    found: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    before = -1
    for axis, extent in enumerate(shape):
        which, step = int(axis in reduced), math.prod(shape[axis + 1 :])
        if always_equal(extent, 1):
            continue
        if which == before:
            extent *= found[which].pop()[0]
        found[which].append((extent, step))
        before = which
    return found
