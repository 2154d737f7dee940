"""Shared by the importer functions: registration, and a node's arguments by name.

Both kinds of programs give the same arguments in different ways: as tensors or as attributes, by name (ProgramDesc) or
by position (PIR). An importer function asks for an argument by its names; the first one that is there is meant.

    @paddle_op("concat", operands="x axis")
    def concat(n: PaddleNode) -> Value:
        return n.concat(n.values("x"), n.number("axis_tensor", "axis", default=0))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ...errors import ShapeError, UnsupportedOpError
from ...ir import DType, Value
from ...ir.symbols import int_or_symbolic
from ...ops.operator import normalize_axis
from ..proto.op_schemas import PADDLE
from ..walk.node_context import NodeContext, Trimmed, onnx_op
from .read.dtypes import declared

Out = Value | Trimmed | None | Sequence[Value | Trimmed]
"""One output: a tensor, several, or None if inference does not need it."""

Found = Out | dict[str, Out]
"""Result of an importer function: the first output, or outputs by name."""

_LAST = ("NHWC", "NDHWC", "NLC", "NWC")


class PaddleNode(NodeContext):
    """One node of a Paddle program, with its arguments by name."""

    def __init__(self, ctx: NodeContext, operands: Sequence[str], outputs: Sequence[str]) -> None:
        """Initialise; `operands`, `outputs`: names of the tensors in the order of PIR."""
        super().__init__(*ctx.parts)
        self._made = outputs
        self._slots: dict[str, list[int]] = {}
        for i, slot in enumerate(ctx.attr("in_slots", ())):
            if isinstance(slot, int):
                slot = operands[slot] if slot < len(operands) else f"operand {slot}"
            if self.inputs[i] is not None:
                self._slots.setdefault(slot, []).append(i)

    # Tensors

    def values(self, *names: str) -> list[Value]:
        """Return the tensors of the first argument that is there; none if none is."""
        places = next((self._slots[n] for n in names if n in self._slots), [])
        return [v for i in places if (v := self.inputs[i]) is not None]

    def maybe(self, *names: str) -> Value | None:
        """Return the only tensor of an argument; None if it is absent."""
        found = self.values(*names)
        if len(found) > 1:
            raise ShapeError(f"{self.label} has {len(found)} tensors as {names[0]}; one is expected")
        return found[0] if found else None

    def value(self, *names: str) -> Value:
        """Return the only tensor of an argument; ShapeError if it is absent."""
        found = self.maybe(*names)
        if found is None:
            raise ShapeError(f"{self.label} lacks its argument {names[0]}; it has {', '.join(self._slots) or 'none'}")
        return found

    def place(self, name: str) -> int:
        """Return the number of the input that is the argument's first tensor."""
        return self._slots[name][0]

    def wants(self, name: str) -> bool:
        """Whether something reads an output."""
        return any(self.uses_output(i) for i, made in enumerate(self.made) if made == name)

    @property
    def made(self) -> list[str]:
        """The name of each output of the node; one that nothing declares is the first, unless that is there too."""
        slots = self.attr("out_slots", ())
        first = "" if self._made[0] in slots else self._made[0]
        names = [self._made[s] if s < len(self._made) else "" for s in slots if isinstance(s, int)]
        return names or [s if s in self._made else first for s in slots]

    # Numbers, which are attributes, tensors, or lists of tensors of one element

    def numbers(self, *names: str) -> list[Any] | None:
        """Return the numbers of the first argument that is there; None if none is."""
        for name in names:
            if name in self._slots:
                return [n for i in self._slots[name] for n in self.const_numbers(i)]
            found = self.attr(name)
            if found is not None and found != "":
                return list(found) if isinstance(found, (tuple, list)) else [found]
        return None

    def whole(self, *names: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an argument as integers, some of which may depend on sizes."""
        found = self.numbers(*names)
        if found is None:
            if default is None:
                raise ShapeError(f"{self.label} lacks its argument {names[0]}")
            return list(default)
        return [int_or_symbolic(n) for n in found]

    def number(self, *names: str, default: Any = None) -> Any:
        """Return an argument of one element; the default if it is absent."""
        found = self.numbers(*names)
        if found is None or not found:
            if default is None:
                raise ShapeError(f"{self.label} lacks its argument {names[0]}")
            return default
        if len(found) != 1:
            raise ShapeError(f"{self.label} has {len(found)} numbers as {names[0]}; one is expected")
        return found[0]

    def axis(self, rank: int, *names: str, default: int) -> int:
        """Return an argument that is an axis, counted from the front."""
        return normalize_axis(int(self.number(*names, default=default)), rank)

    def text(self, *names: str, default: str = "") -> str:
        """Return an attribute that is text."""
        found = next((self.attr(n) for n in names if self.attr(n) is not None), default)
        return found if isinstance(found, str) else default

    def is_set(self, *names: str, default: bool = False) -> bool:
        """Whether a boolean attribute is set."""
        return bool(next((self.attr(n) for n in names if self.attr(n) is not None), default))

    def dtype(self, *names: str, default: DType) -> DType:
        """Return an attribute that is an element type; the default if it is absent or undefined."""
        found = next((self.attr(n) for n in names if self.attr(n) is not None), None)
        return declared(found) or default

    # Results

    def emit(self, op_type: str, inputs: Sequence[Value | None], **attrs: Any) -> Value:
        """Emit an operator of ONNX with one output, as a part of this node."""
        (found,) = self.onnx(op_type, inputs, **attrs)
        assert isinstance(found, Value)
        return found

    # Layout

    @property
    def channels_last(self) -> bool:
        """Whether images have their channels last."""
        return self.text("data_format", "data_layout") in _LAST

    def first(self, v: Value) -> Value:
        """Move the channels of an image behind its first axis, if they are last."""
        rank = len(v.shape)
        return self.transpose(v, (0, rank - 1, *range(1, rank - 1))) if self.channels_last else v

    def back(self, v: Value) -> Value:
        """Move the channels of an image to where the node has them."""
        rank = len(v.shape)
        return self.transpose(v, (0, *range(2, rank), 1)) if self.channels_last else v

    def refuse(self, why: str) -> UnsupportedOpError:
        """Return the error for a node that has no equivalent here."""
        return UnsupportedOpError(f"{self.label} {why}")


Importer = Callable[[PaddleNode], Found]


def paddle_op(*names: str, operands: str = "x", outputs: str = "out") -> Callable[[Importer], Importer]:
    """Decorate the function that imports operators of Paddle.

    operands: names of tensors in the order of PIR. outputs: names in that order.
    """
    wanted, made = operands.split(), outputs.split()

    def register(importer: Importer) -> Importer:
        @wraps(importer)
        def handler(ctx: NodeContext) -> list[Value | Trimmed | None]:
            n = PaddleNode(ctx, wanted, made)
            found = importer(n)
            return _arranged(n.made, found if isinstance(found, dict) else {made[0]: found})

        onnx_op(*names, domain=PADDLE)(handler)
        return importer

    return register


def _arranged(names: Sequence[str], found: dict[str, Out]) -> list[Value | Trimmed | None]:
    """Return the outputs in the order of the node; several tensors of one name follow each other."""
    queues = {name: [v] if isinstance(v, (Value, Trimmed)) else list(v or ()) for name, v in found.items()}
    return [queues[name].pop(0) if queues.get(name) else None for name in names]
