"""ProgramDesc: `.pdmodel` files as GraphDefs.

A variable may be written several times, also by inner blocks. Each write gets a name of its own here; the last one
keeps the variable's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from onnx import AttributeProto, TensorProto

from ....errors import ModelFormatError, UnsupportedOpError
from ...proto.graphdef import Attr, NodeDef
from . import tensor_arrays
from .dtypes import by_number
from .messages import message
from .nodes import DEEPEST, Program, Slots, branch, loop, onnx_node, paddle_nodes, port

_TENSOR = 7
_ARRAY = 13
_STRINGS = 2  # attribute types that hold text
_NAMES = {"sum": "add_n"}
"""Operators whose name means another operator in PIR."""

_IGNORED = frozenset(("op_role", "op_role_var", "op_callstack", "op_namescope", "op_device", "with_quant_attr"))
_DECODERS: dict[int, Any] = {
    0: lambda a: int(a.i),
    1: lambda a: float(a.f),
    2: lambda a: _text(a.s),
    3: lambda a: tuple(a.ints),
    4: lambda a: tuple(a.floats),
    5: lambda a: tuple(map(_text, a.strings)),
    6: lambda a: bool(a.b),
    7: lambda a: tuple(a.bools),
    8: lambda a: int(a.block_idx),
    9: lambda a: int(a.l),
    10: lambda a: tuple(a.blocks_idx),
    11: lambda a: tuple(a.longs),
    12: lambda a: tuple(a.float64s),
    13: lambda a: _text(a.var_name),
    14: lambda a: tuple(map(_text, a.vars_name)),
    15: lambda a: float(a.float64),
    16: lambda a: _scalar(a.scalar),
    17: lambda a: tuple(map(_scalar, a.scalars)),
}


def read_program(data: bytes, what: str) -> Program:
    """Read the program of a `.pdmodel` file."""
    try:
        found = message("Program").FromString(data)
    except Exception as e:  # protobuf's DecodeError
        raise ModelFormatError(
            f"{what} is not a complete Paddle program ({len(data)} bytes): it is damaged, cut off or of another format"
        ) from e
    if not found.blocks or not any(_text(op.type) == "fetch" for op in found.blocks[0].ops):
        raise ModelFormatError(
            f"{what} holds no Paddle program that gives outputs: save it by paddle.jit.save or save_inference_model"
        )
    return _Reader(found).program()


class _Names:
    """Variables of one block, and of the blocks around it: the name of each one's last value."""

    def __init__(self, outer: _Names | None, counts: Counter[str], prefix: str, kept: AbstractSet[str]) -> None:
        """Initialise; `kept`: names that a value has before anything is written."""
        self.values: dict[str, str] = {} if outer is None else dict(outer.values)
        self.written: dict[str, None] = {}
        self._left = Counter(counts)
        self._prefix = prefix
        self._kept = kept

    def read(self, name: str) -> str:
        """Return the value of a variable; itself for a parameter."""
        return self.values.get(name, name)

    def write(self, name: str) -> str:
        """Return a new value of a variable."""
        self._left[name] -= 1
        fresh = f"{self._prefix}{name}"
        last = self._left[name] <= 0 and fresh not in self._kept
        made = fresh if last else f"{fresh}@{max(self._left[name], 0)}"
        self.values[name] = made
        self.written[name] = None
        return made


