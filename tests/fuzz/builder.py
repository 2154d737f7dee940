"""Builder: a random valid graph, node by node.

Every node is run alone by onnxruntime as it is added, so that shapes and contents are known, and what onnxruntime
refuses never enters the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

from onnx import defs, helper

from .case import Case
from .draw import Array, Draw
from .oracle import IR_VERSIONS, run_model, value_info
from .protos import opset_ids, reads
from .registry import OPERATIONS, THEMES, Focus

OPSETS = dict(zip(range(7, 25), (2, 1, 2, 2, 5, 4, 12, 4, 4, 5, 14, 12, 8, 5, 8, 5, 6, 3), strict=True))
"""How often each is drawn."""

MORE = {"motifs": 1.5, "machines": 0.5, "fused": 0.7, "decoders": 0.8}
"""Further themes, how often each is drawn."""

LARGEST = 60_000
"""Elements of any tensor."""

FLOATS = (np.dtype("f4"), np.dtype("f2"), np.dtype("f8"))
Where = Callable[[Array], bool]


class Rejected(Exception):  # noqa: N818  (a signal to draw again, not an error)
    """This operation cannot be added here."""


def anything(_: Array) -> bool:
    return True


class Builder:
    """State of one graph: `values` holds the contents of all tensors by name, `kept` inputs that are no free data."""

    def __init__(self, seed: int, most_nodes: int = 30, focus: Focus | None = None) -> None:
        self.seed = seed
        focus = focus or Focus()
        self.draw = d = Draw(seed)
        self.opset = d.weighted(OPSETS)
        self.dtype = d.weighted({FLOATS[0]: 84, FLOATS[1]: 8, FLOATS[2]: 8})
        if focus.dtype:
            self.dtype = np.dtype(focus.dtype)
        self.special = d.chance(0.04) or focus.contents == "special"
        d.special = 0.4 if self.special else 0.0
        d.empty = 0.1 if d.chance(0.06) or focus.contents == "empty" else 0.0
        self.size = min(d.between(3, most_nodes), d.between(3, most_nodes))
        theme = d.weighted(
            {"any": 4, "vision": 3, "language": 2, "movement": 2, "integers": 1, "recurrent": 0.7, **MORE}
        )
        self.weights = {o.name: o.weight * THEMES[theme].get(o.family, 1.0) for o in OPERATIONS.values()}
        total = sum(self.weights.values())
        for name in focus.operations:
            self.weights[name] += focus.share * total / len(focus.operations)
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, Array] = {}
        self.values: dict[str, Array] = {}
        self.kept: set[str] = set()
        self.untold: set[str] = set()  # inputs whose shapes stay undeclared
        self.data: list[str] = []  # names that further nodes may read, in the order made
        self._count = 0

    # What nodes read

    def name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def has(self, op: str, domain: str = "") -> bool:
        """Whether the graph's opset has `op`."""
        return bool(defs.has(op, self.opset, domain)) if domain else _has(op, self.opset)

    def input(self, array: Array) -> str:
        """A new graph input of data."""
        name = self.name("x")
        self.inputs[name] = self.values[name] = array
        self.data.append(name)
        return name

    def const(self, value: Any, dynamic: float = 0.05) -> str:
        """A constant, as an initializer or a Constant node; sometimes an input whose contents are kept."""
        array = np.asarray(value)
        name = self.name("c")
        self.values[name] = array
        share = self.draw.rng.random()
        if share < dynamic:
            self.inputs[name] = array
            self.kept.add(name)
        elif share < dynamic + 0.1:
            self.nodes.append(
                helper.make_node("Constant", [], [name], name=f"Constant_{name}", value=nph.from_array(array))
            )
        else:
            self.constants[name] = array
        return name

    def ints(self, values: Iterable[int], dynamic: float = 0.04) -> str:
        """A constant vector of int64, such as axes or a shape."""
        return self.const(np.asarray(list(values), np.int64), dynamic)

    def operand(
        self, shape: Sequence[int], dtype: Any = None, low: float | None = None, high: float | None = None
    ) -> str:
        """New contents: a constant, or an input."""
        array = self.draw.array(shape, self.dtype if dtype is None else dtype, low, high)
        return self.const(array, 0.0) if self.draw.chance(0.65) else self.input(array)

    def weight(self, shape: Sequence[int], scale: float = 1.0) -> str:
        """A trained weight: mostly an initializer."""
        array = self.draw.rng.standard_normal(tuple(shape)) * scale
        return self.const(array.astype(self.dtype), dynamic=0.07)

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def find(self, where: Where) -> str | None:
        """A tensor there is, often the latest."""
        found = [n for n in self.data if where(self.values[n])]
        if not found:
            return None
        share = self.draw.rng.random()
        return found[-1] if share < 0.5 else self.draw.pick(found[-4:] if share < 0.8 else found)

    def tensor(
        self,
        dtypes: Sequence[Any],
        rank: int | None = None,
        where: Where = anything,
        shape: Sequence[int] | None = None,
    ) -> str:
        """A tensor of one of `dtypes`, found or new. Rejected where nothing fits."""
        kinds = tuple(np.dtype(t) for t in dtypes)

        def fits(a: Array) -> bool:
            return a.dtype in kinds and (rank is None or a.ndim == rank) and where(a)

        found = None if self.draw.chance(0.08) else self.find(fits)
        if found is not None:
            return found
        for _ in range(30):
            array = self.draw.array(self.draw.shape(rank) if shape is None else shape, self.draw.pick(kinds))
            if fits(array):
                return self.input(array)
        raise Rejected("no tensor")

    def real(self, rank: int | None = None, where: Where = anything, finite: bool = False) -> str:
        """A tensor of the graph's own float type. finite: for operators that leave NaN undefined."""
        check = (lambda a: bool(np.isfinite(a).all()) and where(a)) if finite and self.special else where
        return self.tensor([self.dtype], rank, check)

    def calm(self, rank: int | None = None, where: Where = anything) -> str:
        """A tensor without special values: for operators whose sums run in an order of their own."""
        if self.special:
            raise Rejected("special values")
        return self.real(rank, where)

    def partner(self, x: str, dtype: Any = None, low: float | None = None, high: float | None = None) -> str:
        """A tensor that broadcasts with `x`."""
        d, shape = self.draw, self.values[x].shape
        dtype = self.values[x].dtype if dtype is None else np.dtype(dtype)

        def fits(a: Array) -> bool:
            if a.dtype != dtype:
                return False
            try:
                return math.prod(np.broadcast_shapes(a.shape, shape)) <= LARGEST
            except ValueError:
                return False

        if low is None and d.chance(0.45) and (found := self.find(fits)) is not None:
            return found
        other = [1 if d.chance(0.3) else n for n in shape]
        kind = d.between(0, 9)
        if kind < 4 and other:
            other = other[d.between(0, len(other) - 1) :]
        elif kind == 4 and len(other) < 6:
            other = [d.between(1, 3), *other]
        elif kind == 5:
            other = []
        return self.operand(other, dtype, low, high)

    def within(self, x: str, low: float, high: float) -> str:
        """`x`, or it clipped where it leaves [low, high]."""
        a = self.values[x]
        if a.size and not (a.min() >= low and a.max() <= high):
            lows, highs = (self.const(np.asarray(v, a.dtype), 0.0) for v in (low, high))
            return self.emit("Min", [self.emit("Max", [x, lows]), highs])
        return x

    # Nodes

    def emit(self, op: str, inputs: Sequence[str], *, domain: str = "", **attrs: Any) -> str:
        """Add a node of one output; its name."""
        return self.emit_all(op, inputs, 1, domain=domain, **attrs)[0]

    def emit_all(self, op: str, inputs: Sequence[str], outputs: int, *, domain: str = "", **attrs: Any) -> list[str]:
        """Add a node; the names of its outputs. Attributes that are None are left out."""
        names = [self.name("v") for _ in range(outputs)]
        given = {k: v for k, v in attrs.items() if v is not None}
        self.add([helper.make_node(op, inputs, names, name=f"{op}_{names[0]}", domain=domain, **given)], names)
        return names

    def add(self, nodes: Sequence[Any], outputs: Sequence[str], declared: bool = True) -> None:
        """Add nodes that are run together; `outputs` are what others may read of them. declared: whether onnxruntime is
        told the shapes of what they read, beside which it refuses some shapes that it takes when they come."""
        made = {o for n in nodes for o in n.output}
        inputs = [i for i in dict.fromkeys(i for n in nodes for i in reads(n)) if i not in made]
        missing = [i for i in inputs if i not in self.values]
        assert not missing, f"{nodes[0].op_type} reads {missing}, which is nowhere"
        # Constants stay constants, as some operators of onnxruntime read theirs ahead of time.
        free = [i for i in inputs if i in self.inputs or i in self.data]
        graph = helper.make_graph(
            list(nodes),
            "one",
            [value_info(i, self.values[i], "own" if declared else None) for i in free],
            [helper.make_empty_tensor_value_info(o) for o in outputs],
            [nph.from_array(self.values[i], i) for i in inputs if i not in free],
        )
        try:
            found = run_model(self.model(graph), {i: self.values[i] for i in free})
        except Exception as e:  # whatever onnxruntime raises
            raise Rejected(f"{nodes[0].op_type}: {str(e)[:200]}") from None
        for array in found:
            if (
                not isinstance(array, np.ndarray)
                or array.size > LARGEST
                or array.dtype.kind not in "fiub"
                or array.ndim > 8
            ):
                raise Rejected(f"{nodes[0].op_type}: an output that nothing goes on with")
            if array.dtype.kind == "f" and array.size and not self.special:
                with np.errstate(all="ignore"):
                    if not np.abs(array).max() <= (1e3 if array.dtype.itemsize == 2 else 1e4):
                        raise Rejected(f"{nodes[0].op_type}: values that are not finite, or large")
        self.nodes.extend(nodes)
        for name, array in zip(outputs, found, strict=True):
            self.values[name] = array
            self.data.append(name)

    def model(self, graph: Any) -> Any:
        return helper.make_model(graph, opset_imports=opset_ids(self.opset), ir_version=IR_VERSIONS[self.opset])

    # The whole

    def build(self) -> Case:
        """The graph with its feeds."""
        from . import operations  # noqa: F401  (fills the registry)

        if not self.weights:
            raise RuntimeError("import tests.fuzz.operations before making a Builder")
        tries = 0
        self.input(self.draw.array(self.draw.shape(), self.dtype))
        while sum(n.op_type != "Constant" for n in self.nodes) < self.size and tries < 5 * self.size + 10:
            tries += 1
            self.try_operation(self.draw.weighted(self.weights))
        return self.finish()

    def try_operation(self, name: str) -> bool:
        """Add an operation; whether it went in."""
        before = (
            len(self.nodes),
            dict(self.constants),
            dict(self.inputs),
            dict(self.values),
            set(self.kept),
            len(self.data),
        )
        try:
            OPERATIONS[name].add(self)
        except Rejected:
            nodes, self.constants, self.inputs, self.values, self.kept, data = before
            del self.nodes[nodes:]
            del self.data[data:]
            return False
        return True

    def finish(self) -> Case:
        """Outputs, what nothing needs taken away, and open dimensions."""
        d = self.draw
        used = {i for n in self.nodes for i in reads(n)}
        made = [o for n in self.nodes if n.op_type != "Constant" for o in n.output if o in self.values]
        if not made:
            raise Rejected("an empty graph")
        ends = [o for o in made if o not in used]
        if len(ends) > 6:
            ends = d.subset(ends, least=4)
        outputs = [o for o in made if o in ends or d.chance(0.07)]
        live, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if any(o in live for o in node.output):
                nodes.append(node)
                live.update(reads(node))
        inputs = {n: a for n, a in self.inputs.items() if n in live}
        openness = d.weighted({"fixed": 4, "open": 3, "some": 2, "rank": 1})
        dims = {n: self._dims(n, a, openness) for n, a in inputs.items()}
        infos = [value_info(n, a, dims[n]) for n, a in inputs.items()]
        known = openness == "fixed" and d.chance(0.4)
        outs = [value_info(o, self.values[o], None if not known else self.values[o].shape) for o in outputs]
        constants = [nph.from_array(a, n) for n, a in self.constants.items() if n in live]
        graph = helper.make_graph(nodes[::-1], f"fuzz_{self.seed}", infos, outs, constants)
        return Case(self.model(graph), [inputs, *self._other_feeds(inputs, dims)])

    def _dims(self, name: str, array: Array, openness: str) -> list[int | str] | None:
        """Declared dimensions. Those of equal size share a symbol, so that they may change together."""
        if name in self.kept or (openness == "fixed" and name not in self.untold):
            return list(array.shape)
        if openness == "rank" or name in self.untold:
            return None
        share = 1.0 if openness == "open" else 0.5
        return [f"n{n}" if self.draw.chance(share) else n for n in array.shape]

    def _other_feeds(
        self, inputs: Mapping[str, Array], dims: Mapping[str, Sequence[int | str] | None]
    ) -> list[dict[str, Array]]:
        """Other contents of the same shapes, and other shapes where dimensions are open: they need not be valid."""
        d = self.draw
        found = [{n: self._again(n, a, a.shape) for n, a in inputs.items()}]
        symbols = {s: int(s[1:]) for shape in dims.values() for s in shape or () if isinstance(s, str)}
        if symbols:
            changed = set(d.subset(sorted(symbols), least=1)[:2])
            sizes = {s: d.pick((n + 1, 2 * n + 1, max(1, n - 1), 1)) if s in changed else n for s, n in symbols.items()}
            feeds = {}
            for n, a in inputs.items():
                shape = [sizes[s] if isinstance(s, str) else s for s in dims[n] or a.shape]
                if math.prod(shape) > LARGEST:
                    return found
                feeds[n] = self._again(n, a, shape)
            found.append(feeds)
        return found

    def _again(self, name: str, array: Array, shape: Sequence[int]) -> Array:
        if name in self.kept:
            return array
        if array.dtype.kind in "iu":
            low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
            return self.draw.array(shape, array.dtype, low, high)
        # Operators that leave NaN undefined were given what is finite.
        special, self.draw.special = self.draw.special, self.draw.special if not _is_finite(array) else 0.0
        found = self.draw.array(shape, array.dtype)
        self.draw.special = special
        return found


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _has(op: str, opset: int) -> bool:
    try:
        return not defs.get_schema(op, opset, "").deprecated
    except defs.SchemaError:
        return False


def make_case(seed: int, most_nodes: int = 30, focus: Focus | None = None) -> Case | None:
    """The graph of `seed` with feeds; None where the draws lead to none. focus: what it is to be made of above all."""
    from . import operations  # noqa: F401  (fills the registry)

    try:
        return Builder(seed, most_nodes, focus).build()
    except Rejected:
        return None
