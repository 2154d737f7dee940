"""GraphBuilder: appends checked nodes to an ir.Graph and folds constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Array, DType, TensorType
from ...ir.constants.lazy_array import LazyArray
from ...ir.graph import Graph, Node, Origin, Value
from ...ir.symbols import Trace, hint_of, holds_symbols, is_symbolic, is_symbolic_int
from ...ops.host import HostOp
from ...ops.operator import Op
from .constant_evaluation import contents_from_sizes
from .shape_propagation import MOST_ELEMENTS, evaluate, has_symbols, to_array

FOLD_ALWAYS = 1 << 16
"""Results with up to this many elements are folded; larger ones only if at most twice the size of their inputs."""


@dataclass(frozen=True)
class CacheUpdate:
    """Update of a KV cache: `update` is written into `cache` along `axis`, in batch entry b from starts[b] on.

    circular: positions beyond the end wrap around.
    """

    cache: Value
    update: Value
    starts: Value
    axis: int
    circular: bool


class GraphBuilder:
    """Builds one Graph with unique Value names; `mark` and `rollback` undo an incomplete node.

    trace: of the symbolic sizes. shape_tensors: values that depend on sizes and constants only: an array of expressions
    for small ones, None for those that nodes of the graph compute (`shape_dependent_inputs.py`). cache_updates: updates
    of KV caches by the resulting value. array_refusal: the reason why growable caches differ from the model's own in
    more than their place, '' if they do not.
    """

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self.trace = Trace()
        self.shape_tensors: dict[Value, Array | None] = {}
        self.cache_updates: dict[Value, CacheUpdate] = {}
        self.growable: set[Value] = set()
        self.array_refusal = ""
        self._names: dict[str, int] = {}  # used names, with the next number to append
        self._large: set[Value] = set()  # depend on sizes and constants only, but too large for the host
        self._same: dict[Any, list[Value]] = {}  # size-dependent values by their definition

    def unique(self, name: str) -> str:
        """Return `name`, with a number appended if it is used already."""
        candidate, k = name, self._names.get(name, 1)
        while candidate in self._names:
            candidate = f"{name}.{k}"
            k += 1
        self._names[name] = k
        self._names[candidate] = 1
        return candidate

    def input(self, name: str, dtype: DType, shape: Sequence[int]) -> Value:
        """Add a graph input."""
        value = Value(self.unique(name), TensorType(dtype, tuple(shape)))
        self.graph.inputs.append(value)
        return value

    def constant(self, array: Array | LazyArray, name: str) -> Value:
        """Return a constant Value; `array` is not copied."""
        return Value(self.unique(name), TensorType(DType.of(array), tuple(array.shape)), array)

    def shape_tensor(self, array: Array, dtype: DType, name: str) -> Value:
        """Return a tensor of `array`'s elements, some of which may be symbolic; a constant if none is."""
        if not has_symbols(array):
            return self.constant(to_array(array, dtype), name)
        elements = [(type(v), v.text if is_symbolic(v) else v) for v in array.reshape(-1).tolist()]
        key = (dtype, array.shape, tuple(elements))
        if key not in self._same:
            value = Value(self.unique(name), TensorType(dtype, tuple(array.shape)))
            self.shape_tensors[value] = array
            self._same[key] = [value]
        return self._same[key][0]

    def fix_sizes(self, value: Value) -> Value:
        """Return `value`, or a constant if its elements are expressions; their sizes become static."""
        sizes = self.shape_tensors.get(value)
        return value if sizes is None else self.constant(to_array(sizes, value.dtype), value.name)

    def contents(self, value: Value) -> Array | None:
        """Return the contents of a value as `contents_from_sizes` finds them."""
        return contents_from_sizes(value, self.shape_tensors)

    def follows_from_sizes(self, value: Value | None) -> bool:
        """Whether a value is None or depends on sizes and constants only."""
        return value is None or value.is_const or value in self.shape_tensors

    def add(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        *,
        n_outputs: int = 1,
        name: str = "",
        origin: str,
        out_name: str = "",
    ) -> list[Value]:
        """Check a node, infer its types and append it, or fold it; return its first `n_outputs` outputs.

        Raises ShapeError if the operator rejects the inputs or an output would have a negative size. A node with
        strings or another element type without device support runs on the host by the operator's NumPy reference.
        """
        ins = [None if v is None else v.type for v in inputs]
        op.check_shape(ins)
        types = op.infer_shape(ins)[:n_outputs]
        assert len(types) == n_outputs, f"{op.name} has {len(types)} outputs, but {n_outputs} were requested"
        for t in types:
            if any(d < 0 for d in t.shape):
                raise ShapeError(f"the output would have shape {list(t.shape)}; sizes must not be negative")
        out_name = out_name or name or op.name
        is_derived = bool(self.trace.symbols) and self._is_derived(op, inputs, types)
        is_sized = is_derived and not any(v in self._large for v in inputs)
        if is_sized and (found := self._evaluate(op, inputs, types)) is not None:
            return [self.shape_tensor(a, t.dtype, out_name) for a, t in zip(found, types, strict=True)]
        if not is_sized and _worth_folding(op, inputs, types):
            arrays = evaluate_node(op, [None if v is None else v.data for v in inputs])
            return [self.constant(fit_array(a, t), out_name) for a, t in zip(arrays, types, strict=False)]
        key = _node_key(op, inputs, n_outputs) if is_derived else None
        if key is not None and key in self._same:
            return self._same[key]
        outputs = [Value(self.unique(out_name), t) for t in types]
        self.graph.nodes.append(Node(op, list(inputs), outputs, name=name, origin=(Origin(origin, name),)))
        if key is not None:
            self._same[key] = outputs
            if is_sized and _fits_host(inputs, types):
                self.shape_tensors.update((v, None) for v in outputs)
            else:
                self._large.update(outputs)
        return outputs

    def _is_derived(self, op: Op, inputs: Sequence[Value | None], types: Sequence[TensorType]) -> bool:
        """Whether the outputs depend on sizes and constants only, and on at least one size."""
        if op.random or isinstance(op, HostOp):
            return False
        if not all(self.follows_from_sizes(v) or v in self._large for v in inputs):
            return False
        from_sizes = any(v in self.shape_tensors or v in self._large for v in inputs)
        return from_sizes or any(is_symbolic(t.shape) for t in types) or holds_symbols(op)

    def _evaluate(self, op: Op, inputs: Sequence[Value | None], types: Sequence[TensorType]) -> list[Array] | None:
        """Return the outputs' elements as expressions; None if an operator has no symbolic evaluation."""
        present = [v for v in inputs if v is not None]
        if any(not _is_small_constant(v) if v.is_const else self.shape_tensors[v] is None for v in present):
            return None
        given = [None if v is None else v.data if v.is_const else self.shape_tensors[v] for v in inputs]
        return evaluate(op, given, types)

    def rename(self, value: Value, name: str) -> None:
        """Rename a value of this graph unless the name is used already."""
        if name not in self._names:
            self._names.pop(value.name, None)
            stem, _, number = value.name.rpartition(".")
            if number.isdecimal() and stem in self._names:  # the number is free again
                self._names[stem] = min(self._names[stem], int(number))
            value.name = self.unique(name)

    def mark(self) -> int:
        """Return the current end of the graph, for `rollback`."""
        return len(self.graph.nodes)

    def rollback(self, mark: int) -> None:
        """Remove all nodes appended since `mark`."""
        dropped = {v for node in self.graph.nodes[mark:] for v in node.outputs}
        if dropped:
            self._same = {key: values for key, values in self._same.items() if values[0] not in dropped}
            del self.graph.nodes[mark:]