class _Reader:
    """Reads the blocks of one program."""

    def __init__(self, program: Any) -> None:
        self._blocks = program.blocks
        self._vars = {_text(v.name): v for b in program.blocks for v in b.vars}
        self._result = Program()
        self._made = 0
        self._stored = {n for n, v in self._vars.items() if v.persistable and v.type.type == _TENSOR}
        feeds = [op for op in program.blocks[0].ops if _text(op.type) == "feed"]
        self._kept = self._stored | {n for op in feeds for _, n in _arguments(op.outputs)}

    def program(self) -> Program:
        """Read the main block."""
        result = self._result
        names = _Names(None, self._counts(0), "", self._kept)
        arrays = {n: f"{n}@empty" for n, v in self._vars.items() if v.type.type == _ARRAY}
        names.values.update(arrays)
        result.nodes = [*map(tensor_arrays.empty, arrays.values()), *self._block(0, names, 0)]
        result.params = sorted(self._stored)
        return result

    def _counts(self, index: int) -> Counter[str]:
        """Count the writes of each variable in a block."""
        ops = self._blocks[index].ops
        return Counter(_text(n) for op in ops for slot in op.outputs for n in dict.fromkeys(slot.arguments))

    def _block(self, index: int, names: _Names, depth: int) -> list[NodeDef]:
        """Return the nodes of a block."""
        if depth > DEEPEST:
            raise ModelFormatError(f"the program has more than {DEEPEST} blocks inside one another")
        nodes: list[NodeDef] = []
        for op in self._blocks[index].ops:
            kind = _text(op.type)
            special = _SPECIAL.get(kind)
            if special is not None:
                nodes += special(self, op, names, depth)
            else:
                nodes += self._operator(op, _NAMES.get(kind, kind), names)
        return nodes

    def _operator(self, op: Any, kind: str, names: _Names) -> list[NodeDef]:
        inputs = [(slot, names.read(n)) for slot, n in _arguments(op.inputs)]
        # A variable that holds no tensor, such as the scratch space of an operator, is no value.
        outputs = [(slot, names.write(n) if self._is_tensor(n) else "") for slot, n in _arguments(op.outputs)]
        return paddle_nodes(kind, inputs, _once(outputs), _attrs(op))

    def _is_tensor(self, name: str) -> bool:
        found = self._vars.get(name)
        return found is None or found.type.type in (_TENSOR, _ARRAY)

    # Inputs and outputs

    def _feed(self, op: Any, names: _Names, depth: int) -> list[NodeDef]:
        name = _one(op.outputs, "Out")
        tensor = self._declared(name, "feeds")
        self._result.inputs.append(port(name, by_number(tensor.data_type), tensor.dims))
        names.values[name] = name
        return []

    def _fetch(self, op: Any, names: _Names, depth: int) -> list[NodeDef]:
        name = _one(op.inputs, "X")
        tensor = self._declared(name, "fetches")
        value = names.read(name)
        # An input that the program has overwritten cannot have the name of both.
        shown = f"{name}/out" if name in self._kept and value != name else name
        self._result.outputs.append(port(shown, by_number(tensor.data_type), tensor.dims))
        return [] if value == shown else [onnx_node("Identity", [value], [shown])]

    def _declared(self, name: str, how: str) -> Any:
        """Return the declaration of a tensor that the program feeds or fetches."""
        if name not in self._vars:
            raise ModelFormatError(f"the program {how} '{name}', which it does not declare")
        return self._vars[name].type.lod_tensor.tensor

    # Blocks

    def _sub_block(self, op: Any, kind: str) -> int:
        index = _attrs(op).get("sub_block")
        if not isinstance(index, int) or not 0 < index < len(self._blocks):
            raise ModelFormatError(f"{kind} runs block {index}, which is none of the program's {len(self._blocks)}")
        return index

    def _inner(self, index: int, names: _Names, depth: int) -> tuple[list[NodeDef], _Names]:
        """Return the nodes of an inner block and its variables."""
        self._made += 1
        inner = _Names(names, self._counts(index), f"block{self._made}/", frozenset())
        return self._block(index, inner, depth + 1), inner

    def _while(self, op: Any, names: _Names, depth: int) -> list[NodeDef]:
        index = self._sub_block(op, "while")
        condition = _one(op.inputs, "Condition")
        # Values of the loop are what its block writes and the blocks around it hold.
        wrote = [n for n in self._writes(index, depth) if n in names.values and n != condition]
        first = _Names(names, Counter(), "", frozenset())
        self._made += 1
        prefix = f"loop{self._made}/"
        for n in wrote:
            first.values[n] = f"{prefix}{n}"
        nodes, inner = self._inner(index, first, depth)
        carried = [first.values[n] for n in wrote]
        if not wrote:
            raise ModelFormatError(f"a while runs block {index}, which writes nothing that is read behind it")
        results = [inner.read(n) for n in (condition, *wrote)]
        state = [names.read(n) for n in wrote]
        going = names.read(condition)
        outputs = [names.write(n) for n in wrote]
        return [loop(going, state, carried, nodes, results, outputs)]

    def _writes(self, index: int, depth: int) -> list[str]:
        """Return the variables that a block and those inside it write."""
        if depth > DEEPEST:
            raise ModelFormatError(f"the program has more than {DEEPEST} blocks inside one another")
        found: dict[str, None] = {}
        for op in self._blocks[index].ops:
            if _text(op.type) in ("while", "conditional_block"):
                found.update(dict.fromkeys(self._writes(self._sub_block(op, "a block"), depth + 1)))
            else:
                found.update((n, None) for _, n in _arguments(op.outputs))
        return list(found)

    def _conditional(self, op: Any, names: _Names, depth: int) -> list[NodeDef]:
        condition = names.read(_one(op.inputs, "Cond"))
        nodes, inner = self._inner(self._sub_block(op, "conditional_block"), names, depth)
        declared = {n for _, n in _arguments(op.outputs)}
        wrote = [n for n in inner.written if n in declared or n in names.values]
        if not wrote:
            return []
        then = branch("then", nodes, [inner.read(n) for n in wrote])
        before = [names.values.get(n, "") for n in wrote]
        # Nothing reads a variable that only the other branch would have written.
        empty = f"{inner.read(wrote[0])}/unwritten"
        filler = NodeDef(
            "Constant", "", 1, empty, (), (empty,), {"value": Attr(AttributeProto.TENSOR, np.zeros(0, np.float32))}
        )
        other = branch("else", [filler], [n or empty for n in before])
        outputs = [names.write(n) for n in wrote]
        return [onnx_node("If", [condition], outputs, then_branch=then, else_branch=other)]

    def _select(self, op: Any, names: _Names, depth: int) -> list[NodeDef]:
        first, second = (names.read(n) for slot, n in _arguments(op.inputs) if slot == "x")
        out = names.write(_one(op.outputs, "Out"))
        test = onnx_node("Cast", [names.read(_one(op.inputs, "Mask"))], [f"{out}/test"], to=TensorProto.BOOL)
        branches = {"then_branch": branch("then", [], [second]), "else_branch": branch("else", [], [first])}
        return [test, onnx_node("If", [f"{out}/test"], [out], **branches)]

    # TensorArrays

    def _array(self, op: Any, names: _Names, depth: int) -> list[NodeDef]:
        kind, now = _text(op.type), names.read(_one(op.outputs, "Out"))
        index = names.read(_one(op.inputs, "I")) if kind in ("write_to_array", "read_from_array") else ""
        source = names.read(_one(op.inputs, "X"))
        made = names.write(_one(op.outputs, "Out"))
        if kind == "write_to_array":
            return tensor_arrays.write(now, source, index, made)
        if kind == "read_from_array":
            return tensor_arrays.read(source, index, made)
        if kind == "lod_array_length":
            return tensor_arrays.length(source, made)
        attrs = _attrs(op)
        return [tensor_arrays.joined(source, made, int(attrs.get("axis", 0)), bool(attrs.get("use_stack", False)))]


