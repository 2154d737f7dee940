"""What is changed in a valid model, so that the document forbids it and onnxruntime may run it all the same.

Ranks by sizes of 1, element types, numbers that steer an operator, inputs left out or put in between, attributes and
versions, and the form of the file (order, names, declared types). Longer than 400 lines: a list of changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

from onnx import AttributeProto, TensorProto, defs, helper

from .builder import LARGEST, Rejected
from .case import Array, Feeds
from .protos import copy_model

STEERING = ("int64", "int32")
FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint32", "uint64", "bool")


class Draft:
    """A model that is being changed: its message, and what its inputs and constants hold."""

    def __init__(self, seed: int, model: Any, feeds: Feeds) -> None:
        self.rng = np.random.default_rng(seed)
        self.model = copy_model(model)
        self.feeds = dict(feeds)
        self.told: list[str] = []

    @property
    def graph(self) -> Any:
        return self.model.graph

    def pick(self, items: Any) -> Any:
        """One of `items`; Rejected where there is none."""
        found = list(items)
        if not found:
            raise Rejected("nothing to change")
        return found[int(self.rng.integers(len(found)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def node(self) -> Any:
        """The node that is changed: mostly the last one, which is what the small graph was made for."""
        nodes = [n for n in self.graph.node if n.op_type != "Constant"]
        return nodes[-1] if nodes and self.chance(0.7) else self.pick(nodes)

    def contents(self) -> dict[str, Array]:
        """What inputs and initializers hold, by name."""
        return {**{t.name: nph.to_array(t) for t in self.graph.initializer}, **self.feeds}

    def read_by(self, node: Any) -> list[str]:
        """Names among these that `node` reads."""
        there = self.contents()
        return [i for i in dict.fromkeys(node.input) if i in there]

    def set(self, name: str, array: Array, declared: bool = True) -> None:
        """Let the input or initializer `name` hold `array`. declared: whether an input's shape is."""
        for t in self.graph.initializer:
            if t.name == name:
                t.CopyFrom(nph.from_array(array, name))
        if name in self.feeds:
            self.feeds[name] = array
        for v in self.graph.input:
            if v.name == name:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                v.CopyFrom(helper.make_tensor_value_info(name, kind, list(array.shape) if declared else None))
        for v in self.graph.output:  # whatever follows from it
            v.CopyFrom(helper.make_empty_tensor_value_info(v.name))
        del self.graph.value_info[:]


Edit = Callable[[Draft], str]
EDITS: list[tuple[Edit, float]] = []


def edit(weight: float) -> Callable[[Edit], Edit]:
    """Decorator: enter a change, which says what it did; Rejected where it does not apply."""

    def enter(change: Edit) -> Edit:
        EDITS.append((change, weight))
        return change

    return enter


# Inputs


@edit(6)
def other_rank(d: Draft) -> str:
    """A size of 1 more or less."""
    node = d.node()
    name = d.pick(d.read_by(node))
    array = d.contents()[name]
    shape = list(array.shape)
    ones = [i for i, n in enumerate(shape) if n == 1]
    if ones and d.chance(0.5):
        del shape[d.pick(ones)]
    else:
        shape.insert(d.pick((0, len(shape))) if d.chance(0.8) else d.pick(range(len(shape) + 1)), 1)
    d.set(name, array.reshape(shape), d.chance(0.6))
    return f"'{name}' of {node.op_type}: {array.shape} is {tuple(shape)}"


@edit(2)
def one_element(d: Draft) -> str:
    """A tensor of one element in the place of a longer one, or a longer one in the place of one element."""
    node = d.node()
    name = d.pick(d.read_by(node))
    array = d.contents()[name]
    if array.size > 1:
        made = array.reshape(-1)[:1].reshape(d.pick(((), (1,), (1,) * array.ndim)))
    else:
        made = np.repeat(array.reshape(-1)[:1], int(d.rng.integers(2, 4)))
    d.set(name, made, d.chance(0.6))
    return f"'{name}' of {node.op_type}: {array.shape} is {made.shape}"


