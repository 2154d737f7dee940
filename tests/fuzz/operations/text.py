"""Text between numbers: numbers written as text, or words of a list; moved; compared or read again."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx import TensorProto, helper

from ..builder import Builder, Rejected
from ..registry import operation

WORDS = np.array(["7", "-3", "12", "0", "250", "-40"], object)
MOVES = ("Transpose", "Reshape", "Concat", "Unsqueeze", "Gather", "Slice", "Tile", "Expand", "Where", "Pair")
Array = np.ndarray[Any, Any]


class _Text:
    """Nodes on text that are run together; `array` is what `name` holds."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.nodes: list[Any] = []
        indices = b.tensor(["i8", "i4"], where=lambda a: 0 < a.size <= 500 and a.ndim <= 4)
        if b.draw.chance(0.5):
            self.name, self.array = indices, b[indices].astype(str).astype(object)
            self.move("Cast", [], self.array, to=TensorProto.STRING)
        else:
            places = b.within(indices, -len(WORDS), len(WORDS) - 1)
            words = b.const(WORDS, 0.0)
            self.name, self.array = words, WORDS
            self.move("Gather", [places], np.asarray(WORDS[b[places]], object))

    def move(self, op: str, more: list[str], array: Array, **attrs: Any) -> None:
        """Go on with what `op` makes, which is `array`."""
        out = self.b.name("t")
        self.nodes.append(helper.make_node(op, [self.name, *more], [out], name=f"{op}_{out}", **attrs))
        self.name, self.array = out, np.asarray(array, object)

    def step(self) -> None:
        """One movement."""
        b, a = self.b, self.array
        d = b.draw
        kind = d.pick(
            ["Transpose", "Reshape", "Concat", "Unsqueeze", "Gather", "Slice", "Tile", "Expand", "Where", "Pair"]
        )
        if kind == "Transpose" and a.ndim:
            perm = [int(i) for i in d.rng.permutation(a.ndim)]
            self.move(kind, [], a.transpose(perm), perm=perm)
        elif kind == "Reshape":
            self.move(kind, [b.ints([-1])], a.reshape(-1))
        elif kind == "Unsqueeze" and b.opset >= 13:
            self.move(kind, [b.ints([0])], a[None])
        elif kind == "Expand":
            self.move(kind, [b.ints([2, *a.shape])], np.broadcast_to(a, (2, *a.shape)).copy())
        elif kind == "Where" and b.opset >= 9:
            keep = d.rng.random(a.shape) < 0.5
            out, other = b.name("t"), b.const(np.asarray("5", object), 0.0)
            inputs = [b.const(keep, 0.0), self.name, other]
            self.nodes.append(helper.make_node(kind, inputs, [out], name=f"{kind}_{out}"))
            self.name, self.array = out, np.where(keep, a, "5")
        elif a.ndim:
            self._along(kind, d.between(0, a.ndim - 1))

    def _along(self, kind: str, axis: int) -> None:
        b, a = self.b, self.array
        size = a.shape[axis]
        if kind == "Concat":
            self.move(kind, [self.name], np.concatenate([a, a], axis), axis=axis)
        elif kind == "Gather" and axis == a.ndim - 1:  # of rows of text onnxruntime copies the first element alone
            places = b.draw.rng.integers(-size, size, b.draw.between(1, 3))
            self.move(kind, [b.const(places)], a.take(places, axis), axis=axis)
        elif kind == "Slice" and b.opset >= 10:
            ends = [b.ints([n]) for n in (size - 1, -size - 1, axis, -1)]
            self.move(kind, ends, np.flip(a, axis))
        elif kind == "Tile" and b.opset >= 6:
            repeats = [2 if i == axis else 1 for i in range(a.ndim)]
            self.move(kind, [b.ints(repeats)], np.tile(a, repeats))
        elif kind == "Pair" and b.has("SplitToSequence"):
            pieces, out = b.name("s"), b.name("t")
            join = {"axis": axis, "name": f"ConcatFromSequence_{out}"}
            self.nodes += [
                helper.make_node("SplitToSequence", [self.name], [pieces], name=f"SplitToSequence_{pieces}", axis=axis),
                helper.make_node("ConcatFromSequence", [pieces], [out], **join),
            ]
            self.name = out


@operation("movement", 0.3)
def moved_text(b: Builder) -> None:
    if b.opset < 9:
        raise Rejected("no casts of text")
    text = _Text(b)
    for _ in range(b.draw.between(1, 4)):
        if text.array.size <= 1000:
            text.step()
    if b.opset >= 19 and b.draw.chance(0.4):
        text.move("Equal", [b.const(np.asarray("7", object), 0.0)], text.array)
    else:
        text.move("Cast", [], text.array, to=b.draw.pick([TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32]))
    b.add(text.nodes, [text.name])