_SPECIAL: dict[str, Any] = {
    "feed": _Reader._feed,
    "fetch": _Reader._fetch,
    "while": _Reader._while,
    "conditional_block": _Reader._conditional,
    "conditional_block_infer": _Reader._conditional,
    "select_input": _Reader._select,
    **dict.fromkeys(
        ("write_to_array", "read_from_array", "lod_array_length", "tensor_array_to_tensor"), _Reader._array
    ),
}


def _text(raw: bytes) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _scalar(held: Any) -> Any:
    for name in ("b", "i", "r"):
        if held.HasField(name):
            return getattr(held, name)
    raise UnsupportedOpError("an operator has a complex number as an attribute; real ones are known")


def _attrs(op: Any) -> dict[str, Any]:
    found = {}
    for a in op.attrs:
        if a.name in _IGNORED:
            continue
        if a.type not in _DECODERS:
            raise ModelFormatError(f"attribute '{a.name}' of operator {_text(op.type)} has the unknown type {a.type}")
        found[a.name] = _DECODERS[a.type](a)
    return found


def _arguments(slots: Iterable[Any]) -> list[tuple[str, str]]:
    """Return (slot, variable) of each argument, slots in the spelling of PIR."""
    return [(spelled(_text(s.parameter)), _text(n)) for s in slots for n in s.arguments]


def spelled(slot: str) -> str:
    """Return a slot's name in small letters with underscores: AxisTensor is axis_tensor."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", slot).lower()


def _one(slots: Sequence[Any], slot: str) -> str:
    names = [_text(n) for s in slots if _text(s.parameter) == slot for n in s.arguments]
    if len(names) != 1:
        raise ModelFormatError(f"an operator has {len(names)} variables as {slot}; one is expected")
    return names[0]


def _once(outputs: Slots) -> Slots:
    """Return the outputs with a name that comes twice kept once."""
    seen: set[str] = set()
    found = []
    for slot, name in outputs:
        found.append((slot, "" if name in seen else name))
        seen.add(name)
    return found
