"""The rows of one expert, node by node: each node is written anew for all pairs of a token and a slot.

The first expert's nodes run on as many rows as it has tokens. With the pairs in the order of their tokens, its index of
tokens becomes each token repeated, its reads of routing weights the weights themselves, and its products with constants
that differ between experts products with the matrices of the picked experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .expert_loops import ExpertLoop, GraphIndex
from .graphdef import DOMAIN, Attr, NodeDef
from .sorted_experts import FLOATS, is_plain_product

# fmt: off
_UNARY = frozenset((
    "Abs", "Cast", "Celu", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Silu", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
))
_BINARY = frozenset((
    "Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Pow", "Sub",
    "Where",
))
_SIZES = frozenset((
    "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Gather", "Identity", "Max", "Min", "Mul", "Reshape",
    "Shape", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where",
))
"""Operators that compute sizes, which hold for any number of rows."""
# fmt: on


class _NoRows(Exception):  # noqa: N818  (a signal to `write_rows`)
    """A node does more than compute each row by itself."""


@dataclass(frozen=True)
class _Found:
    """The index [axes, rows] that NonZero gives, or transposed. axis: of the two that counts axes."""

    axis: int
    order: str


@dataclass(frozen=True)
class _Column:
    """The number of the token ("t") or slot ("s") of each row, "T" a token's first pair, "p" the pair. rank: of it."""

    what: str
    rank: int


@dataclass(frozen=True)
class _Rows:
    """Rows along `axis`; axes in `units` have size 1. tokens: the value [.., tokens, ..] whose rows they repeat."""

    axis: int
    units: frozenset[int] = frozenset()
    tokens: str = ""


@dataclass(frozen=True)
class _Sizes:
    """Sizes."""


_Kind = _Found | _Column | _Rows | _Sizes


def write_rows(index: GraphIndex, loop: ExpertLoop) -> list[NodeDef] | None:
    """Return the nodes that compute the loop's result; None if a row depends on others."""
    try:
        return _Writer(index, loop).write()
    except _NoRows:
        return None


