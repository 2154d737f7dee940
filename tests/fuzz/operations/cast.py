"""Between types."""

from __future__ import annotations

import numpy as np

from onnx import TensorProto, helper

from ..builder import Builder, Rejected
from ..registry import operation

RANGES = {"i": (-100, 100), "u": (0, 100)}


def fit(b: Builder, x: str, to: np.dtype) -> str:
    """`x` with values that `to` holds: casts of others are undefined."""
    a = b[x]
    if to.kind not in RANGES:
        return x
    if a.dtype.kind == "f":
        if not np.isfinite(a).all():
            raise Rejected("a cast that is undefined")
        return b.within(x, *RANGES[to.kind])
    if a.size and (int(a.min()) < np.iinfo(to).min or int(a.max()) > np.iinfo(to).max):
        raise Rejected("a cast that wraps")
    return x


@operation("cast", 1.5)
def cast(b: Builder) -> None:
    x = b.tensor(["f4", "f8", "f2", "i8", "i4", "i1", "u1", "?", "i2", "u2"])
    kinds = ["f4", "f4", "i8", "i4", "i1", "u1", "?", "f8", "f2", "i2", "u2", "u4", "u8"]
    to = np.dtype(b.draw.pick(kinds))
    b.emit("Cast", [fit(b, x, to)], to=helper.np_dtype_to_tensor_dtype(to))


@operation("cast", 2)
def back(b: Builder) -> None:
    """To the graph's own float type, so that the graph goes on."""
    kinds = [np.dtype(k) for k in ("f4", "f8", "f2", "i8", "i4", "i1", "u1", "?", "i2", "u2", "u4", "u8")]
    x = b.find(lambda a: a.dtype in kinds and a.dtype != b.dtype)
    if x is None:
        raise Rejected("nothing of another type")
    b.emit("Cast", [x], to=helper.np_dtype_to_tensor_dtype(b.dtype))


@operation("cast", 0.4)
def cast_like(b: Builder) -> None:
    if not b.has("CastLike"):
        raise Rejected("CastLike")
    x = b.tensor(["f4", "i8", "i4", "?"])
    like = b.tensor(["f4", "i8", "f2", "i4"])
    b.emit("CastLike", [fit(b, x, b[like].dtype), like])


@operation("cast", 0.3)
def through_bfloat16(b: Builder) -> None:
    if b.opset < 13:
        raise Rejected("bfloat16")
    x, half, y = b.real(), b.name("h"), b.name("v")
    to = helper.np_dtype_to_tensor_dtype(b.dtype)
    nodes = [
        helper.make_node("Cast", [x], [half], name=f"Cast_{half}", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", [half], [y], name=f"Cast_{y}", to=to),
    ]
    b.add(nodes, [y])
