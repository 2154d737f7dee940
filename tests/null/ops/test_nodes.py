"""Operators with typed attributes, what a node keeps when a pass puts another in its place, and what no pass may do."""

from __future__ import annotations

import ast
import dataclasses
import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

import opalite
from opalite.errors import CheckError, InputError
from opalite.expr.trace_function import trace
from opalite.ir import DType
from opalite.ir.graph import Node, Origin
from opalite.ir.precision import Precision
from opalite.ops.conv import Conv, Convolution
from opalite.ops.data_movement import Reshape, Transpose
from opalite.ops.integer_conv_matmul import IntegerConv
from opalite.ops.normalize import Normalize
from opalite.ops.operator import Op, all_ops, make_op, register_op
from opalite.passes.fusion.fold_into_conv import fold_affine
from opalite.passes.fusion.fuse_elementwise import fuse_elementwise
from opalite.passes.rewrite_driver import Context, run_rule
from opalite.tune.database_files import SHIPPED
from opalite.tune.export_json import from_json

from ...helpers.graphs import GraphMaker

ROOT = Path(opalite.__file__).parent
CONV = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}


def conv_node() -> Node:
    g = GraphMaker()
    g.conv("conv1", g.input("x", 1, 3, 8, 8), 4)
    return g.graph.nodes[0]


# Operators


@pytest.mark.parametrize("name", all_ops())
def test_an_operator_is_a_frozen_dataclass(name: str) -> None:
    cls: Any = all_ops()[name]
    assert cls.name == name
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    assert cls.__hash__ is not None
    assert "__slots__" in vars(cls)


def test_equal_attributes_are_equal_operators() -> None:
    conv = make_op("Conv", CONV)
    assert conv == Conv((1, 1), (1, 1, 1, 1), (1, 1), 1)
    assert hash(conv) == hash(make_op("Conv", CONV))
    assert conv != make_op("IntegerConv", CONV)
    assert conv != replace(Conv(**CONV), group=2)
    with pytest.raises(FrozenInstanceError):
        conv.group = 2  # type: ignore[attr-defined]


def test_attributes_known_by_name_are_checked() -> None:
    assert make_op("Transpose", {"perm": [1, 0]}) == Transpose((1, 0))
    with pytest.raises(
        InputError, match=r"Conv has no attribute stride; it has strides, pads, dilations, group, exact"
    ):
        make_op("Conv", {**CONV, "stride": (1, 1)})
    with pytest.raises(InputError, match="Transpose needs the attribute perm"):
        make_op("Transpose", {})
    with pytest.raises(InputError, match="PlaceCast has no attribute x; it has none"):
        make_op("PlaceCast", {"x": 1})


def test_attributes_at_their_defaults_are_left_out_of_texts() -> None:
    assert make_op("Conv", CONV).attributes() == CONV
    assert Conv(**CONV, exact=True).attributes() == {**CONV, "exact": True}
    assert Normalize("layer", 1e-5, axis=2).attributes() == {"kind": "layer", "epsilon": 1e-5, "axis": 2}


def test_register_refuses_what_is_no_dataclass_or_registered() -> None:
    with pytest.raises(ValueError, match="Plain is not a dataclass"):
        register_op(type("Plain", (Op,), {}))
    with pytest.raises(ValueError, match="Conv is registered twice"):
        register_op(Conv)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.json")), ids=lambda p: p.stem)
def test_shipped_tuning_names_attributes_as_operators_do(path: Path) -> None:
    """Else no entry would be found: a signature holds an operator's attributes as text."""
    for signature in {e.node for e in from_json(path.read_text())}:
        form = signature.rpartition(" | ")[0]
        name, _, text = form.split(" ", 2) if form.count(" ") > 1 else (form.split(" ")[0], "", "")
        text = re.split(r" (?:epilogue=|expr=|half sums)", f"{text} ")[0].strip()
        given = dict(re.findall(r"(\w+)=(\([^)]*\)|[^,]+)", text))
        held: dict[str, Any] = {}
        for key, value in given.items():
            try:
                held[key] = ast.literal_eval(value)
            except ValueError:
                held[key] = value  # text
        own = make_op(name, held).attributes() if name != "Elementwise" else held
        assert ",".join(f"{k}={v}" for k, v in sorted(own.items())) == text, signature


