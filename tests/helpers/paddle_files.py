"""Small Paddle programs, written in both formats from one description.

    program = PaddleProgram({"x": np.float32([1, 2])})
    program.op("relu", {"X": ["x"]}, {"Out": ["y"]})
    program.write(folder, "pir")

Operators are described as in a ProgramDesc. For PIR, their operands are numbered in the given order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from opalite.importer.paddle.read.messages import message

Array = np.ndarray[Any, Any]

_NUMBERS = {"bool": 0, "int16": 1, "int32": 2, "int64": 3, "float16": 4, "float32": 5, "float64": 6, "uint8": 20}
_NUMBERS["int8"] = 21
_SHORT = {"bool": "bool", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16", "float32": "f32"}
_SHORT |= {"float64": "f64", "uint8": "ui8", "int8": "i8"}


@dataclass
class PaddleProgram:
    """A program being written. inputs: examples by name; shapes: declared shapes of inputs with open sizes."""

    inputs: Mapping[str, Array]
    params: Mapping[str, Array] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ops: list[tuple[str, dict[str, list[str]], dict[str, list[str]], dict[str, Any]]] = field(default_factory=list)
    blocks: Sequence[Sequence[Any]] = ()

    def op(
        self, kind: str, inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], **attrs: Any
    ) -> PaddleProgram:
        """Append an operator."""
        self.ops.append(
            (kind, {k: list(v) for k, v in inputs.items()}, {k: list(v) for k, v in outputs.items()}, attrs)
        )
        return self

    def write(self, folder: Path, kind: str, name: str = "inference") -> Path:
        """Write program and parameters; kind: 'pdmodel' or 'pir'. Returns the program's path."""
        path = folder / f"{name}.{'json' if kind == 'pir' else 'pdmodel'}"
        path.write_bytes(self.pir() if kind == "pir" else self.program_desc())
        if self.params:
            (folder / f"{name}.pdiparams").write_bytes(combined(self.params))
        return path

    def declared(self, name: str) -> Sequence[int]:
        """The declared shape of an input."""
        return self.shapes.get(name, self.inputs[name].shape)

    # ProgramDesc

    def program_desc(self, blocks: Sequence[Sequence[Any]] = ()) -> bytes:
        """The bytes of a .pdmodel file. blocks: operators of inner blocks, by default the program's own."""
        blocks = blocks or self.blocks
        program = message("Program")()
        main = program.blocks.add(idx=0, parent_idx=-1)
        for name, array in (*self.inputs.items(), *self.params.items()):
            var = main.vars.add(name=name.encode(), persistable=name in self.params)
            var.type.type = 7
            tensor = var.type.lod_tensor.tensor
            tensor.data_type = _NUMBERS[str(array.dtype)]
            tensor.dims.extend(array.shape if name in self.params else self.declared(name))
        for name in self.outputs:
            if name not in self.inputs:
                var = main.vars.add(name=name.encode())
                var.type.type, var.type.lod_tensor.tensor.data_type = 7, 5
        for i, name in enumerate(self.inputs):
            add_op(main, "feed", {"X": ["feed"]}, {"Out": [name]}, {"col": i})
        for op in self.ops:
            add_op(main, *op)
        for i, name in enumerate(self.outputs):
            add_op(main, "fetch", {"X": [name]}, {"Out": ["fetch"]}, {"col": i})
        for i, ops in enumerate(blocks, 1):
            block = program.blocks.add(idx=i, parent_idx=0)
            for op in ops:
                add_op(block, *op)
        return bytes(program.SerializeToString())

    # PIR

    def pir(self) -> bytes:
        """The bytes of a PIR file."""
        numbers: dict[str, int] = {}
        ops: list[dict[str, Any]] = []

        def define(name: str, dtype: str = "float32", shape: Sequence[int] = ()) -> dict[str, Any]:
            numbers[name] = len(numbers) + 1
            return {"%": numbers[name], "TT": _tensor(dtype, shape)}

        for name, array in sorted(self.params.items()):
            out = define(name, str(array.dtype), array.shape)
            ops.append({"#": "p", "A": [0, 1, 1, name], "DA": [], "O": out, "OA": [1, 0, 1], "QA": []})
        for name, array in self.inputs.items():
            out = define(name, str(array.dtype), self.declared(name))
            ops.append({"#": "1.data", "A": [_attr("name", name)], "I": [], "O": [out], "OA": []})
        for kind, inputs, outputs, attrs in self.ops:
            operands: list[int] = []
            for names in inputs.values():
                if len(names) == 1:
                    operands.append(numbers[names[0]] if names[0] else 0)
                    continue
                vector = define(f"{kind} {names}")
                vector["TT"] = {"#": "0.t_vec", "D": [_tensor("float32", ())] * len(names)}
                given = [{"%": numbers[n]} for n in names]
                ops.append({"#": "0.combine", "A": [], "I": given, "O": [vector], "OA": []})
                operands.append(vector["%"])
            made: list[dict[str, Any]] = []
            splits: list[tuple[dict[str, Any], list[str]]] = []
            for names in outputs.values():
                if len(names) == 1:
                    made.append(define(names[0]))
                else:
                    vector = define(f"{kind} out {names}")
                    vector["TT"] = {"#": "0.t_vec", "D": [_tensor("float32", ())] * len(names)}
                    made.append(vector)
                    splits.append((vector, names))
            given = [{"%": n} for n in operands]
            listed = [_attr(k, v) for k, v in attrs.items()]
            ops.append({"#": f"1.{kind}", "A": listed, "I": given, "O": made, "OA": []})
            for vector, names in splits:
                outs = [define(n) for n in names]
                ops.append({"#": "0.split", "A": [], "I": [{"%": vector["%"]}], "O": outs, "OA": []})
        for i, name in enumerate(self.outputs):
            attrs_ = [_attr("name", name), _attr("col", i)]
            out = {"%": len(numbers) + 100 + i, "TT": _tensor("float32", ())}
            ops.append({"#": "1.fetch", "A": attrs_, "I": [{"%": numbers[name]}], "O": [out], "OA": []})
        block = {"#": "block_0", "args": [], "ops": ops}
        program = {"regions": [{"#": "region_0", "blocks": [block]}]}
        return json.dumps({"base_code": {"magic": "pir", "version": 4}, "program": program}).encode()


