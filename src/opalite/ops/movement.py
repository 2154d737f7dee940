"""Operators that move elements without arithmetic: Reshape, Transpose, Slice, Concat, Pad."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.types import TensorType
from .base import Array, Attrs, Cost, Op, Types, make_type, moved_bytes, need, register_op, tensor


class _Movement(Op):
    """No floating-point work: only bytes."""

    def cost(self, attrs: Attrs, ins: Types, outs: Sequence[TensorType]) -> Cost:
        return Cost(0.0, 2.0 * moved_bytes((), outs))


@register_op
class Reshape(_Movement):
    """The same elements in row-major order under another shape: a view. attrs: shape (tuple)."""

    name = "Reshape"

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(
            math.prod(attrs["shape"]) == x.count,
            f"cannot reshape {x} with {x.count} elements to {tuple(attrs['shape'])} with {math.prod(attrs['shape'])}",
        )

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, attrs["shape"])]

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        assert arrays[0] is not None
        return [arrays[0].reshape(attrs["shape"])]

    def cost(self, attrs: Attrs, ins: Types, outs: Sequence[TensorType]) -> Cost:
        return Cost(0.0, 0.0)


@register_op
class Transpose(_Movement):
    """y's axis i is x's axis perm[i]. attrs: perm (tuple)."""

    name = "Transpose"

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        x, perm = tensor(ins, 0, "x"), tuple(attrs["perm"])
        need(sorted(perm) == list(range(x.rank)), f"perm {perm} does not permute the {x.rank} axes of {x}")

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(x.dtype, [x.shape[p] for p in attrs["perm"]])]

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        assert arrays[0] is not None
        return [np.ascontiguousarray(arrays[0].transpose(attrs["perm"]))]


@register_op
class Slice(_Movement):
    """y[i] = x[starts + steps * i], along every axis. attrs: starts, steps, sizes (full rank; sizes is y's shape)."""

    name = "Slice"

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        for what in ("starts", "steps", "sizes"):
            need(len(attrs[what]) == x.rank, f"{what} {tuple(attrs[what])} needs one entry for each axis of {x}")
        for axis, (start, step, size, extent) in enumerate(
            zip(attrs["starts"], attrs["steps"], attrs["sizes"], x.shape, strict=True)
        ):
            if size:
                last = start + step * (size - 1)
                need(
                    size > 0 and 0 <= start < extent and 0 <= last < extent,
                    f"slice of axis {axis} reads {start} to {last} of {extent} elements",
                )

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, attrs["sizes"])]

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        for axis, (start, step, size) in enumerate(zip(attrs["starts"], attrs["steps"], attrs["sizes"], strict=True)):
            x = np.take(x, start + step * np.arange(size), axis=axis)
        return [np.ascontiguousarray(x)]


@register_op
class Concat(_Movement):
    """Inputs one after another along `axis`. attrs: axis."""

    name = "Concat"

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        first, axis = tensor(ins, 0, "first input"), attrs["axis"]
        need(0 <= axis < first.rank, f"axis {axis} is not an axis of {first}")
        for i in range(1, len(ins)):
            t = tensor(ins, i, "input to join")
            same = t.rank == first.rank and all(
                a == b for k, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if k != axis
            )
            need(same and t.dtype is first.dtype, f"input {i} {t} does not fit {first} off axis {axis}")

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        shape = list(tensor(ins, 0, "first input").shape)
        shape[attrs["axis"]] = sum(t.shape[attrs["axis"]] for t in ins if t is not None)
        return [make_type(tensor(ins, 0, "first input").dtype, shape)]

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        return [np.concatenate([a for a in arrays if a is not None], axis=attrs["axis"])]


@register_op
class Pad(_Movement):
    """x inside a border. attrs: pads (begins, then ends, all >= 0), mode (constant, reflect, edge or wrap), value."""

    name = "Pad"

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        x, pads, mode = tensor(ins, 0, "x"), tuple(attrs["pads"]), attrs["mode"]
        need(mode in ("constant", "reflect", "edge", "wrap"), f"padding mode {mode!r} is not known")
        need(len(pads) == 2 * x.rank and min(pads, default=0) >= 0, f"pads {pads} do not fit {x}")
        for axis, extent in enumerate(x.shape):
            wide = max(pads[axis], pads[axis + x.rank])
            need(not wide or extent or mode == "constant", f"axis {axis} of {x} has nothing to pad with ({mode})")

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        x, pads = tensor(ins, 0, "x"), attrs["pads"]
        return [make_type(x.dtype, [d + pads[i] + pads[i + x.rank] for i, d in enumerate(x.shape)])]

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        widths = list(zip(attrs["pads"][: x.ndim], attrs["pads"][x.ndim :], strict=True))
        if attrs["mode"] == "constant":
            return [np.pad(x, widths, "constant", constant_values=attrs.get("value", 0))]
        return [np.pad(x, widths, attrs["mode"])]