# Nodes


def test_as_gives_the_typed_operator_or_names_the_node() -> None:
    node = conv_node()
    assert node.as_(Conv) is node.op
    assert node.as_(Convolution).group == 1
    with pytest.raises(CheckError, match="Conv node 'conv1' computes Conv; IntegerConv was expected"):
        node.as_(IntegerConv)


def test_with_keeps_the_rest() -> None:
    node = conv_node()
    node.epilogue = trace(lambda v: v.call("max", 0.0), DType.FLOAT32)
    node.precision, node.precision_reason = Precision.FP16, "the policy says so"
    wide = replace(node.as_(Conv), pads=(2, 2, 2, 2))
    made = node.with_(op=wide)
    assert made.op is wide
    assert made.inputs == node.inputs
    assert made.inputs is not node.inputs
    assert (made.name, made.origin, made.epilogue) == ("conv1", (Origin("Conv", "conv1"),), node.epilogue)
    assert (made.precision, made.precision_reason) == (Precision.FP16, "the policy says so")
    assert made.choice is None
    assert made.y is not node.y
    assert made.y.type == node.y.type
    assert (made.y.producer, node.y.producer) == (made, node)
    assert node.with_(epilogue=None).epilogue is None


def test_a_node_beside_another_has_its_name_and_no_origin() -> None:
    node = conv_node()
    made = node.make_helper(Reshape((4, 64)), [node.y])
    assert (made.name, made.origin, made.label) == ("conv1", (), "Reshape node 'conv1'")
    assert made.y.shape == (4, 64)
    assert made.y.producer is made


def test_fusion_joins_what_nodes_came_from() -> None:
    g = GraphMaker()
    x = g.conv("conv", g.input("x", 1, 3, 8, 8), 4)
    for name, fn in (("bn", "mul"), ("shift", "add")):
        x = g.map(name, fn, x, g.noise(f"{name}.c", 1, 4, 1, 1))
    for name, fn in (("up", "exp"), ("root", "sqrt"), ("end", "tanh")):
        x = g.map(name, fn, x)
    for node in g.graph.nodes:
        node.origin = (Origin(node.name.capitalize(), node.name),)
    graph = g.done(x)
    run_rule(graph, "fuse_elementwise", fuse_elementwise, Context(check=True))
    run_rule(graph, "fold_affine", fold_affine, Context(check=True))
    conv, tail = graph.nodes
    assert [o.name for o in tail.origin] == ["bn", "shift", "up", "root", "end"]
    assert [o.name for o in conv.origin] == ["conv", "bn", "shift", "up", "root", "end"]
    assert conv.label == "Conv node 'conv'"  # more operators than a name has room for


# What the source may not do


@pytest.mark.parametrize("folder", ["passes", "layout"])
def test_passes_build_no_bare_node(folder: str) -> None:
    """`Node.with_` and `Node.beside` carry on names, origins and precision, which a bare Node would lose."""
    for path in sorted((ROOT / folder).glob("*.py")):
        for call in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)):
            assert ast.unparse(call.func) != "Node", f"{path}:{call.lineno}: use node.with_ or node.beside"


def test_no_attribute_is_read_by_its_name() -> None:
    """What is read as op.group or node.as_(Conv).group is seen by the type checker; operators are told by class."""
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] == "importer":  # attributes of ONNX nodes
            continue
        text = path.read_text()
        for found in re.finditer(
            r"\bnode\.attrs\b|\.op\.name [!=]=|\.op\.name (?:not )?in\b|match \w+\.op\.name", text
        ):
            line = text.count("\n", 0, found.start()) + 1
            raise AssertionError(f"{path}:{line}: {found[0]}")