def _worth_folding(op: Op, inputs: Sequence[Value | None], types: Iterable[TensorType]) -> bool:
    if op.random or isinstance(op, HostOp) or not all(v is None or v.is_const for v in inputs):
        return False
    return _has_small_outputs(inputs, types)


def _has_small_outputs(inputs: Sequence[Value | None], types: Iterable[TensorType]) -> bool:
    read = sum(hint_of(v.type.count) for v in inputs if v is not None)
    return bool(sum(hint_of(t.count) for t in types) <= max(FOLD_ALWAYS, 2 * read))


def _node_key(op: Op, inputs: Sequence[Value | None], n_outputs: int) -> Any:
    """Return a key that is equal for nodes with equal results."""
    return (
        op,
        n_outputs,
        *(
            (v.dtype, v.data.shape, v.data.tobytes())
            if v is not None and _is_small_constant(v) and v.data is not None
            else v
            for v in inputs
        ),
    )


def _is_small_constant(v: Value) -> bool:
    """Whether a constant is small enough to inspect; a large one may have to be read from a file."""
    return v.is_const and v.type.count <= MOST_ELEMENTS


def _fits_host(inputs: Sequence[Value | None], types: Sequence[TensorType]) -> bool:
    """Whether the host may compute the outputs: few elements now, and growth linear in one size."""
    counts = [t.count for t in types]
    grows = max((len(factors) for c in counts if is_symbolic_int(c) for factors, _ in c.poly), default=0)
    return grows <= 1 and _has_small_outputs(inputs, types)


def evaluate_node(op: Op, arrays: Sequence[Array | None]) -> list[Array]:
    """Compute the outputs of one node by its NumPy reference, without floating-point warnings."""
    with np.errstate(all="ignore"):
        return op.reference(arrays)


def fit_array(array: Any, t: TensorType) -> Array:
    """Convert `array` to dtype and shape of `t`."""
    fitted: Array = np.asarray(array).astype(t.dtype.np, copy=False).reshape(t.shape)
    return fitted