def add_op(block: Any, kind: str, inputs: Any, outputs: Any, attrs: Mapping[str, Any]) -> None:
    """Add an operator to a block's message."""
    op = block.ops.add(type=kind.encode())
    for slots, given in ((op.inputs, inputs), (op.outputs, outputs)):
        for slot, names in given.items():
            if names != [""]:
                slots.add(parameter=slot.encode(), arguments=[n.encode() for n in names])
    for name, value in attrs.items():
        a = op.attrs.add(name=name)
        first = value[0] if isinstance(value, (tuple, list)) and value else value
        if isinstance(value, (tuple, list)):
            kinds = {bool: (7, a.bools), int: (3, a.ints), float: (4, a.floats)}
            if isinstance(first, str):
                a.type = 5
                a.strings.extend(v.encode() for v in value)
            else:
                a.type, target = kinds.get(type(first), kinds[int])
                target.extend(value)
        elif name == "sub_block":
            a.type, a.block_idx = 8, value
        elif isinstance(value, bool):
            a.type, a.b = 6, value
        elif isinstance(value, int):
            a.type, a.i = 0, value
        elif isinstance(value, float):
            a.type, a.f = 1, value
        else:
            a.type, a.s = 2, value.encode()


def _tensor(dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    return {"#": "0.t_dtensor", "D": [{"#": f"0.t_{_SHORT[dtype]}"}, list(shape), "NCHW", [], 0]}


def _attr(name: str, value: Any) -> dict[str, Any]:
    return {"N": name, "AT": _attr_value(value)}


def _attr_value(value: Any) -> dict[str, Any]:
    if isinstance(value, (tuple, list)):
        return {"#": "0.a_array", "D": [_attr_value(v) for v in value]}
    kinds = {bool: "bool", int: "i32", float: "f32", str: "str"}
    return {"#": f"0.a_{kinds[type(value)]}", "D": value}


def tensor_bytes(array: Array) -> bytes:
    """A tensor as parameter files hold it."""
    desc = message("TensorDesc")(data_type=_NUMBERS[str(array.dtype)], dims=array.shape).SerializeToString()
    return struct.pack("<IQIi", 0, 0, 0, len(desc)) + desc + np.ascontiguousarray(array).tobytes()


def combined(params: Mapping[str, Array]) -> bytes:
    """All parameters in one file."""
    return b"".join(tensor_bytes(params[name]) for name in sorted(params))
