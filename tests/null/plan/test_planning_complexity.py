"""Planning takes work in proportion to the nodes: calls are counted for graphs of n and of 2n nodes, not seconds."""

from __future__ import annotations

import cProfile
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnx
from onnx import TensorProto, helper, numpy_helper
from opalite.importer import load_model
from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.tensor_type import TensorType
from opalite.ops import conv
from opalite.passes import pipeline, rewrite_driver
from opalite.plan import planner
from opalite.run.model.imported_model import ImportedModel
from opalite.run.model.model_inputs_outputs import example_shapes

FEW, MANY = 24, 48  # layers
MOST = 2.25
"""Times as many calls that twice the layers may take."""


class Net:
    """Nodes and constants of a model."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.rng = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node; its output."""
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.constants)}"
        self.constants[name] = self.rng.standard_normal(shape).astype(np.float32) / 8
        return name

    def model(self, shape: list[Any], *outputs: str) -> onnx.ModelProto:
        """A model whose input `x` has that shape."""
        value, float_ = helper.make_tensor_value_info, TensorProto.FLOAT
        held = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        graph = helper.make_graph(
            self.nodes, "g", [value("x", float_, shape)], [value(o, float_, None) for o in outputs], held
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def elementwise(n: int) -> onnx.ModelProto:
    net, x = Net(), "x"
    for i in range(6 * n):
        x = net.add("Sin" if i % 2 else "Cos", x)
    return net.model([8], x)


def depthwise(n: int) -> onnx.ModelProto:
    """Blocks that turn pictures around a depthwise convolution, with a residual."""
    net, x = Net(), "x"
    for _ in range(n):
        t = net.add("Transpose", x, perm=[0, 3, 1, 2])
        t = net.add("Conv", t, net.weight(8, 1, 3, 3), group=8, pads=[1, 1, 1, 1])
        t = net.add("Transpose", t, perm=[0, 2, 3, 1])
        t = net.add("LayerNormalization", t, net.weight(8), net.weight(8))
        x = net.add("Add", net.add("MatMul", t, net.weight(8, 8)), x)
    return net.model([1, 6, 6, 8], x)


def branches(n: int) -> onnx.ModelProto:
    """Two lines of convolutions that add what the other has."""
    net, a, b = Net(), "x", "x"
    for _ in range(n):
        left = net.add("Relu", net.add("Conv", a, net.weight(8, 8, 3, 3), pads=[1] * 4))
        right = net.add("Relu", net.add("Conv", b, net.weight(8, 8, 1, 1)))
        b = net.add("Add", left, right)
        a = net.add("Add", b, a)
    return net.model([1, 8, 6, 6], a, b)


def transformer(n: int, open_sizes: bool = False) -> onnx.ModelProto:
    net, x = Net(), "x"
    net.constants["heads"] = np.array([0, 0, 2, 8])
    net.constants["joined"] = np.array([0, 0, 16])
    for _ in range(n // 4):
        y = net.add("LayerNormalization", x, net.weight(16), net.weight(16))
        q, k, v = (
            net.add("Transpose", net.add("Reshape", net.add("MatMul", y, net.weight(16, 16)), "heads"), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        y = net.add("MatMul", net.add("Softmax", net.add("MatMul", q, k)), v)
        y = net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3]), "joined")
        x = net.add("Add", net.add("MatMul", y, net.weight(16, 16)), x)
        y = net.add("LayerNormalization", x, net.weight(16), net.weight(16))
        x = net.add(
            "Add", net.add("MatMul", net.add("Relu", net.add("MatMul", y, net.weight(16, 32))), net.weight(32, 16)), x
        )
    return net.model(["batch", "length", 16] if open_sizes else [1, 8, 16], x)


def wide_concat(n: int) -> onnx.ModelProto:
    net = Net()
    net.constants["sizes"] = np.full(2 * n, 4)
    net.nodes.append(helper.make_node("Split", ["x", "sizes"], [f"s{i}" for i in range(2 * n)], axis=1))
    parts = [net.add("Softmax", f"s{i}") for i in range(2 * n)]
    return net.model([1, 8 * n], net.add("Concat", *parts, axis=1))


def nested_concats(n: int) -> onnx.ModelProto:
    net, whole, last = Net(), "x", "x"
    for _ in range(6 * n):  # chains are followed for 64 movements
        last = net.add("Softmax", last)
        whole = net.add("Concat", whole, last, axis=0)
    return net.model([1, 4], whole)


def slices(n: int) -> onnx.ModelProto:
    """Rows of one tensor, each by itself."""
    net, rows = Net(), []
    for i in range(4 * n):
        net.constants |= {f"from{i}": np.array([i]), f"to{i}": np.array([i + 1])}
        rows.append(net.add("Softmax", net.add("Slice", "x", f"from{i}", f"to{i}")))
    return net.model([4 * n, 4], net.add("Concat", *rows, axis=0))


def same_slices(n: int) -> onnx.ModelProto:
    net, last = Net(), []
    net.constants |= {"from": np.array([3]), "to": np.array([4])}
    x = net.add("Cos", net.add("Softmax", "x", axis=0))
    for _ in range(2 * n):
        last.append(net.add("Softmax", net.add("Slice", x, "from", "to")))
    return net.model([8, 4], *last)


def outputs(n: int) -> onnx.ModelProto:
    net = Net()
    x = net.add("MatMul", "x", net.weight(4, 4))
    every = [x]
    for i in range(2 * n):
        every.append(net.add("Sin" if i % 2 else "Cos", every[max(0, i - 1)]))
    return net.model([4, 4], *every)


def kept(n: int) -> onnx.ModelProto:
    """Values that live until their mirror images are computed."""
    net, x, line = Net(), "x", []
    for _ in range(4 * n):
        x = net.add("Softmax", x)
        line.append(x)
    for v in reversed(line[:-1]):
        x = net.add("MatMul", x, v)
    return net.model([4, 4], x)


def rows_moved(n: int) -> onnx.ModelProto:
    """Windows of rows, computed on row by row."""
    net, x = Net(), "x"
    for i in range(n):
        net.constants |= {"apart": np.array([2, 2, 2, 2, 16]), "together": np.array([16, 16])}
        t = net.add("Transpose", net.add("Reshape", x, "apart"), perm=[0, 2, 1, 3, 4] if i % 2 else [2, 1, 0, 3, 4])
        t = net.add("Reshape", t, "together")
        x = net.add("Add", net.add("MatMul", net.add("LayerNormalization", t, net.weight(16)), net.weight(16, 16)), t)
    return net.model([16, 16], x)


def sizes_computed(n: int) -> onnx.ModelProto:
    """Reshapes by shapes that are computed from an open size."""
    net, x = Net(), "x"
    net.constants |= {"first": np.array([0]), "rest": np.array([-1])}
    for _ in range(n):
        shape = net.add("Concat", net.add("Gather", net.add("Shape", x), "first"), "rest", axis=0)
        x = net.add("Add", net.add("Softmax", net.add("Reshape", x, shape)), x)
    return net.model(["rows", "columns"], x)


MODELS: dict[str, Callable[[int], onnx.ModelProto]] = {
    f.__name__: f
    for f in (
        elementwise,
        depthwise,
        branches,
        transformer,
        wide_concat,
        nested_concats,
        slices,
        same_slices,
        outputs,
        kept,
        rows_moved,
        sizes_computed,
    )
} | {"transformer_open": functools.partial(transformer, open_sizes=True)}


def device(name: str) -> DeviceInfo:
    return read_description(name)


def plan(model: onnx.ModelProto, info: DeviceInfo, tier: Any) -> planner.Planned:
    source = ImportedModel(model.SerializeToString())
    shapes = example_shapes(source.inputs)
    types = {a.name: TensorType(a.dtype, shapes[a.name]) for a in source.inputs if a.dtype is not None}
    return planner.plan(source.only_segment(types).graph, planner.PlanOptions(tier=tier), planner.Knowledge(info))


def calls(function: Callable[..., Any], *args: Any) -> int:
    """Calls of Python and of C that a call makes."""
    profiler = cProfile.Profile()
    profiler.runcall(function, *args)
    return sum(entry.callcount for entry in profiler.getstats())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "on, tier",
    [("pocl_avx512", "optimized"), ("pocl_avx512", "generic"), ("nvidia_h200", "optimized")],
)
def test_twice_the_layers_take_twice_the_calls(name: str, on: str, tier: str) -> None:
    info, build = device(on), MODELS[name]
    few, many = build(FEW), build(MANY)
    plan(many, info, tier)  # texts of kernels are read and compiled once
    once, twice = calls(plan, few, info, tier), calls(plan, many, info, tier)
    assert twice <= MOST * once, f"{once} calls for {FEW} layers, {twice} for {MANY}"


