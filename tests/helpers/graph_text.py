"""Text form of a graph: `print_graph` writes it and `parse_graph` reads it.

    graph net(%x: f32[1,8,4,4]) {
        const %w: f32[4,8,1,1] = seed 7
        const %k: f32[] = [2.0]
        %c: f32[1,4,4,4] @opencl/NC16HW16 = Conv(%x, %w, -) {group=1, strides=[1, 1], ...} # the node's name
        %y: f32[1,4,4,4] = Elementwise(%c, %k) {expr="mul($0, $1)"}
        return %y
    }

A line is a constant, a node or the outputs; `-` is an absent input. A type may be omitted and is then inferred. A place
after `@` is omitted for a flat OpenCL buffer. Constants of up to 8 elements are listed; larger ones are written as
`fill 0.0` if all elements are equal, else as a checksum. Parsing makes arbitrary data from a checksum, as from `seed
7`. Names with other characters than letters, digits and _ . / are quoted: %"a b".
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

from opalite.errors import InputError
from opalite.expr.expression import Expr
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.graph import Graph, Node, Value
from opalite.ir.place import FLAT, IMAGE, OPENCL, Place, Target, packed
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import all_ops, make_op
from opalite.ops.strided_view import View

from .graph_text_tokens import PLAIN_NAME, Tokens

LISTED = 8  # most elements of a constant that is listed

_LAYOUTS = {str(layout): layout for layout in (FLAT, IMAGE, *map(packed, (2, 4, 8, 16, 32)))}

# ---------------------------------------------------------------------------------------------------------------
# Printing


def print_graph(graph: Graph) -> str:
    """The text form of `graph`."""
    lines = [f"graph {_name(graph.name)}({', '.join(f'{_ref(v)}: {_type(v.type)}' for v in graph.inputs)}) {{"]
    listed: set[Value] = set()
    for node in graph.nodes:
        lines += _new_constants(node.inputs, listed)
        lines.append(f"    {print_node(node)}")
    lines += _new_constants(graph.outputs, listed)
    lines.append(f"    return {', '.join(map(_ref, graph.outputs))}")
    return "\n".join([*lines, "}", ""])


def print_node(node: Node) -> str:
    """One line: outputs with their types, operator, inputs, attributes, and the node's name as a comment."""
    outputs = ", ".join(f"{_ref(v)}: {_type(v.type)}" for v in node.outputs)
    inputs = ", ".join(_ref(v) for v in node.inputs)
    attrs = ", ".join(f"{key}={attr_text(value)}" for key, value in sorted(node_attributes(node).items()))
    comment = f" # {node.name}" if node.name else ""
    return f"{outputs} = {node.op.name}({inputs}){f' {{{attrs}}}' if attrs else ''}{comment}"


def node_attributes(node: Node) -> dict[str, Any]:
    """The operator's attributes and the epilogue by name; defaults are omitted."""
    found = node.op.attributes()
    return found if node.epilogue is None else {**found, "epilogue": node.epilogue}


