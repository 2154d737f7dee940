"""TensorArrays as ONNX's sequences: each write gives a new sequence, which blocks carry as they carry tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ...proto.graphdef import NodeDef
from .nodes import branch, onnx_node


def empty(out: str) -> NodeDef:
    """Make the node of an array without elements."""
    return onnx_node("SequenceEmpty", [], [out])


def write(array: str, x: str, index: str, out: str, appends: bool = False) -> list[NodeDef]:
    """Make the nodes that write an element: behind the last, or in place of one. appends: it is known to be behind."""
    if appends:
        return [onnx_node("SequenceInsert", [array, x], [out])]
    at, count, old, rest = (f"{out}/{part}" for part in ("at", "count", "old", "rest"))
    without = branch("then", [onnx_node("SequenceErase", [array, at], [f"{rest}/erased"])], [f"{rest}/erased"])
    kept = branch("else", [onnx_node("Identity", [array], [f"{rest}/kept"])], [f"{rest}/kept"])
    return [
        *_number(index, at),
        onnx_node("SequenceLength", [array], [count]),
        onnx_node("Less", [at, count], [old]),
        onnx_node("If", [old], [rest], then_branch=without, else_branch=kept),
        onnx_node("SequenceInsert", [rest, x, at], [out]),
    ]


def read(array: str, index: str, out: str) -> list[NodeDef]:
    """Make the nodes that read an element."""
    return [*_number(index, f"{out}/at"), onnx_node("SequenceAt", [array, f"{out}/at"], [out])]


def length(array: str, out: str) -> list[NodeDef]:
    """Make the nodes that count the elements, in a tensor of one axis."""
    one = onnx_node("Constant", [], [f"{out}/one"], value_ints=(1,))
    count = onnx_node("SequenceLength", [array], [f"{out}/count"])
    return [one, count, onnx_node("Reshape", [f"{out}/count", f"{out}/one"], [out])]


def joined(array: str, out: str, axis: int, stacks: bool) -> NodeDef:
    """Make the node that concatenates the elements, or stacks them."""
    return onnx_node("ConcatFromSequence", [array], [out], axis=axis, new_axis=int(stacks))


def _number(index: str, out: str) -> Sequence[NodeDef]:
    return [onnx_node("Squeeze", [index], [out])]
