"""Conv, ConvTranspose and DepthwiseNhwc, with groups, dilation and asymmetric or negative padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.constants.lazy_array import LazyArray, read_slices
from ..ir.graph import Value
from ..ir.tensor_type import Shape, TensorType
from ..lazy_dataclass import dataclass
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor


@dataclass(frozen=True, slots=True)
class Windowed(Op):
    """Base class of operators on windows along spatial axes.

    strides and dilations hold a number for each spatial axis; pads holds all begins, then all ends.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def check_window(self, rank: int) -> None:
        """ShapeError unless strides, dilations and pads fit `rank` spatial axes."""
        for key, got in (("strides", self.strides), ("dilations", self.dilations), ("pads", self.pads)):
            count = 2 * rank if key == "pads" else rank
            need(len(got) == count, f"{key} must hold {count} numbers for {rank} spatial axes, got {got}")
            need(key == "pads" or all(v >= 1 for v in got), f"{key} must be positive, got {got}")


def window_dims(sizes: Sequence[int], kernel: Sequence[int], op: Windowed) -> list[int]:
    """Window positions along each spatial axis: floor((size + pads - extent) / stride) + 1."""
    pads, rank = op.pads, len(sizes)
    return [
        (sizes[i] + pads[i] + pads[i + rank] - op.dilations[i] * (kernel[i] - 1) - 1) // op.strides[i] + 1
        for i in range(rank)
    ]


def compute_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Accumulation type of `dtype`: float32 for the 16-bit floats, else the type itself."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def taps(kernel: Shape) -> Iterator[tuple[int, ...]]:
    """Every position of a filter window, the last axis fastest."""
    return itertools.product(*(range(k) for k in kernel))


def neutral_zeros(w: Value) -> bool:
    """Whether 0 * `w` is 0, so that kernels may skip taps in the padding.

    Weights that are inputs of a run may hold NaN or infinity. Computed weights are assumed to be finite.
    """
    if not w.dtype.is_float:
        return True
    return w.cached_query(_is_finite) if w.is_const else w.producer is not None