@edit(1.5)
def other_size(d: Draft) -> str:
    """One size larger, smaller or 0."""
    node = d.node()
    name = d.pick(d.read_by(node))
    array = d.contents()[name]
    axis = d.pick(range(array.ndim))
    size = max(0, d.pick((0, 0, 1, array.shape[axis] - 1, array.shape[axis] + 1)))
    if not array.shape[axis]:
        raise Rejected("an empty tensor")
    made = np.take(array, np.arange(size) % array.shape[axis], axis)
    if made.size > LARGEST:
        raise Rejected("too large")
    d.set(name, made, d.chance(0.6))
    return f"'{name}' of {node.op_type}: {array.shape} is {made.shape}"


@edit(5)
def other_type(d: Draft) -> str:
    """The element type of one input."""
    node = d.node()
    name = d.pick(d.read_by(node))
    array = d.contents()[name]
    if array.dtype.kind not in "fiub":
        raise Rejected("no number")
    kinds = FLOATS if array.dtype.kind == "f" else INTEGERS if d.chance(0.3) else STEERING
    if d.chance(0.06):
        kinds = FLOATS + INTEGERS
    kind = d.pick(k for k in kinds if k != str(array.dtype))
    d.set(name, array.astype(kind))
    return f"'{name}' of {node.op_type}: {array.dtype} is {kind}"


@edit(2)
def all_types(d: Draft) -> str:
    """The element type of all inputs that have it."""
    kinds = sorted({str(a.dtype) for a in d.contents().values() if a.dtype.kind in "fiub"})
    old = d.pick(kinds)
    new = d.pick(k for k in (FLOATS if old in FLOATS else INTEGERS) if k != old)
    for name, array in d.contents().items():
        if str(array.dtype) == old:
            d.set(name, array.astype(new))
    return f"all {old} is {new}"


@edit(4)
def steering_number(d: Draft) -> str:
    """A number of a small tensor of integers: an axis, a size, a start, an index."""
    node = d.node()
    small = [n for n in d.read_by(node) if (a := d.contents()[n]).dtype.kind in "iu" and 0 < a.size <= 8]
    name = d.pick(small)
    array = d.contents()[name].copy()
    at = int(d.rng.integers(array.size))
    old = int(array.reshape(-1)[at])
    new = d.pick((-1, 0, 1, 2, old + 1, old - 1, -old, -old - 1, old - 4, 1 << 31, -(1 << 40), 1 << 62))
    info = np.iinfo(array.dtype)
    array.reshape(-1)[at] = min(max(new, info.min), info.max)
    d.set(name, array)
    return f"'{name}' of {node.op_type}: {old} at {at} is {new}"


@edit(2)
def left_out(d: Draft) -> str:
    """An input left out, with an empty name or from the end."""
    node = d.node()
    at = d.pick(range(1, len(node.input)))
    name = node.input[at]
    node.input[at] = ""
    if at == len(node.input) - 1 and d.chance(0.7):
        del node.input[at]
    return f"{node.op_type} without input {at} '{name}'"


@edit(1)
def empty_names(d: Draft) -> str:
    """Empty names after the last input or output."""
    node = d.node()
    names = node.input if d.chance(0.7) else node.output
    count = int(d.rng.integers(1, 3))
    names.extend([""] * count)
    return f"{count} empty names after the {'inputs' if names is node.input else 'outputs'} of {node.op_type}"


@edit(0.7)
def empty_tensor(d: Draft) -> str:
    """A tensor of nothing in the place of an input that may be absent."""
    node = d.node()
    at = d.pick(range(1, max(len(node.input), 2) + 1))
    like = [a for n, a in d.contents().items() if n in node.input]
    dtype = d.pick(like).dtype if like else np.dtype("f4")
    name = f"nothing{len(d.graph.initializer)}"
    while len(node.input) < at:
        node.input.append("")
    if at < len(node.input):
        node.input[at] = name
    else:
        node.input.append(name)
    d.graph.initializer.append(nph.from_array(np.empty(0, dtype), name))
    return f"{node.op_type} reads an empty {dtype} as input {at}"


