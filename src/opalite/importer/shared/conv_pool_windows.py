"""Windows of convolution and pooling: kernel, strides, dilations and pads, with auto_pad resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ShapeError, UnsupportedOpError
from ...ir.graph import Value
from ...ir.symbols import fixed
from ..walk.node_context import NodeContext


@dataclass(frozen=True)
class Window:
    """Window, one number per spatial axis; pads: all begins, then all ends. auto: auto_pad chose the pads."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto: bool = False

    def extent(self, i: int) -> int:
        """Return the number of elements that the window spans along axis `i`."""
        return (self.kernel[i] - 1) * self.dilations[i] + 1


def window_of(ctx: NodeContext, x: Value, kernel: Sequence[int], skips: bool = False) -> Window:
    """Return the window of a convolution or pooling node over x[N,C,D...]; one number per spatial axis.

    skips: auto_pad SAME centres windows smaller than the stride, so that elements at both ends are skipped. onnxruntime
    does so for pooling only.
    """
    sizes = x.shape[2:]
    window = plain_window(ctx, len(sizes), kernel)
    auto = ctx.attr("auto_pad", "NOTSET") or "NOTSET"
    if auto == "NOTSET":
        return window
    if auto == "VALID":
        pads = (0,) * (2 * len(sizes))
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for i, (size, stride) in enumerate(zip(sizes, window.strides, strict=True)):
            rest = fixed(size % stride) or stride  # input elements in the last window; pads are plain numbers
            totals.append(window.extent(i) - rest)
        if not skips:
            totals = [max(0, t) for t in totals]
        pads = split_pads(totals, more_at_end=auto == "SAME_UPPER", skips=skips)
    else:
        raise UnsupportedOpError(f"{ctx.label} has auto_pad '{auto}'; known are NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    return Window(window.kernel, window.strides, window.dilations, pads, auto=True)


def plain_window(ctx: NodeContext, rank: int, kernel: Sequence[int]) -> Window:
    """Return kernel, strides, dilations and explicit pads, with defaults."""
    given = ctx.attr("kernel_shape", None)
    if given is not None and tuple(given) != tuple(kernel):
        raise ShapeError(f"{ctx.label} has kernel_shape {tuple(given)}, but weights of window {tuple(kernel)}")
    fields = {
        "kernel_shape": tuple(int(k) for k in kernel),
        "strides": tuple(int(s) for s in ctx.attr("strides", (1,) * rank)),
        "dilations": tuple(int(d) for d in ctx.attr("dilations", (1,) * rank)),
        "pads": ctx.ints("pads", (0,) * (2 * rank)),
    }
    for name, value in fields.items():
        expected = 2 * rank if name == "pads" else rank
        if len(value) != expected:
            raise ShapeError(f"{ctx.label} has {name} {value}, expected {expected} numbers for {rank} spatial axes")
    return Window(fields["kernel_shape"], fields["strides"], fields["dilations"], fields["pads"])


def split_pads(totals: Sequence[int], more_at_end: bool, skips: bool = False) -> tuple[int, ...]:
    """Split padding totals into begins, then ends; `more_at_end` places the extra element of an odd total.

    skips: halves of negative totals are rounded toward zero, as in onnxruntime's pooling, instead of down.
    """
    half = (lambda t: int(t / 2)) if skips else (lambda t: t // 2)
    begins = [half(t if more_at_end else t + 1) for t in totals]
    return (*begins, *(t - b for t, b in zip(totals, begins, strict=True)))