def _is_finite(held: Array | LazyArray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return all(
            bool(np.isfinite(part.sum(dtype=np.float32)) or np.isfinite(part.astype(np.float32)).all())
            for _, part in read_slices(held)
        )


def _check_operands(op: Convolution, ins: Types) -> tuple[TensorType, TensorType]:
    x, w = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
    need(x.rank >= 3, f"x must be [N,C,D1,...], got {x}")
    need(w.rank == x.rank, f"weights must have x's rank {x.rank}, got {w}")
    need(w.dtype is x.dtype, f"weights must have x's type {x.dtype}, got {w}")
    need(op.group >= 1, f"group must be positive, got {op.group}")
    need(all(k >= 1 for k in w.shape[2:]), f"filter sizes must be positive, got weights {w}")
    op.check_window(x.rank - 2)
    return x, w


def _check_bias(ins: Types, channels: int, dtype: object) -> None:
    b = ins[2] if len(ins) > 2 else None
    if b is not None:
        need(b.shape == (channels,) and b.dtype is dtype, f"bias must be {dtype}[{channels}], got {b}")


def _check_out(sizes: Sequence[int], x: TensorType, w: TensorType) -> None:
    why = f"x {x} with its pads is smaller than the filter of {w}"
    need(all(d >= 1 for d in sizes), f"the output would have spatial size {tuple(sizes)}: {why}")


def _add_bias(y: Array, bias: Array | None, dtype: np.dtype[np.generic]) -> Array:
    if bias is not None:
        y = y + bias.astype(y.dtype).reshape(-1, *(1,) * (y.ndim - 2))
    return y.astype(dtype)


@dataclass(frozen=True, slots=True)
class Convolution(Windowed):
    """Base class of convolutions with `group` groups of channels."""

    group: int

    arity = 3
    takes_epilogue = True


@dataclass(frozen=True, slots=True)
class ForwardConv(Convolution):
    """Base class of Conv and IntegerConv, which gather a window of the input."""

    def _spatial(self, x: Shape, w: Shape) -> list[int]:
        return window_dims(x[2:], w[2:], self)

    def check_shape(self, ins: Types) -> None:
        x, w = _check_operands(self, ins)
        g = self.group
        channels = w.shape[1] * g
        fits = channels == x.shape[1]
        need(fits, f"weights {w} with group {g} expect {channels} input channels, x {x} has {x.shape[1]}")
        need(w.shape[0] % g == 0, f"{w.shape[0]} output channels do not divide into {g} groups")
        _check_bias(ins, w.shape[0], x.dtype)
        _check_out(self._spatial(x.shape, w.shape), x, w)

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, w = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        return [make_type(x.dtype, (x.shape[0], w.shape[0], *self._spatial(x.shape, w.shape)))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, w = present(arrays, 2)
        acc = compute_dtype(x.dtype)
        g, m, kernel = self.group, w.shape[0], w.shape[2:]
        n, c = x.shape[:2]
        out = self._spatial(x.shape, w.shape)
        padded = pad_or_crop(x.astype(acc), self.pads, 0)
        filters = w.astype(acc).reshape(g, m // g, c // g, math.prod(kernel))
        y = np.zeros((n, g, m // g, math.prod(out)), acc)
        for i, k in enumerate(taps(kernel)):
            window = padded[(slice(None), slice(None), *tap_slices(k, out, self))]
            y += filters[..., i] @ window.reshape(n, g, c // g, math.prod(out))
        return [_add_bias(y.reshape(n, m, *out), arrays[2] if len(arrays) > 2 else None, x.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        w = tensor(ins, 1, "weights")
        return Cost(2.0 * outs[0].count * math.prod(w.shape[1:]), moved_bytes(ins, outs))


@frozen_op
class Conv(ForwardConv):
    """y[n,m,o] = bias[m] + sum over c,k of x[n, c, o*stride - pad + k*dilation] * w[m,c,k], c within m's group.

    Inputs x[N,C,D...], w[M,C/group,K...], bias[M] or none. Attributes: strides, dilations (one for each spatial axis),
    pads (all begins, then all ends; zeros outside x; negative pads crop), group; exact: sums are integers that float32
    holds exactly and lower precisions would round.
    """

    exact: bool = False


@frozen_op
class ConvTranspose(Convolution):
    """The gradient of Conv: y[n, m, i*stride - pad + k*dilation] += x[n,c,i] * w[c,m,k], plus bias[m].

    Inputs x[N,C,D...], w[C,M/group,K...], bias[M] or none. Attributes as for Conv; pads crop the output (negative pads
    extend it), and output_padding extends its end.
    """

    output_padding: tuple[int, ...]

    def _spatial(self, x: Shape, w: Shape) -> list[int]:
        """Output sizes before the pads crop them."""
        each = zip(x[2:], w[2:], self.strides, self.dilations, self.output_padding, strict=True)
        return [s * (size - 1) + extra + d * (k - 1) + 1 for size, k, s, d, extra in each]

    def _cropped(self, x: Shape, w: Shape) -> list[int]:
        pads, rank = self.pads, len(x) - 2
        return [d - pads[i] - pads[i + rank] for i, d in enumerate(self._spatial(x, w))]

    def check_shape(self, ins: Types) -> None:
        x, w = _check_operands(self, ins)
        g, extra = self.group, self.output_padding
        need(len(extra) == x.rank - 2, f"output_padding must hold {x.rank - 2} numbers, got {extra}")
        need(all(e >= 0 for e in extra), f"output_padding must not be negative, got {extra}")
        need(w.shape[0] == x.shape[1], f"weights {w} expect {w.shape[0]} input channels, x {x} has {x.shape[1]}")
        need(x.shape[1] % g == 0, f"{x.shape[1]} input channels do not divide into {g} groups")
        _check_bias(ins, w.shape[1] * g, x.dtype)
        _check_out(self._cropped(x.shape, w.shape), x, w)

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, w = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        return [make_type(x.dtype, (x.shape[0], w.shape[1] * self.group, *self._cropped(x.shape, w.shape)))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, w = present(arrays, 2)
        acc = compute_dtype(x.dtype)
        g, mg, kernel = self.group, w.shape[1], w.shape[2:]
        n, c, *spatial = x.shape
        if not x.size:
            y = np.zeros((n, g * mg, *self._cropped(x.shape, w.shape)), acc)
            return [_add_bias(y, arrays[2] if len(arrays) > 2 else None, x.dtype)]
        columns = x.astype(acc).reshape(n, g, c // g, math.prod(spatial))
        filters = w.astype(acc).reshape(g, c // g, mg, math.prod(kernel)).swapaxes(1, 2)
        y = np.zeros((n, g * mg, *self._spatial(x.shape, w.shape)), acc)
        for i, k in enumerate(taps(kernel)):
            part = (filters[..., i] @ columns).reshape(n, g * mg, *spatial)
            y[(slice(None), slice(None), *tap_slices(k, spatial, self))] += part
        y = pad_or_crop(y, [-p for p in self.pads], 0)
        return [_add_bias(y, arrays[2] if len(arrays) > 2 else None, x.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        x, w = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        return Cost(2.0 * x.count * math.prod(w.shape[1:]), moved_bytes(ins, outs))


@frozen_op
class DepthwiseNhwc(Windowed):
    """y[n,h,w,c] = bias[c] + sum over i,j of k[c,0,i,j] * x[n, h*stride - pad + i*dilation, likewise for w, c].

    A Conv in NHWC with one group for each channel. Inputs x[N,H,W,C], k[C,1,KH,KW], bias[C] or none. Pads are zeros
    outside x, and not negative.
    """

    arity = 3
    takes_epilogue = True

    def check_shape(self, ins: Types) -> None:
        x, k = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        need(x.rank == 4, f"x must be [N,H,W,C], got {x}")
        need(k.rank == 4 and k.shape[:2] == (x.shape[3], 1), f"weights must be [{x.shape[3]!r},1,KH,KW], got {k}")
        need(k.dtype is x.dtype and x.dtype.is_float, f"x and weights must be of one float type, got {x} and {k}")
        self.check_window(2)
        need(all(p >= 0 for p in self.pads), f"pads must not be negative, got {self.pads}")
        b = ins[2] if len(ins) > 2 else None
        need(b is None or b.shape == x.shape[3:], f"bias must be [{x.shape[3]!r}], got {b}")
        sizes = window_dims(x.shape[1:3], k.shape[2:], self)
        need(all(n >= 1 for n in sizes), f"x {x} with its pads is smaller than the filter of {k}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, k = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        return [make_type(x.dtype, (x.shape[0], *window_dims(x.shape[1:3], k.shape[2:], self), x.shape[3]))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, k = present(arrays, 2)
        acc = compute_dtype(x.dtype)
        out = window_dims(x.shape[1:3], k.shape[2:], self)
        padded = np.moveaxis(pad_or_crop(np.moveaxis(x.astype(acc), 3, 1), self.pads, 0), 1, 3)
        y = np.zeros((x.shape[0], *out, x.shape[3]), acc)
        for i, j in taps(k.shape[2:]):
            window = padded[(slice(None), *tap_slices((i, j), out, self))]
            y += window * k[:, 0, i, j].astype(acc)
        if len(arrays) > 2 and arrays[2] is not None:
            y += arrays[2].astype(acc)
        return [y.astype(x.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        k = tensor(ins, 1, "weights")
        return Cost(2.0 * outs[0].count * k.shape[2] * k.shape[3], moved_bytes(ins, outs))


def pad_or_crop(x: Array, pads: Sequence[int], value: float) -> Array:
    """`x` [N,C,D...], its spatial axes padded with `value` by `pads` (begins, then ends); negative pads crop."""
    rank = x.ndim - 2
    width = [(0, 0), (0, 0), *((max(pads[i], 0), max(pads[i + rank], 0)) for i in range(rank))]
    if any(any(w) for w in width):
        x = np.pad(x, width, constant_values=value)
    crop = [slice(max(-pads[i], 0), x.shape[2 + i] - max(-pads[i + rank], 0)) for i in range(rank)]
    return x[(slice(None), slice(None), *crop)]


def tap_slices(tap: Sequence[int], out: Sequence[int], op: Windowed) -> tuple[slice, ...]:
    """Slice along each spatial axis that selects the input elements read by filter position `tap`."""
    reach = [max(s * (o - 1) + 1, 0) for o, s in zip(out, op.strides, strict=True)]
    return tuple(slice(k * d, k * d + r, s) for k, r, s, d in zip(tap, reach, op.strides, op.dilations, strict=True))
