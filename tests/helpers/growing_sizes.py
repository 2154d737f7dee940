"""Models whose sizes are long expressions of their inputs' sizes: each size holds earlier ones several times."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx import TensorProto, helper, numpy_helper

STAGES = [(3, 2, 1), (3, 1, 2), (5, 2, 1), (3, 1, 1), (5, 2, 1), (3, 2, 1), (7, 3, 1), (5, 2, 1), (3, 2, 1), (5, 1, 1)]
"""Kernel, stride and dilation of convolutions, one after the other."""


class Writer:
    """Nodes and constants of a graph."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(5)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """An initializer."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        """An initializer of noise."""
        return self.constant((self._rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """A node; the name of its output."""
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def size(self, of: str, axis: int) -> str:
        """A dimension as a tensor of one element."""
        return self.add("Gather", self.add("Shape", of), self.constant(np.int64([axis])))

    def model(self, inputs: dict[str, list[Any]], outputs: dict[str, tuple[int, int]]) -> Any:
        """shapes of inputs; types and ranks of outputs."""
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
        results = [helper.make_tensor_value_info(n, t, [None] * rank) for n, (t, rank) in outputs.items()]
        graph = helper.make_graph(self.nodes, "sizes", ports, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def same_padding(stages: list[tuple[int, int, int]] | None = None, channels: int = 4) -> Any:
    """Convolutions with TensorFlow's padding "SAME", half of it before and the rest behind.

    It is computed in floats: max((ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0).
    """
    n = Writer()
    one, two, zero = n.constant(np.float32(1)), n.constant(np.float32(2)), n.constant(np.float32(0))
    none, x = n.constant(np.int64([0, 0])), "x"
    for at, (kernel, stride, dilation) in enumerate(STAGES if stages is None else stages):
        step, reach = n.constant(np.float32(stride)), n.constant(np.float32((kernel - 1) * dilation))
        before, behind = [], []
        for axis in (2, 3):
            size = n.add("Cast", n.size(x, axis), to=TensorProto.FLOAT)
            last = n.add("Mul", n.add("Sub", n.add("Ceil", n.add("Div", size, step)), one), step)
            pad = n.add("Max", n.add("Sub", n.add("Add", n.add("Add", last, reach), one), size), zero)
            half = n.add("Floor", n.add("Div", pad, two))
            before.append(n.add("Cast", half, to=TensorProto.INT64))
            behind.append(n.add("Cast", n.add("Sub", pad, half), to=TensorProto.INT64))
        padded = n.add("Pad", x, n.add("Concat", none, *before, none, *behind, axis=0))
        weight = n.weight(channels, channels if at else 3, kernel, kernel)
        y = n.add("Conv", padded, weight, strides=[stride] * 2, dilations=[dilation] * 2)
        x = n.add("Relu", y)
    n.add("Identity", x, out="y")
    return n.model({"x": ["n", 3, "h", "w"]}, {"y": (TensorProto.FLOAT, 4)})


def _halves(n: Writer, a: str, b: str, c: Any) -> str:
    """3 * a + a / 2 + b, small again by what is left of a division."""
    grown = n.add("Add", n.add("Mul", a, c(3)), n.add("Div", a, c(2)))
    return n.add("Add", n.add("Mod", n.add("Add", grown, b), c(61)), c(3))


def _squares(n: Writer, a: str, b: str, c: Any) -> str:
    return n.add("Add", n.add("Mod", n.add("Mul", a, n.add("Add", a, b)), c(97)), c(2))


def _quotients(n: Writer, a: str, b: str, c: Any) -> str:
    """Of sizes by sizes, which are not known to be no remainder."""
    whole = n.add("Div", n.add("Mul", a, n.add("Add", b, c(17))), n.add("Add", a, c(5)))
    return n.add("Add", n.add("Max", whole, n.add("Sub", c(40), a)), c(1))


def _extremes(n: Writer, a: str, b: str, c: Any) -> str:
    most = n.add("Max", n.add("Sub", c(50), a), n.add("Div", n.add("Mul", a, c(2)), c(3)))
    return n.add("Add", n.add("Min", most, n.add("Add", n.add("Sub", a, b), c(40))), c(2))


def _floats(n: Writer, a: str, b: str, c: Any) -> str:
    """Floats that are no ratios of integers."""
    x, y = (n.add("Cast", v, to=TensorProto.FLOAT) for v in (a, b))
    part = n.add("Mul", n.add("Div", x, y), n.constant(np.float32([0.37])))
    whole = n.add("Ceil", n.add("Add", part, n.add("Mul", x, n.constant(np.float32([0.71])))))
    return n.add("Add", n.add("Mod", n.add("Cast", whole, to=TensorProto.INT64), c(67)), c(4))


def _unrounded(n: Writer, a: str, b: str, c: Any) -> str:
    """A size in floats, of float64 and hundreds of operations, before it is whole again."""
    x = n.add("Cast", a, to=TensorProto.DOUBLE)
    y = n.add("Cast", b, to=TensorProto.DOUBLE)
    for _ in range(12):
        x = n.add("Add", n.add("Mul", x, n.constant(np.float64([0.9]))), n.add("Div", y, n.constant(np.float64([7]))))
    return n.add("Add", n.add("Cast", x, to=TensorProto.INT64), c(1))


def _overflow(n: Writer, a: str, b: str, c: Any) -> str:
    """A square of 64 bits, which wraps around, again and again."""
    return n.add("Mul", n.add("Add", a, c(3)), n.add("Add", a, b))


CHAINS = {
    "halves": _halves,
    "squares": _squares,
    "quotients": _quotients,
    "extremes": _extremes,
    "floats": _floats,
    "unrounded": _unrounded,
    "overflow": _overflow,
}


def size_chain(kind: str, steps: int = 40) -> Any:
    """A size that is computed in many steps, and rows of that number: x[0] + 1, again and again.

    The size is made small at the end, for chains that let it grow.
    """
    n = Writer()

    def number(value: int) -> str:
        return n.constant(np.int64([value]))

    a, b = n.size("x", 0), n.size("x", 1)
    found = a
    for _ in range(steps):
        found = CHAINS[kind](n, found, b, number)
    n.add("Add", n.add("Mod", found, number(31)), number(2), out="rows")
    first = n.add("Slice", "x", number(0), number(1), number(0))
    n.add("Add", n.add("Expand", first, n.add("Concat", "rows", b, axis=0)), n.constant(np.float32(1)), out="y")
    return n.model({"x": ["n", "m"]}, {"rows": (TensorProto.INT64, 1), "y": (TensorProto.FLOAT, 2)})