def attr_text(value: Any) -> str:
    """The text of an attribute's value; lists and tuples have the same text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Expr):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, bytes):
        return f'bytes "{base64.b64encode(value).decode()}"'
    if isinstance(value, DType):
        return value.short
    if isinstance(value, TensorType):
        return _type(value)
    if isinstance(value, View):
        return f"view {attr_text(value.shape)} {attr_text(value.strides)} {value.offset}"
    if isinstance(value, list | tuple | np.ndarray):
        return f"[{', '.join(map(attr_text, value))}]"
    raise InputError(f"an attribute of type {type(value).__name__} has no text form: {value!r}")


def _name(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _ref(v: Value | None) -> str:
    return "-" if v is None else f"%{_name(v.name)}"


def _type(t: TensorType) -> str:
    return str(t) if t.place == OPENCL else f"{t} @{t.place}"


def _new_constants(values: Any, listed: set[Value]) -> list[str]:
    lines = []
    for v in values:
        if v is not None and v.is_const and v not in listed:
            listed.add(v)
            lines.append(f"    const {_ref(v)}: {_type(v.type)} = {_data_text(v.data)}")
    return lines


def _data_text(data: np.ndarray[Any, Any]) -> str:
    flat, dtype = data.ravel(), DType.of(data)
    if dtype.is_float:
        numbers = [float(str(v)) for v in flat[: LISTED + 1]]  # the shortest text with the same value in this type
    else:
        numbers = flat[: LISTED + 1].tolist()
    known = dtype.is_float or dtype.is_int or dtype in (DType.BOOL, DType.STRING)
    if known and flat.size <= LISTED:
        return attr_text(numbers)
    if known and bool((flat == flat[0]).all()):
        return f"fill {attr_text(numbers[0])}"
    raw = repr(flat.tolist()).encode() if flat.dtype.hasobject else np.ascontiguousarray(flat).tobytes()
    return f"checksum {zlib.crc32(raw)}"


# ---------------------------------------------------------------------------------------------------------------
# Parsing


def parse_graph(text: str) -> Graph:
    """The graph in `text`; InputError names the line and the expected token."""
    graph: Graph | None = None
    known: dict[str, Value] = {}
    done = False
    for number, line in enumerate(text.splitlines(), 1):
        tokens = Tokens(line, f"line {number} of the graph")
        if tokens.at_end():
            continue
        if done:
            raise tokens.error("the end of the text")
        if graph is None:
            graph = _parse_head(tokens, known)
        elif tokens.accept("}"):
            done = True
        elif tokens.accept_word("const"):
            _parse_constant(tokens, known)
        elif tokens.accept_word("return"):
            graph.outputs = tokens.items(lambda t: _use(t, known), until=None)
        else:
            graph.nodes.append(_parse_node(tokens, known))
        if not tokens.at_end():
            raise tokens.error("the end of the line")
    if graph is None or not done:
        raise InputError("the text of a graph starts with 'graph name(inputs) {' and ends with '}'")
    return graph


def _parse_head(tokens: Tokens, known: dict[str, Value]) -> Graph:
    tokens.expect_word("graph")
    graph = Graph(tokens.name())
    tokens.expect("(")

    def graph_input(t: Tokens) -> Value:
        name = t.value()
        t.expect(":")
        return _define(t, Value(name, _parse_type(t)), known)

    graph.inputs = tokens.items(graph_input, until=")")
    tokens.expect("{")
    return graph


def _define(tokens: Tokens, v: Value, known: dict[str, Value]) -> Value:
    if v.name in known:
        raise tokens.problem(f"%{v.name} is defined again")
    known[v.name] = v
    return v


def _use(tokens: Tokens, known: dict[str, Value]) -> Value:
    name = tokens.value()
    if name not in known:
        raise tokens.problem(f"%{name} is used before it is defined")
    return known[name]


def _parse_type(tokens: Tokens) -> TensorType:
    dtype = _parse_dtype(tokens, tokens.word())
    tokens.expect("[")
    shape = tuple(tokens.items(lambda t: t.integer(), until="]"))
    place = tokens.place()
    return TensorType(dtype, shape, OPENCL if place is None else _parse_place(tokens, place))


def _parse_dtype(tokens: Tokens, word: str) -> DType:
    try:
        return DType.parse(word)
    except ValueError as e:
        raise tokens.problem(str(e)) from None


def _parse_place(tokens: Tokens, text: str) -> Place:
    target, *rest = text.split("/")
    layout = _LAYOUTS.get(rest[-1]) if rest else None
    names = rest[:-1] if layout is not None else rest
    if target not in ("host", "opencl") or len(names) > 1:
        raise tokens.problem(f"'{text}' is not a place; an example is opencl/f16/NC4HW4, whose middle part is optional")
    precision = _parse_dtype(tokens, names[0]) if names else None
    return Place(Target(target), layout or FLAT, precision)


def _parse_constant(tokens: Tokens, known: dict[str, Value]) -> None:
    name = tokens.value()
    tokens.expect(":")
    t = _parse_type(tokens)
    tokens.expect("=")
    _define(tokens, Value(name, t, _parse_data(tokens, t)), known)


def _parse_data(tokens: Tokens, t: TensorType) -> np.ndarray[Any, Any]:
    if tokens.accept_word("seed") or tokens.accept_word("checksum"):
        return _arbitrary(t, tokens.integer())
    if tokens.accept_word("fill"):
        return np.full(t.shape, _parse_attr(tokens)).astype(t.dtype.np)
    listed = _parse_attr(tokens)
    if not isinstance(listed, tuple) or len(listed) != t.count:
        raise tokens.problem(f"{t} needs a list of {t.count} elements")
    return np.array(listed, t.dtype.np).reshape(t.shape)


def _arbitrary(t: TensorType, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if t.dtype.is_float:
        return np.asarray(rng.standard_normal(t.shape)).astype(t.dtype.np)
    return np.asarray(rng.integers(0, 2 if t.dtype is DType.BOOL else 8, t.shape)).astype(t.dtype.np)


def _parse_attr(tokens: Tokens) -> Any:
    if tokens.accept("["):
        return tuple(tokens.items(_parse_attr, until="]"))
    text = tokens.accept_string()
    if text is not None:
        return text
    number = tokens.accept_number()
    if number is not None:
        return number
    if tokens.accept_word("bytes"):
        return base64.b64decode(tokens.accept_string() or "")
    if tokens.accept_word("view"):
        tokens.expect("[")
        shape = tokens.items(lambda t: t.integer(), until="]")
        tokens.expect("[")
        return View(tuple(shape), tuple(tokens.items(lambda t: t.integer(), until="]")), tokens.integer())
    for word, value in (("true", True), ("false", False), ("none", None)):
        if tokens.accept_word(word):
            return value
    if tokens.comes("[", after=1):
        return _parse_type(tokens)
    return _parse_dtype(tokens, tokens.word())


def _parse_node(tokens: Tokens, known: dict[str, Value]) -> Node:
    def output(t: Tokens) -> tuple[str, TensorType | None]:
        name = t.value()
        return name, _parse_type(t) if t.accept(":") else None

    outputs = tokens.items(output, until="=")
    word = tokens.word()
    if word not in all_ops():
        raise tokens.problem(f"there is no operator '{word}'")
    tokens.expect("(")
    inputs = tokens.items(lambda t: None if t.accept("-") else _use(t, known), until=")")
    attrs: dict[str, Any] = {}
    if tokens.accept("{"):

        def attribute(t: Tokens) -> tuple[str, Any]:
            key = t.word()
            t.expect("=")
            return key, _parse_attr(t)

        attrs = dict(tokens.items(attribute, until="}"))
    types = [None if v is None else v.type for v in inputs]
    if "expr" in attrs:
        attrs["expr"] = _parse_expr(tokens, attrs["expr"], [t.dtype for t in types if t is not None])
    epilogue_text = attrs.pop("epilogue", None)
    try:
        op = make_op(word, attrs)
    except InputError as e:
        raise tokens.problem(str(e)) from None
    made = Node(op, inputs, [], name=tokens.comment())
    inferred = made.infer()
    if epilogue_text is not None:
        if not op.takes_epilogue:
            raise tokens.problem(f"{word} takes no epilogue")
        operands = [t.dtype for t in types[op.arity :] if t is not None]
        made.epilogue = _parse_expr(tokens, epilogue_text, [op.sums or inferred[0].dtype, *operands])
        inferred = made.infer()
    if len(outputs) > len(inferred):
        raise tokens.problem(f"{word} has {len(inferred)} outputs, got {len(outputs)}")
    values = []
    for (name, said), found in zip(outputs, inferred, strict=False):
        if said is not None and not said.fits(found):
            raise tokens.problem(f"%{name} is said to be {said}, but {word} gives {found}")
        values.append(_define(tokens, Value(name, said or found), known))
    return made.with_(outputs=values)


def _parse_expr(tokens: Tokens, text: Any, dtypes: list[DType]) -> Expr:
    try:
        return parse_expr(text, dtypes)
    except (ValueError, TypeError, IndexError, AttributeError) as e:
        raise tokens.problem(f"{text!r} is not an expression of {len(dtypes)} operands: {e}") from None
