"""Windows of convolution and pooling: kernel, strides, dilations and pads from attributes, auto_pad resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ShapeError, UnsupportedOpError
from ...ir.graph import Value
from ...ir.symbols import fixed
from ..walk.node_context import NodeContext


@dataclass(frozen=True)
class Window:
    """One number for each spatial axis; pads are all begins, then all ends. `auto` says that auto_pad chose them."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto: bool = False

    def extent(self, i: int) -> int:
        """Elements that the window spans along axis `i`."""
        return (self.kernel[i] - 1) * self.dilations[i] + 1


def window_of(ctx: NodeContext, x: Value, kernel: Sequence[int], skips: bool = False) -> Window:
    """The window of a convolution or pooling node over x[N,C,D...]. Shapes: one number for each spatial axis.

    skips: whether auto_pad SAME centres windows that are smaller than the stride, which skips elements at both ends.
    onnxruntime does so for pooling only.
    """
    sizes = x.shape[2:]
    window = plain_window(ctx, len(sizes), kernel)
    auto = str(ctx.attr("auto_pad", "NOTSET")) or "NOTSET"
    if auto == "NOTSET":
        return window
    if auto == "VALID":
        pads = (0,) * (2 * len(sizes))
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for i, (size, stride) in enumerate(zip(sizes, window.strides, strict=True)):
            rest = fixed(size % stride) or stride  # what the last window has of the input; pads are plain numbers
            totals.append(window.extent(i) - rest)
        if not skips:
            totals = [max(0, t) for t in totals]
        pads = split_pads(totals, more_at_end=auto == "SAME_UPPER", skips=skips)
    else:
        raise UnsupportedOpError(f"{ctx.label} has auto_pad '{auto}'; known are NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    return Window(window.kernel, window.strides, window.dilations, pads, auto=True)


def plain_window(ctx: NodeContext, rank: int, kernel: Sequence[int]) -> Window:
    """Kernel, strides, dilations and explicit pads, defaults filled in."""
    given = ctx.attr("kernel_shape", None)
    if given is not None and tuple(given) != tuple(kernel):
        raise ShapeError(f"{ctx.label} has kernel_shape {tuple(given)}, but weights of window {tuple(kernel)}")
    fields = {
        "kernel_shape": tuple(int(k) for k in kernel),
        "strides": tuple(int(s) for s in ctx.attr("strides", (1,) * rank)),
        "dilations": tuple(int(d) for d in ctx.attr("dilations", (1,) * rank)),
        "pads": tuple(int(p) for p in ctx.attr("pads", (0,) * (2 * rank))),
    }
    for name, value in fields.items():
        expected = 2 * rank if name == "pads" else rank
        if len(value) != expected:
            raise ShapeError(f"{ctx.label} has {name} {value}, expected {expected} numbers for {rank} spatial axes")
    return Window(fields["kernel_shape"], fields["strides"], fields["dilations"], fields["pads"])


def split_pads(totals: Sequence[int], more_at_end: bool, skips: bool = False) -> tuple[int, ...]:
    """Padding totals as begins, then ends; an odd one goes to the end or to the begin.

    skips: whether halves of negative totals are cut toward zero, as onnxruntime's pooling has it, instead of down.
    """
    half = (lambda t: int(t / 2)) if skips else (lambda t: t // 2)
    begins = [half(t if more_at_end else t + 1) for t in totals]
    return (*begins, *(t - b for t, b in zip(totals, begins, strict=True)))