@edit(1)
def known_or_not(d: Draft) -> str:
    """An input that becomes a constant, or a constant that becomes an input."""
    name = d.pick(d.read_by(d.node()))
    array = d.contents()[name]
    if name in d.feeds:
        d.feeds.pop(name)
        kept = [v for v in d.graph.input if v.name != name]
        del d.graph.input[:]
        d.graph.input.extend(kept)
        d.graph.initializer.append(nph.from_array(array, name))
        return f"'{name}' is constant"
    rest = [t for t in d.graph.initializer if t.name != name]
    del d.graph.initializer[:]
    d.graph.initializer.extend(rest)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    d.graph.input.append(helper.make_tensor_value_info(name, kind, list(array.shape) if d.chance(0.5) else None))
    d.feeds[name] = array
    return f"'{name}' is an input"


# Attributes and versions


@edit(3)
def other_attribute(d: Draft) -> str:
    """A number of an attribute, or how many numbers it has."""
    node = d.node()
    a = d.pick(x for x in node.attribute if x.type in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT))
    before = helper.get_attribute_value(a)
    if a.type == AttributeProto.INT:
        a.i = d.pick((-1, 0, 1, 2, a.i + 1, -a.i, -a.i - 1))
    elif a.type == AttributeProto.FLOAT:
        a.f = d.pick((0.0, -1.0, 1.0, 0.5, 100.0))
    elif d.chance(0.5) or not len(a.ints):
        a.ints.append(d.pick((0, 1, a.ints[-1] if len(a.ints) else -1)))
    elif d.chance(0.4):
        del a.ints[-1]
    else:
        at = d.pick(range(len(a.ints)))
        a.ints[at] = d.pick((-1, 0, 1, 2, a.ints[at] + 1, a.ints[at] - 4))
    return f"{node.op_type}.{a.name}: {before} is {helper.get_attribute_value(a)}"


@edit(1.5)
def no_attribute(d: Draft) -> str:
    """An attribute taken away."""
    node = d.node()
    a = d.pick(node.attribute)
    node.attribute.remove(a)
    return f"{node.op_type} without {a.name}"


@edit(2)
def attribute_type(d: Draft) -> str:
    """A number where a list is due, and the reverse; whole numbers as floats."""
    node = d.node()
    a = d.pick(x for x in node.attribute if x.type in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT))
    value = helper.get_attribute_value(a)
    if a.type == AttributeProto.INTS:
        value = int(value[0]) if len(value) == 1 and d.chance(0.6) else [float(v) for v in value]
    elif a.type == AttributeProto.INT:
        value = [int(value)] if d.chance(0.4) else float(value)
    else:
        value = int(value) if d.chance(0.7) and np.isfinite(value) else [value]
    node.attribute.remove(a)
    node.attribute.append(helper.make_attribute(a.name, value, attr_type=None if value != [] else AttributeProto.INTS))
    return f"{node.op_type}.{a.name} is {value!r}"


@cache
def _attributes(op: str, domain: str) -> dict[str, Any]:
    """Attributes by name that any version of an operator has."""
    found = {}
    for s in defs.get_all_schemas_with_history():
        if s.name == op and s.domain == domain:
            found.update(s.attributes)
    return found


_VALUES: dict[int, tuple[Any, ...]] = {
    AttributeProto.INT: (0, 1, -1),
    AttributeProto.INTS: ([0], [1], [0, 0], [1, 1], [0, 0, 0, 0], [-1]),
    AttributeProto.FLOAT: (0.0, 1.0, 0.5),
    AttributeProto.FLOATS: ([1.0], [0.5, 0.5]),
    AttributeProto.STRING: ("NOTSET", "SAME_UPPER", "VALID", "constant", "nearest", "float"),
}


@edit(2)
def more_attribute(d: Draft) -> str:
    """An attribute that another version knows, or none does."""
    node = d.node()
    there = {a.name for a in node.attribute}
    known = {n: int(a.type.value) for n, a in _attributes(node.op_type, node.domain).items() if n not in there}
    known = {n: t for n, t in known.items() if t in _VALUES}
    name, kind = d.pick(known.items()) if known and d.chance(0.9) else ("extra", AttributeProto.INT)
    value = d.pick(_VALUES[kind])
    node.attribute.append(helper.make_attribute(name, value))
    return f"{node.op_type} with {name}={value!r}"