@pytest.mark.parametrize("name", MODELS)
def test_each_pass_asks_a_bounded_number_of_times(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pass sweeps the graph until its limit: what one sweep makes another must not turn back."""
    asked: Counter[str] = Counter()
    plain = rewrite_driver.run_rule

    def run_rule(graph: Any, name: str, rule: Any, ctx: Any) -> None:
        def counting(node: Any, sweep: Any) -> Any:
            asked[name] += 1
            return rule(node, sweep)

        plain(graph, name, counting, ctx)

    monkeypatch.setattr(pipeline, "run_rule", run_rule)
    model = MODELS[name](FEW)
    plan(model, device("pocl_avx512"), "optimized")
    nodes = len(model.graph.node)
    times = Counter(name for name, _ in pipeline.PORTABLE)
    for rule, count in asked.items():
        assert count <= 12 * (times[rule] or 1) * nodes, f"{rule} is asked {count} times for {nodes} nodes"
    assert sum(asked.values()) <= 130 * nodes


def test_contents_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: Counter[int] = Counter()
    held_on = []  # so that no number is given twice

    def is_finite(held: Any) -> bool:
        held_on.append(held)
        looked[id(held)] += 1
        return plain(held)

    plain = conv._is_finite
    monkeypatch.setattr(conv, "_is_finite", is_finite)
    plan(depthwise(FEW), device("pocl_avx512"), "optimized")
    assert len(looked) == FEW
    assert set(looked.values()) == {1}


def test_a_pool_of_channels_first_is_turned_once() -> None:
    """The mean over all pixels, which a flattening reads, turns back nothing: no pass may turn it again and again."""
    net = Net()
    t = net.add("Transpose", "x", perm=[0, 3, 1, 2])
    t = net.add("Flatten", net.add("GlobalAveragePool", t))
    model = net.model([1, 6, 6, 8], net.add("MatMul", t, net.weight(8, 3)))
    asked = [0]
    plain = rewrite_driver.apply_patches

    def apply_patches(*args: Any) -> None:
        asked[0] += 1
        plain(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite_driver, "apply_patches", apply_patches)
        plan(model, device("pocl_avx512"), "optimized")
    assert asked[0] < 20


@pytest.mark.parametrize("open_sizes", [False, True])
def test_names_are_found_at_once(open_sizes: bool) -> None:
    """Nodes that have no names of their own are called by their outputs."""

    def build(n: int) -> bytes:
        net, x = Net(), "x"
        for _ in range(n):
            x = net.add("Sin", x)
        return net.model(["N"] if open_sizes else [1], x).SerializeToString()

    load_model(build(MANY))
    few, many = build(500), build(1000)
    assert calls(load_model, many) <= MOST * calls(load_model, few)
