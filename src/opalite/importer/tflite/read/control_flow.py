"""Operators on variables, hash tables and subgraphs, and such with data-dependent sizes, as ONNX nodes and calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx import AttributeProto

from ....errors import ModelFormatError, UnsupportedOpError
from ....ir import DType
from ....ir.constants.lazy_array import LazyArray
from ...proto.constants import Constants
from ...proto.decode import ValueInfo, elem_code
from ...proto.graphdef import Attr, NodeDef, make_graph
from .bodies import Variable
from .tensors import TensorInfo

if TYPE_CHECKING:
    from .subgraphs import SubgraphWalk

Options = dict[str, Any]


def _var_handle(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    name = "/".join(filter(None, (options.get("container", ""), options.get("shared_name", ""))))
    walk.handles[outputs[0]] = name or walk.tensor(outputs[0]).value


def _read_variable(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    t = walk.tensor(outputs[0])
    walk.values[t.index] = walk.read_variable(_variable(walk, inputs[0], t))


def _assign_variable(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    walk.write_variable(_variable(walk, inputs[0], walk.tensor(inputs[1])), walk.value(inputs[1]))


def _variable(walk: SubgraphWalk, handle: int, t: TensorInfo) -> Variable:
    if t.dtype is None:
        raise ModelFormatError(f"tensor '{t.name}' of a variable has no element type")
    return Variable(walk.handle(handle), t.dtype, t.signature, 0)


def _call_once(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    body = walk.reader.read(int(options.get("init_subgraph_index", 0)))
    if body.writes:
        arrays = walk.reader.evaluate(body.graph, walk.reader.functions)
        walk.initial.update((v.name, a) for v, a in zip(body.writes, arrays[-len(body.writes) :], strict=True))


def _call(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    index = int(options.get("subgraph", 0) or options.get("decomposition_subgraph_index", 0))
    op, body = walk.reader.function(index, walk.handles_of(inputs))
    arguments = walk.arguments(body, inputs, "CALL")
    names, written = walk.results(outputs, [body])
    made = [*names, *(walk.new_name(v.name) for v in written)]
    walk.nodes.append(walk.call(op, arguments, made))
    _bind(walk, written, made[len(names) :])


def _bind(walk: SubgraphWalk, written: Sequence[Variable], values: Sequence[str]) -> None:
    for variable, value in zip(written, values, strict=True):
        walk.write_variable(variable, value)


def _if(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    handles = walk.handles_of(inputs[1:])
    found = [walk.reader.function(int(options.get(f"{n}_subgraph_index", 0)), handles) for n in ("then", "else")]
    names, written = walk.results(outputs, [body for _, body in found])
    branches = []
    for (op, body), which in zip(found, ("then", "else"), strict=True):
        made = [walk.new_name(f"{which} {n}") for n in names]
        own = {v.name: walk.new_name(f"{which} {v.name}") for v in body.writes}
        nodes = [walk.call(op, walk.arguments(body, inputs[1:], "IF"), [*made, *own.values()])]
        # A variable that this branch leaves alone keeps its value.
        results = [*made, *(own.get(v.name) or walk.read_variable(v) for v in written)]
        branches.append(make_graph(which, (), tuple(map(ValueInfo, results)), nodes, Constants()))
    made = [*names, *(walk.new_name(v.name) for v in written)]
    then, other = branches
    walk.nodes.append(walk.onnx_node("If", (walk.value(inputs[0]),), made, then_branch=then, else_branch=other))
    _bind(walk, written, made[len(names) :])


def _while(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    handles = walk.handles_of(inputs)
    test, cond = walk.reader.function(int(options.get("cond_subgraph_index", 0)), handles)
    step, body = walk.reader.function(int(options.get("body_subgraph_index", 0)), handles)
    if cond.writes:
        raise UnsupportedOpError(f"a WHILE of '{walk.name}' writes a variable in its condition")
    names, written = walk.results(outputs, [body])
    touched = {v.name: v for v in (*cond.reads, *body.reads, *body.writes)}
    state = [walk.value(i) for i in inputs if i not in walk.handles]
    if not len(state) == len(cond.inputs) == len(body.inputs) == len(names):
        raise ModelFormatError(f"a WHILE of '{walk.name}' carries {len(state)} values, and gives {len(names)}")
    before = [*state, *(walk.read_variable(v) for v in touched.values())]

    def tested(values: Sequence[str], out: str) -> NodeDef:
        held = dict(zip(touched, values[len(state) :], strict=True))
        return walk.call(test, [*values[: len(state)], *(held[v.name] for v in cond.reads)], [out])

    carried = [walk.new_name(n) for n in (*names, *touched)]
    held = dict(zip(touched, carried[len(state) :], strict=True))
    made = [walk.new_name(n) for n in (*names, *(v.name for v in written))]
    after = dict(held, **dict(zip((v.name for v in written), made[len(state) :], strict=True)))
    results = [*made[: len(state)], *after.values()]
    going, count, flag, start = (walk.new_name(f"while {n}") for n in ("condition", "count", "flag", "start"))
    nodes = [
        walk.call(step, [*carried[: len(state)], *(held[v.name] for v in body.reads)], made),
        tested(results, going),
    ]
    ports = (ValueInfo(count, "tensor", DType.INT64, ()), ValueInfo(flag, "tensor", DType.BOOL, ()))
    loop = make_graph(
        "body", (*ports, *map(ValueInfo, carried)), tuple(map(ValueInfo, (going, *results))), nodes, Constants()
    )
    outs = [*names, *(walk.new_name(n) for n in touched)]
    walk.nodes += [tested(before, start), walk.onnx_node("Loop", ("", start, *before), outs, body=loop)]
    last = dict(zip(touched, outs[len(names) :], strict=True))
    _bind(walk, written, [last[v.name] for v in written])


def _hashtable_import(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    keys, values = (walk.reader.buffers.constant(walk.tensor(i)) for i in inputs[1:3])
    if keys is None or values is None:
        raise UnsupportedOpError("a HASHTABLE_IMPORT fills its table with computed values; constants are expected")
    found = [a.read() if isinstance(a, LazyArray) else a for a in (keys, values)]
    walk.reader.contents[walk.handle(inputs[0])] = (found[0].reshape(-1), found[1].reshape(-1))


def _hashtable(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    walk.handles[outputs[0]] = f"table {options.get('table_id', 0)}"


def _hashtable_find(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    keys, values = walk.reader.contents.get(walk.handle(inputs[0])) or (np.empty(0, np.int64), np.empty(0, object))
    default = walk.reader.buffers.constant(walk.tensor(inputs[2]))
    if default is None:
        raise UnsupportedOpError("a HASHTABLE_FIND has a computed default value; a constant is expected")
    first = (default.read() if isinstance(default, LazyArray) else default).reshape(-1)[0]
    kinds = ["strings" if a.dtype == object else "int64s" for a in (keys, values)]
    attributes = {
        f"keys_{kinds[0]}": tuple(keys.tolist()),
        f"values_{kinds[1]}": tuple(values.tolist()),
        f"default_{kinds[1][:-1]}": first if values.dtype == object else int(first),
    }
    made = walk.tensor(outputs[0]).value
    given = {k: Attr(0, v) for k, v in attributes.items()}
    walk.nodes.append(NodeDef("LabelEncoder", "ai.onnx.ml", 4, made, (walk.value(inputs[1]),), (made,), given))


def _hashtable_size(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    keys, _ = walk.reader.contents.get(walk.handle(inputs[0])) or ((), ())
    made = walk.tensor(outputs[0]).value
    given = {"value": Attr(AttributeProto.TENSOR, np.full(walk.tensor(outputs[0]).shape, len(keys), np.int64))}
    walk.nodes.append(NodeDef("Constant", "", walk.reader.opset, made, (), (made,), given))


# Operators whose output sizes depend on data: the host runs ONNX's between two segments


def _where(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    made, columns = walk.tensor(outputs[0]).value, walk.new_name("places")
    walk.nodes.append(walk.onnx_node("NonZero", (walk.value(inputs[0]),), (columns,)))
    walk.nodes.append(walk.onnx_node("Transpose", (columns,), (made,), perm=(1, 0)))


def _unique(walk: SubgraphWalk, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    made, places = walk.tensor(outputs[0]).value, walk.new_name("places")
    walk.nodes.append(walk.onnx_node("Unique", (walk.value(inputs[0]),), (made, "", places), sorted=0))
    which = walk.tensor(outputs[1])
    if which.dtype is None:
        raise ModelFormatError(f"tensor '{which.name}' has no element type")
    walk.nodes.append(walk.onnx_node("Cast", (places,), (which.value,), to=elem_code(which.dtype)))


SPECIAL: dict[str, Callable[[SubgraphWalk, Sequence[int], Sequence[int], Options], None]] = {
    "VAR_HANDLE": _var_handle,
    "READ_VARIABLE": _read_variable,
    "ASSIGN_VARIABLE": _assign_variable,
    "CALL_ONCE": _call_once,
    "CALL": _call,
    "STABLEHLO_COMPOSITE": _call,
    "IF": _if,
    "WHILE": _while,
    "HASHTABLE": _hashtable,
    "HASHTABLE_IMPORT": _hashtable_import,
    "HASHTABLE_FIND": _hashtable_find,
    "HASHTABLE_SIZE": _hashtable_size,
    "WHERE": _where,
    "UNIQUE": _unique,
}
"""Functions that add an operator's nodes, by its name."""