class _Writer:
    def __init__(self, index: GraphIndex, loop: ExpertLoop) -> None:
        self._index, self._loop = index, loop
        self._kinds: dict[str, _Kind] = {}
        self._made: list[NodeDef] = []
        self._name = loop.finder.outputs[0]

    def write(self) -> list[NodeDef]:
        loop, first = self._loop, self._loop.steps[0]
        self._kinds[self._name] = _Found(0, loop.mask.order)
        self._add("ExpertPairs", [loop.picks], self._name)
        for node in loop.nodes:
            self._node(node)
        at, rows = self._kinds.get(first.index), self._kinds.get(first.rows)
        if not (isinstance(at, _Column) and at.what == "t" and isinstance(rows, _Rows) and rows.axis == 0):
            raise _NoRows
        last, zero = loop.steps[-1].after, self._index.is_zero(first.before)
        total = last if zero else f"{last}/experts"
        self._add("ExpertSum", [first.rows, loop.picks], total)
        if not zero:
            self._made.append(replace(self._like("Add", "", [total, first.before], last)))
        return self._made

    def _like(self, op_type: str, domain: str, inputs: Sequence[str], output: str, **attrs: Any) -> NodeDef:
        given = {k: Attr(0, v) for k, v in attrs.items()}
        finder = self._loop.finder
        version = finder.version if not domain else 1
        return NodeDef(op_type, domain, version, finder.name, tuple(inputs), (output,), given, opsets=finder.opsets)

    def _add(self, op_type: str, inputs: Sequence[str], output: str, **attrs: Any) -> None:
        self._made.append(self._like(op_type, DOMAIN, inputs, output, **attrs))

    def _differs(self, node: NodeDef) -> dict[int, list[str]]:
        out = node.outputs[0]
        return {i: names for (o, i), names in self._loop.constants.items() if o == out}

    def _node(self, node: NodeDef) -> None:
        kinds = [self._kinds.get(n) for n in node.inputs]
        if node.op_type in ("Shape", "Size") or all(k is None or isinstance(k, _Sizes) for k in kinds):
            if node.domain or node.op_type not in _SIZES or self._differs(node):
                raise _NoRows
            self._keep(node, _Sizes())
            return
        handle = _HANDLERS.get((node.domain, node.op_type))
        if handle is None:
            raise _NoRows
        handle(self, node, kinds)

    def _keep(self, node: NodeDef, kind: _Kind) -> None:
        self._made.append(node)
        self._kinds.update((o, kind) for o in node.outputs if o)

    def _numbers(self, node: NodeDef, i: int, name: str) -> list[Any] | None:
        """Return the integers of input `i`, or of the attribute that older versions have instead."""
        if len(node.inputs) > i and node.inputs[i]:
            return self._index.numbers(node.inputs[i])
        found = node.attrs.get(name)
        return None if found is None else list(found)

    # What numbers rows

    def transpose(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        kind, perm = kinds[0], node.attrs.get("perm")
        if isinstance(kind, _Found):
            self._keep(node, replace(kind, axis=1 - kind.axis))
        elif isinstance(kind, _Rows) and perm:
            units = frozenset(i for i, p in enumerate(perm) if p in kind.units)
            self._keep(node, replace(kind, axis=perm.index(kind.axis), units=units))
        else:
            raise _NoRows

    def split(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        kind, axis = kinds[0], int(node.attrs.get("axis", 0))
        if isinstance(kind, _Found) and axis % 2 == kind.axis and len(node.outputs) == len(kind.order):
            self._made.append(node)
            self._kinds.update((o, _Column(w, 2)) for o, w in zip(node.outputs, kind.order, strict=True))
        elif isinstance(kind, _Rows) and (axis == -1 or axis > kind.axis):
            self._keep(node, replace(kind, tokens=""))
        else:
            raise _NoRows

    def slice(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        kind, first, axes = kinds[0], self._numbers(node, 1, "starts"), self._numbers(node, 3, "axes")
        last = self._numbers(node, 2, "ends")
        if isinstance(kind, _Found) and first and last and axes == [kind.axis] and last[0] - first[0] == 1:
            if not 0 <= first[0] < len(kind.order):
                raise _NoRows
            self._keep(node, _Column(kind.order[first[0]], 2))
        elif isinstance(kind, _Rows) and axes and all(a == -1 or a > kind.axis for a in axes):
            self._keep(node, replace(kind, tokens=""))
        else:
            raise _NoRows

    def gather(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        kind, at, axis = kinds[0], kinds[1], int(node.attrs.get("axis", 0))
        if isinstance(kind, _Found) and at is None and axis % 2 == kind.axis:
            numbers = self._index.numbers(node.inputs[1])
            if not numbers or len(numbers) != 1 or not -2 <= numbers[0] < len(kind.order):
                raise _NoRows
            rank = 1 if self._index.graph.constants.held(node.inputs[1]).shape == () else 2
            self._keep(node, _Column(kind.order[numbers[0]], rank))
        elif kind is None and isinstance(at, _Column) and at.rank == 1 and axis >= 0:
            self._read(node, at.what, axis)
        else:
            raise _NoRows

    def gather_nd(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        at = kinds[1]
        if kinds[0] is not None or not isinstance(at, _Column) or at.rank != 2 or node.attrs.get("batch_dims", 0):
            raise _NoRows
        self._read(node, at.what, 0)

    def _read(self, node: NodeDef, what: str, axis: int) -> None:
        """Read a value at the token of each row, or at the pair, by one number or by the numbers of both axes."""
        data, out = node.inputs[0], node.outputs[0]
        units = _unit_axes(self._index, data)
        if not units >= set(range(axis)):
            raise _NoRows
        if what == "t":
            self._add("ExpertRows", [data, self._loop.picks], out, axis=axis)
        elif what in ("p", "ts") and axis == 0:
            self._add("ExpertWeights", [data], out, pairs=int(what == "ts"))
        else:
            raise _NoRows
        moved = len(what) - 1
        self._kinds[out] = _Rows(axis, frozenset(u - moved for u in units), data if what == "t" else "")

    def shape_of_column(self, node: NodeDef, kind: _Column) -> None:
        match node.op_type:
            case "Squeeze":
                rank = kind.rank - 1
            case "Unsqueeze":
                numbers = self._numbers(node, 1, "axes")
                if numbers not in ([1], [-1]):
                    raise _NoRows
                rank = kind.rank + 1
            case "Reshape":
                numbers = self._index.numbers(node.inputs[1])
                if numbers not in ([-1], [-1, 1]):
                    raise _NoRows
                rank = len(numbers)
            case "Expand" | "Cast" | "Identity":
                rank = kind.rank
            case _:
                raise _NoRows
        self._keep(node, replace(kind, rank=rank))

    # What rows hold

    def reshape(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        kind = kinds[0]
        if isinstance(kind, _Column):
            self.shape_of_column(node, kind)
            return
        if not isinstance(kind, _Rows) or not kind.units >= set(range(kind.axis)):
            raise _NoRows
        match node.op_type:
            case "Reshape":
                self._keep(node, replace(kind, axis=self._leading(node.inputs[1]), units=frozenset()))
            case "Unsqueeze" | "Squeeze":
                axes = self._numbers(node, 1, "axes")
                if not axes or len(axes) != 1:
                    raise _NoRows
                grows = node.op_type == "Unsqueeze"
                if (axes[0] == -1 and grows) or axes[0] > kind.axis:
                    self._keep(node, kind)
                elif axes[0] == 0 and (grows or kind.axis > 0):
                    step = 1 if grows else -1
                    units = {u + step for u in kind.units if u + step >= 0} | ({0} if grows else set())
                    self._keep(node, replace(kind, axis=kind.axis + step, units=frozenset(units)))
                else:
                    raise _NoRows
            case _:  # Expand: along the axes after the rows
                self._keep(node, replace(kind, tokens=""))

    def _leading(self, shape: str) -> int:
        """Return the axis of the rows in a Reshape to `shape`, whose sizes before it are 1."""
        numbers = self._index.numbers(shape)
        if numbers is None:
            node = self._index.made_by(shape, "Concat")
            if node is None:
                raise _NoRows
            if isinstance(self._kinds.get(node.inputs[0]), _Sizes):
                return 0
            numbers = self._index.numbers(node.inputs[0])
        for axis, number in enumerate(numbers or ()):
            if number == -1:
                return axis
            if number != 1:
                break
        raise _NoRows

    def concat(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        axis = int(node.attrs["axis"])
        if all(isinstance(k, _Column) and k.rank == 2 for k in kinds) and axis in (-1, 1):
            what = "".join(k.what for k in kinds if isinstance(k, _Column))
            self._keep(node, _Column(what, 2))
            return
        rows = [k for k in kinds if isinstance(k, _Rows)]
        if len(rows) < len(kinds) or len({k.axis for k in rows}) > 1 or not (axis == -1 or axis > rows[0].axis):
            raise _NoRows
        self._keep(node, _Rows(rows[0].axis))

    def unary(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        kind = kinds[0]
        if isinstance(kind, _Column | _Rows) and all(k is None for k in kinds[1:]) and not self._differs(node):
            self._keep(node, replace(kind, tokens="") if isinstance(kind, _Rows) else kind)
        else:
            raise _NoRows

    def binary(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        columns = [k for k in kinds if isinstance(k, _Column)]
        if columns:
            self._pair(node, kinds, columns)
            return
        rows, inputs = [k for k in kinds if isinstance(k, _Rows)], list(node.inputs)
        if len({k.axis for k in rows}) != 1 or any(isinstance(k, _Found | _Sizes) for k in kinds):
            raise _NoRows
        for i, names in self._differs(node).items():
            shape = self._index.graph.constants.held(names[0]).shape
            if not shape or shape[-1] < 2:  # the rows might have no other axis
                raise _NoRows
            inputs[i] = f"{node.outputs[0]}/{i}"
            self._add("ExpertConstants", [self._loop.picks, *names], inputs[i])
        for name, kind in zip(node.inputs, kinds, strict=True):
            if kind is None and not self._broadcasts(name):
                raise _NoRows
        made = _Rows(rows[0].axis)
        self._keep(replace(node, inputs=tuple(inputs)), made)

    def _broadcasts(self, name: str) -> bool:
        """Whether the name is a constant of one number or of one axis, so that it is the same for every row."""
        if name not in self._index.graph.constants:
            return False
        shape = self._index.graph.constants.held(name).shape
        return all(d == 1 for d in shape[:-1])

    def _pair(self, node: NodeDef, kinds: Sequence[_Kind | None], columns: Sequence[_Column]) -> None:
        """Number the pair of a token and a slot: token * slots + slot."""
        if node.op_type == "Mul" and columns[0].what == "t" and len(columns) == 1:
            self._keep(node, _Column("T", columns[0].rank))
        elif node.op_type == "Add" and sorted(c.what for c in columns) == ["T", "s"]:
            self._keep(node, _Column("p", columns[0].rank))
        else:
            raise _NoRows

    def product(self, node: NodeDef, kinds: Sequence[_Kind | None]) -> None:
        kind, names = kinds[0], self._differs(node)
        if not isinstance(kind, _Rows) or any(k is not None for k in kinds[1:]):
            raise _NoRows
        attrs, constants = node.attrs, self._index.graph.constants
        if not is_plain_product(node):
            raise _NoRows
        if not all(n in constants for n in node.inputs[1:] if n):
            raise _NoRows
        if node.op_type == "MatMul" and len(constants.held(node.inputs[1]).shape) != 2:
            raise _NoRows
        made = _Rows(kind.axis, frozenset(u for u in kind.units if u < kind.axis))
        if not names:
            self._keep(node, made)
            return
        if any(constants.held(names[i][0]).dtype not in FLOATS for i in names if node.op_type != "MatMulNBits"):
            raise _NoRows
        experts = self._loop.mask.experts
        given = [n for i in range(1, len(node.inputs)) for n in names.get(i, [node.inputs[i]] * experts)]
        shares = bool(kind.tokens)
        inputs = [kind.tokens or node.inputs[0], self._loop.picks, *given]
        more = {**attrs, "kind": node.op_type, "experts": experts, "axis": kind.axis, "shares": int(shares)}
        self._made.append(replace(self._like("ExpertProduct", DOMAIN, inputs, node.outputs[0], **more), name=node.name))
        self._kinds[node.outputs[0]] = made


def _unit_axes(index: GraphIndex, name: str) -> frozenset[int]:
    """Return axes of a value that are known to have size 1."""
    node = index.made_by(name, "Unsqueeze", "Transpose")
    if node is None:
        return frozenset()
    before = _unit_axes(index, node.inputs[0])
    if node.op_type == "Transpose":
        return frozenset(i for i, p in enumerate(node.attrs.get("perm", ())) if p in before)
    axes = index.numbers(node.inputs[1]) if len(node.inputs) > 1 else list(node.attrs.get("axes", ()))
    if axes is None or len(axes) != 1 or axes[0] < 0:
        return frozenset()
    return frozenset(u + (u >= axes[0]) for u in before) | {axes[0]}


_Handler = Callable[[_Writer, NodeDef, Sequence[_Kind | None]], None]
_HANDLERS: Mapping[tuple[str, str], _Handler] = {
    **{("", n): _Writer.unary for n in _UNARY},
    **{("com.microsoft", n): _Writer.unary for n in ("FastGelu", "Gelu", "QuickGelu")},
    **{("", n): _Writer.binary for n in _BINARY},
    **{("", n): _Writer.reshape for n in ("Reshape", "Unsqueeze", "Squeeze", "Expand")},
    ("", "Transpose"): _Writer.transpose,
    ("", "Split"): _Writer.split,
    ("", "Slice"): _Writer.slice,
    ("", "Gather"): _Writer.gather,
    ("", "GatherND"): _Writer.gather_nd,
    ("", "Concat"): _Writer.concat,
    ("", "MatMul"): _Writer.product,
    ("", "Gemm"): _Writer.product,
    ("com.microsoft", "MatMulNBits"): _Writer.product,
}