@edit(2.5)
def other_opset(d: Draft) -> str:
    """Another version of ai.onnx, the operators as they are."""
    entry = d.pick(o for o in d.model.opset_import if o.domain in ("", "ai.onnx"))
    before = entry.version
    entry.version = int(d.rng.integers(1, 26)) if d.chance(0.8) else d.pick((26, 27, 99))
    return f"opset {before} is {entry.version}"


@edit(0.7)
def other_imports(d: Draft) -> str:
    """Domains under another name, named twice, or not at all."""
    imports = d.model.opset_import
    entry = d.pick(imports)
    kind = int(d.rng.integers(3))
    if kind == 0:
        name = entry.domain
        imports.remove(entry)
        return f"domain '{name}' is not imported"
    if kind == 1:
        imports.add(domain=entry.domain, version=entry.version)
        return f"domain '{entry.domain}' is imported twice"
    for o in imports:
        o.domain = {"": "ai.onnx", "ai.onnx": ""}.get(o.domain, o.domain)
    for n in d.graph.node:
        if d.chance(0.5):
            n.domain = {"": "ai.onnx", "ai.onnx": ""}.get(n.domain, n.domain)
    return "ai.onnx by its name"


@edit(0.5)
def other_ir(d: Draft) -> str:
    """Another IR version."""
    d.model.ir_version = int(d.rng.integers(1, 14))
    return f"IR version {d.model.ir_version}"


# The form of the file


@edit(0.7)
def unsorted(d: Draft) -> str:
    """Nodes in another order."""
    nodes = list(d.graph.node)[::-1]
    if len(nodes) < 2:
        raise Rejected("one node")
    del d.graph.node[:]
    d.graph.node.extend(nodes)
    return "nodes are reversed"


@edit(0.7)
def defaulted(d: Draft) -> str:
    """An initializer that is an input too."""
    t = d.pick(d.graph.initializer)
    d.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims) if d.chance(0.6) else None))
    return f"initializer '{t.name}' is an input too"


@edit(0.5)
def twice(d: Draft) -> str:
    """A tensor, a node's name or an unused input that is there twice."""
    kind = int(d.rng.integers(3))
    if kind == 0:
        t = d.pick(d.graph.initializer)
        d.graph.initializer.append(t)
        return f"initializer '{t.name}' is there twice"
    if kind == 1:
        for n in d.graph.node:
            n.name = "same"
        return "all nodes have one name"
    d.graph.output.append(d.pick(d.graph.output))
    return "an output is there twice"


@edit(1.5)
def declared_wrongly(d: Draft) -> str:
    """Shapes of outputs and values on the way that are not theirs."""
    names = [o for n in d.graph.node for o in n.output if o]
    name = d.pick(names)
    kind = d.pick((TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16))
    shape = d.pick((None, [], [1], [3, 5], ["n"], [-1], [0]))
    info = helper.make_tensor_value_info(name, kind, shape)
    if d.chance(0.3):
        info = helper.make_tensor_value_info(name, 0, shape)
    for o in d.graph.output:
        if o.name == name:
            if d.chance(0.7):
                info.type.tensor_type.elem_type = o.type.tensor_type.elem_type
            o.CopyFrom(info)
            return f"output '{name}' is declared as {kind}{shape}"
    d.graph.value_info.append(info)
    return f"'{name}' is declared as {kind}{shape}"


@edit(0.7)
def unused(d: Draft) -> str:
    """Inputs, initializers and nodes that nothing needs."""
    kind = int(d.rng.integers(3))
    if kind == 0:
        d.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, [2]))
        d.feeds["unused"] = np.ones(2, np.float32)
        return "an input that nothing reads"
    if kind == 1:
        d.graph.initializer.append(nph.from_array(np.ones(2, np.float32), "unused"))
        return "an initializer that nothing reads"
    name = d.pick(d.contents())
    d.graph.node.append(helper.make_node("Identity", [name], ["unused"]))
    return "a node that nothing needs"


@edit(0.8)
def more_outputs(d: Draft) -> str:
    """An output more than the node has, if the schema has one."""
    node = d.node()
    name = f"more{len(node.output)}"
    node.output.append(name)
    if d.chance(0.6):
        d.graph.output.append(helper.make_empty_tensor_value_info(name))
    return f"{node.op_type} has output {len(node.output) - 1}"
