"""PIR programs: `.json` files of Paddle 3 as GraphDefs.

A file holds one region of one block. Values are numbers, each defined once; a vector of values is known as the list of
its elements. Names of dialects are written as numbers: 0 builtin, 1 pd_op, 2 cf.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ....errors import ModelFormatError, UnsupportedOpError
from ...proto.graphdef import NodeDef
from . import tensor_arrays
from .dtypes import by_type
from .nodes import DEEPEST, Program, branch, loop, onnx_node, paddle_nodes, port

_VERSIONS = range(1, 8)
_DIALECTS = {"0": "", "1": "", "2": "cf.", "3": "custom."}
_ARRAYS = ("create_array", "array_write", "array_read", "array_length", "array_to_tensor")
_PLAIN = ("data", "feed")  # operators that stand for inputs


def read_pir(text: bytes, what: str) -> Program:
    """Read the program of a PIR file."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ModelFormatError(f"{what} is JSON of another kind, or was cut off: {e}") from e
    base = found.get("base_code") if isinstance(found, dict) else None
    if not isinstance(base, dict) or base.get("magic") != "pir":
        raise ModelFormatError(
            f"{what} is JSON, but no program of Paddle, whose magic is 'pir': give a model file (.onnx, .tflite, "
            ".pdmodel, inference.json)"
        )
    version = base.get("version")
    if version not in _VERSIONS:
        raise ModelFormatError(f"{what} is a PIR program of version {version}; 1 to {_VERSIONS[-1]} are known")
    try:
        return _Reader().program(found["program"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
        raise ModelFormatError(f"{what} is a damaged PIR program: {type(e).__name__}: {e}") from e


class _Reader:
    """Names of the values of one program."""

    def __init__(self) -> None:
        self._result = Program()
        self._values: dict[int, str | list[str]] = {}  # vectors are lists
        self._outputs: dict[int, str] = {}  # names of fetched values
        self._arrays: dict[int, int] = {}  # TensorArrays: the value that created each
        self._contents: dict[int, str] = {}  # the sequence that an array is now, by that value
        self._counts: dict[str, str] = {}  # sequences by the name of their length

    def program(self, program: Mapping[str, Any]) -> Program:
        """Read the main block."""
        block = _only(program["regions"][0]["blocks"])
        for op in block["ops"]:
            if _name(op) == "fetch":
                self._outputs.setdefault(op["I"][0]["%"], str(_attrs(op)["name"]))
        self._result.nodes, _ = self._block(block, 0)
        return self._result

    def _block(self, block: Mapping[str, Any], depth: int) -> tuple[list[NodeDef], list[str]]:
        """Return the nodes of a block, and the names that it yields."""
        if depth > DEEPEST:
            raise ModelFormatError(f"the program has more than {DEEPEST} blocks inside one another")
        nodes: list[NodeDef] = []
        results: list[str] = []
        for op in block["ops"]:
            name = _name(op)
            if name == "p":
                self._param(op)
            elif name in _PLAIN:
                self._input(op, _attrs(op))
            elif name == "fetch":
                nodes += self._fetch(op, _attrs(op))
            elif name in ("combine", "split", "slice") and op["#"].startswith(("0.", "builtin.")):
                self._vector(op, name)
            elif name == "cf.yield":
                results = [self._one(v) for v in op["I"]]
            elif name in _ARRAYS:
                nodes += self._array(op, name)
            elif name == "while":
                nodes.append(self._while(op, depth))
            elif name == "if":
                nodes.append(self._if(op, depth))
            else:
                nodes += self._operator(op, name)
        return nodes, results

    # Operators

    def _param(self, op: Mapping[str, Any]) -> None:
        name = _attrs(op)["parameter_name"] if isinstance(op["A"][0], dict) else op["A"][3]
        if not isinstance(name, str):
            raise ModelFormatError(f"a parameter has the name {name!r}")
        outs = op["O"] if isinstance(op["O"], list) else [op["O"]]
        # A parameter that is not stored is scratch space of training.
        stored = bool(op["OA"][0]) if isinstance(op.get("OA"), list) and isinstance(op["OA"][0], int) else True
        self._values[outs[0]["%"]] = name if stored else ""
        if stored:
            self._result.params.append(name)

    def _input(self, op: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
        out, name = op["O"][0], str(attrs["name"])
        dtype, shape = _tensor_type(out["TT"])
        self._values[out["%"]] = name
        self._result.inputs.append(port(name, dtype, shape))

    def _fetch(self, op: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[NodeDef]:
        name, source = str(attrs["name"]), self._one(op["I"][0])
        dtype, shape = _tensor_type(op["O"][0]["TT"])
        self._result.outputs.append(port(name, dtype, shape))
        return [] if source == name else [onnx_node("Identity", [source], [name])]

    def _vector(self, op: Mapping[str, Any], name: str) -> None:
        if name == "combine":
            self._values[op["O"][0]["%"]] = [self._one(v) for v in op["I"]]
            return
        held = self._values[op["I"][0]["%"]]
        if not isinstance(held, list):
            raise ModelFormatError("an element is taken of a value that is no vector")
        chosen = held if name == "split" else [held[int(_attrs(op)["index"])]]
        for out, element in zip(op["O"], chosen, strict=True):
            if out["%"] in self._outputs:
                self._outputs.pop(out["%"])  # an Identity gives the output's name
            self._values[out["%"]] = element

    def _operator(self, op: Mapping[str, Any], name: str) -> list[NodeDef]:
        inputs: list[tuple[str | int, str]] = []
        for i, value in enumerate(op["I"]):
            for held in self._all(value):
                inputs.append((i, held))
        outputs: list[tuple[str | int, str]] = []
        for i, out in enumerate(op["O"]):
            names = self._define(out, name)
            outputs += [(i, n) for n in ([names] if isinstance(names, str) else names)]
        return paddle_nodes(name, inputs, outputs, _attrs(op))

    # TensorArrays: values whose contents change

    def _array(self, op: Mapping[str, Any], name: str) -> list[NodeDef]:
        first = op["O"][0]["%"]
        if name == "create_array":
            self._arrays[first] = first
            self._contents[first] = f"{name}_{first}"
            return [tensor_arrays.empty(self._contents[first])]
        array = self._arrays[op["I"][0]["%"]]
        now = self._contents[array]
        if name == "array_write":
            x, index = (self._one(v) for v in op["I"][1:3])
            self._arrays[first] = array
            self._contents[array] = f"{name}_{first}"
            return tensor_arrays.write(now, x, index, self._contents[array], self._counts.get(index) == now)
        made = self._define_one(op["O"][0], name)
        if name == "array_length":
            self._counts[made] = now
            return tensor_arrays.length(now, made)
        if name == "array_read":
            return tensor_arrays.read(now, self._one(op["I"][1]), made)
        attrs = _attrs(op)
        return [tensor_arrays.joined(now, made, int(attrs["axis"]), bool(attrs["use_stack"]))]

    def _written(self, blocks: Sequence[Mapping[str, Any]], depth: int) -> list[int]:
        """Return the arrays that exist before some blocks, and are written in them or in those inside."""
        if depth > DEEPEST:
            raise ModelFormatError(f"the program has more than {DEEPEST} blocks inside one another")
        found: dict[int, None] = {}
        for op in (op for block in blocks for op in block["ops"]):
            if _name(op) == "array_write" and (array := self._arrays.get(op["I"][0]["%"])) is not None:
                found[array] = None
            inner = [_only(region["blocks"]) for region in op.get("regions", ())]
            found.update(dict.fromkeys(self._written(inner, depth + 1)))
        return list(found)

    def _while(self, op: Mapping[str, Any], depth: int) -> NodeDef:
        condition, *state = (self._one(v) for v in op["I"])
        outputs = [self._define_one(out, "while") for out in op["O"]]
        block = _only(op["regions"][0]["blocks"])
        carried = [f"{name}/carried" for name in outputs]
        held = dict(self._values)
        for argument, name in zip(block["args"], carried, strict=True):
            self._values[argument["#"]] = name
        arrays, before = self._written([block], depth), dict(self._contents)
        for array in arrays:
            self._contents[array] = f"{before[array]}/carried"
        nodes, results = self._block(block, depth + 1)
        self._values = held
        state += [before[array] for array in arrays]
        carried += [f"{before[array]}/carried" for array in arrays]
        results += [self._contents[array] for array in arrays]
        outputs += [f"{before[array]}/behind" for array in arrays]
        self._contents = before | {array: f"{before[array]}/behind" for array in arrays}
        if not len(state) == len(outputs) == len(results) - 1 or not outputs:
            raise ModelFormatError(
                f"a loop carries {len(state)} values, yields {len(results)} and gives {len(outputs)}"
            )
        return loop(condition, state, carried, nodes, results, outputs)

    def _if(self, op: Mapping[str, Any], depth: int) -> NodeDef:
        outputs = [self._define_one(out, "if") for out in op["O"]]
        blocks = [_only(region["blocks"]) for region in op["regions"]]
        if len(blocks) != 2:
            raise ModelFormatError(f"a branch has {len(blocks)} blocks; two are expected")
        held, before = dict(self._values), dict(self._contents)
        arrays, made = self._written(blocks, depth), []
        outputs += [f"{before[array]}/chosen" for array in arrays]
        for block, name in zip(blocks, ("then", "else"), strict=True):
            nodes, results = self._block(block, depth + 1)
            results += [self._contents[array] for array in arrays]
            self._values, self._contents = dict(held), dict(before)
            if len(results) != len(outputs):
                raise ModelFormatError(f"a branch gives {len(results)} values for {len(outputs)}")
            made.append(branch(name, nodes, results))
        self._contents |= {array: f"{before[array]}/chosen" for array in arrays}
        return onnx_node("If", [self._one(op["I"][0])], outputs, then_branch=made[0], else_branch=made[1])

    # Values

    def _all(self, value: Mapping[str, Any]) -> list[str]:
        """Return the names of a value, or of the elements of a vector; '' for an absent one."""
        number = value["%"]
        if number == 0:
            return [""]
        held = self._values.get(number)
        if held is None:
            raise ModelFormatError(f"value {number} is used before an operator defines it")
        return [held] if isinstance(held, str) else held

    def _one(self, value: Mapping[str, Any]) -> str:
        names = self._all(value)
        if len(names) != 1:
            raise ModelFormatError(f"value {value['%']} is a vector of {len(names)} where one tensor is expected")
        return names[0]

    def _define(self, out: Mapping[str, Any], op_name: str) -> str | list[str]:
        """Return the names for a value that an operator makes."""
        number = out["%"]
        kind = out["TT"]["#"] if out.get("TT") else "0.t_null"
        if number in self._values:
            raise ModelFormatError(f"value {number} is defined twice")
        if kind.endswith("t_vec"):
            self._values[number] = [f"{op_name}_{number}.{i}" for i in range(len(out["TT"]["D"]))]
            return self._values[number]
        if kind.lower().endswith("null"):
            return ""
        if not kind.endswith("t_dtensor"):
            raise UnsupportedOpError(
                f"operator {op_name} of the program gives a value of type {kind}; tensors are known"
            )
        return self._define_one(out, op_name)

    def _define_one(self, out: Mapping[str, Any], op_name: str) -> str:
        name = self._outputs.get(out["%"]) or f"{op_name}_{out['%']}"
        self._values[out["%"]] = name
        return name


def _name(op: Mapping[str, Any]) -> str:
    """Return the operator's name without dialect and without the mark of computing in place."""
    dialect, dot, name = str(op["#"]).partition(".")
    if not dot:
        return dialect
    prefix = _DIALECTS.get(dialect, "" if dialect in ("builtin", "pd_op") else f"{dialect}.")
    return prefix + name.removesuffix("_")


def _attrs(op: Mapping[str, Any]) -> dict[str, Any]:
    return {a["N"]: _value(a["AT"]) for a in op["A"]}


def _value(attr: Mapping[str, Any], depth: int = 0) -> Any:
    kind, held = attr["#"].rpartition("a_")[2], cast(Any, attr.get("D"))
    if depth > 4:
        raise ModelFormatError("attributes are nested more than four deep")
    if kind == "array":
        return tuple(_value(v, depth + 1) for v in held)
    if kind == "intarray":
        return tuple(int(v) for v in held)
    if kind in ("f32", "f64"):
        return float(attr["VD"] if held is None else held)  # infinities and NaN are text
    return held


def _tensor_type(t: Mapping[str, Any]) -> tuple[Any, Sequence[int]]:
    """Return (element type, dimensions) of a dense tensor's type."""
    if not t["#"].endswith("t_dtensor"):
        raise UnsupportedOpError(f"the program takes or gives a value of type {t['#']}; tensors are known")
    shape = t["D"][1]
    if len(shape) > 64 or not all(isinstance(d, int) for d in shape):
        raise ModelFormatError(f"a tensor has the shape {shape}")
    return by_type(t["D"][0]["#"]), shape


def _only(blocks: Sequence[Any]) -> Any:
    if len(blocks) != 1:
        raise ModelFormatError(f"a region has {len(blocks)} blocks; one is expected")
    return blocks[0]
