"""In-place append to KV caches: a segment's graph writes new rows into growable memory instead of concatenating.

Stacked caches hold keys and values of a layer in one tensor, as in old GPT-2 exports and onnxruntime's Attention. Such
a model splits the past into parts, concatenates new rows to each, and stacks the parts again. Stacking the new rows
first gives one Concat with the past, which an in-place append can replace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...ir import DType, TensorType
from ...ir.constants.int8_rows import TAIL
from ...ir.graph import Graph, Node, Value, new_value
from ...ir.growable_tensor import GrowableTensor
from ...ir.symbols import always_equal
from ...ops.append import Append, DequantizeRows
from ...ops.data_movement import Concat, Pad, Reshape, Slice
from ...ops.gather import Gather
from ...ops.operator import Op

if TYPE_CHECKING:
    from .graph_builder import CacheUpdate
    from .graph_walk import GraphWalk


def append_in_place(
    walk: GraphWalk, graph: Graph, values: Mapping[str, GrowableTensor], outputs: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, str]]:
    """Make the graph append in place to caches; return ({name: length after the run}, {name: reason if not}).

    values: cache inputs by name. outputs: graph outputs by name. A present output that concatenates the past and new
    rows becomes an Append, and readers get a Slice of the memory. If the past is empty, the whole present output is
    appended. `graph.input_output_aliases` then lists the pairs of inputs and outputs that are memory.
    """
    lengths: dict[str, int] = {}
    reasons: dict[str, str] = {}
    pairs: dict[int, int] = {}  # output number: input number
    for name, value in values.items():
        number = outputs.get(value.present)
        if number is None or number in pairs:
            reasons[name] = f"the output '{value.present}' is not computed from it alone"
            continue
        past = walk.env.get(name)
        present = graph.outputs[number]
        if past is not None and value.grows:
            unstack(graph, past, present, value.axis)
        found = _CacheAppend(graph, past, present, value, walk.builder.cache_updates.get(present)).find()
        if isinstance(found, str):
            reasons[name] = found
            continue
        lengths[name] = found.length
        if value.grows and found.is_by_rows:
            walk.builder.array_refusal = "each entry of the batch is written at a position of its own"
        memory = found.rewrite(walk.builder.trace.symbols[walk.signature.capacity] if value.grows else 0)
        graph.outputs[number] = memory[1]
        if past in graph.inputs:
            graph.inputs[graph.inputs.index(past)] = memory[0]
        else:
            graph.inputs.append(memory[0])
        walk.sources[memory[0]] = name
        pairs[number] = graph.inputs.index(memory[0])
    graph.sort()
    graph.prune()
    graph.input_output_aliases = tuple((i, o) for o, i in pairs.items())
    return lengths, reasons


class _CacheAppend:
    """In-place append of one KV cache."""

    def __init__(
        self, graph: Graph, past: Value | None, present: Value, value: GrowableTensor, written: CacheUpdate | None
    ) -> None:
        """Initialise; past: None if no node reads it. written: the recorded update that computes `present`, if any."""
        self._written = written
        self._graph, self._past, self._present, self._value = graph, past, present, value
        self._concat: Node | None = None
        self._new = present
        self._start = 0

    def find(self) -> _CacheAppend | str:
        """Find the new rows; return self, or the reason why an append is impossible."""
        value, past, present, axis = self._value, self._past, self._present, self._value.axis
        named = f"the output '{value.present}'"
        if present.dtype.np != value.dtype or len(present.shape) != len(value.shape):
            return f"{named} is {present.type}"
        concat = present.producer
        if not value.grows:
            written = self._written
            if past is None or concat is None or written is None or written.cache is not past or written.axis < 1:
                return f"{named} is not the input with something written into it"
            if any(past in n.inputs for n in self._graph.nodes if n is not concat):
                return f"the value of {named} before the update is read, too"
            self._concat, self._new = concat, written.update
            return self
        rows = None if past is None else self._written_rows(past)
        if rows is not None:
            self._concat, self._new = concat, rows
            return self
        if past is not None and concat is not None and isinstance(concat.op, Concat) and concat.inputs[0] is past:
            if concat.op.axis != axis or len(concat.inputs) != 2 or concat.inputs[1] is past:
                return f"{named} is not the input followed by new rows along axis {axis}"
            self._concat, self._new, self._start = concat, concat.input(1), past.shape[axis]
            return self
        if value.shape[axis] == 0 and not any(past in n.inputs for n in self._graph.nodes if past is not None):
            return self
        return f"{named} is no Concat of the input and new rows"

    @property
    def is_by_rows(self) -> bool:
        """Whether each entry of a batch is written at a position of its own."""
        return self._written is not None and self._new is self._written.update

    def _written_rows(self, past: Value) -> Value | None:
        """The rows written where each entry of a batch ends, if the present is the past, perhaps longer, with these."""
        written, axis = self._written, self._value.axis
        if written is None or written.axis != axis or axis < 1 or written.circular:
            return None
        pad = written.cache.producer
        if pad is not None and isinstance(pad.op, Pad) and pad.x is past:
            ends = [i for i, n in enumerate(pad.as_(Pad).pads) if not always_equal((n,), (0,))]
            is_longer = ends == [len(past.shape) + axis] and pad.as_(Pad).mode == "constant"
        else:
            is_longer = written.cache is past
        own = (pad, past.producer, self._present.producer)
        is_read = any(past in n.inputs for n in self._graph.nodes if n not in own)
        return written.update if is_longer and not is_read else None

    @property
    def length(self) -> int:
        """Number of positions after the run."""
        if self.is_by_rows:
            return self._present.shape[self._value.axis]
        return self._start + self._new.shape[self._value.axis]

    def rewrite(self, capacity: Any) -> tuple[Value, Value]:
        """Rewrite the graph; return the memory before the run, and after it."""
        graph, past, present, concat = self._graph, self._past, self._present, self._concat
        grows, written = self._value.grows, self._written
        shape = tuple(capacity if grows and i == self._value.axis else d for i, d in enumerate(present.shape))
        kind = TensorType(present.dtype, shape)
        if self._value.narrow:
            kind = TensorType(DType.INT8, (*shape[:-1], shape[-1] + TAIL))
        before, after = (Value(f"{present.name}@{w}", kind) for w in ("before", "after"))
        made = present.producer
        if not self.is_by_rows or written is None:
            append = Node(Append(self._value.axis, self._start), [before, self._new], [after], name=present.name)
        else:
            op = Append(written.axis, 0, written.circular)
            append = Node(op, [before, self._new, written.starts], [after], name=present.name)
        append.origin = () if made is None else made.origin
        after.producer = append
        if concat is None:
            graph.nodes.append(append)
            return before, after
        place = graph.nodes.index(concat)
        graph.nodes[place : place + 1] = [append, self._prefix_node(after, present, append)]
        assert past is not None
        if any(past in n.inputs for n in graph.nodes):
            graph.nodes.insert(place + 1, self._prefix_node(after, past, append))
        return before, after

    def _prefix_node(self, memory: Value, value: Value, like: Node) -> Node:
        """Make the node that computes `value` as the first part of `memory`."""
        zeros, ones = (0,) * len(value.shape), (1,) * len(value.shape)
        op: Op = Slice(zeros, ones, value.shape)
        if self._value.narrow:
            op = DequantizeRows(self._value.axis, value.shape[self._value.axis], half=value.dtype is DType.FLOAT16)
        node = Node(op, [memory], [value], name=like.name, origin=like.origin)
        value.producer = node
        return node


def unstack(graph: Graph, past: Value, present: Value, axis: int) -> bool:
    """Rewrite `present` as one Concat of `past` and the stacked new rows along `axis`; False if it is not a stack.

    The parts become slices of `present`.
    """
    stack = present.producer
    if stack is None or not isinstance(stack.op, Concat) or stack.op.axis == axis:
        return False
    across = stack.op.axis
    parts = [_part(past, v, i, across, axis) for i, v in enumerate(stack.inputs)]
    if len(parts) != past.shape[across] or not all(parts):
        return False
    found = [p for p in parts if p is not None]
    nodes, fresh = list[Node](), list[Value]()
    for concat, new in found:
        nodes.append(concat.make_helper(Reshape(_with_axis(new, across)), [new]))
        fresh.append(nodes[-1].y)
    nodes.append(stack.make_helper(Concat(across), fresh))
    whole = Node(Concat(axis), [past, nodes[-1].y], [present], name=stack.name, origin=stack.origin)
    present.producer = whole
    nodes.append(whole)
    for i, (concat, _) in enumerate(found):
        starts = tuple(i if k == across else 0 for k in range(len(present.shape)))
        sizes = tuple(1 if k == across else d for k, d in enumerate(present.shape))
        part = new_value(concat.y.name, TensorType(present.dtype, sizes))
        cut = Node(Slice(starts, (1,) * len(sizes), sizes), [present], [part], name=concat.name, origin=concat.origin)
        shown = Node(Reshape(concat.y.shape), [part], [concat.y], name=concat.name, origin=concat.origin)
        part.producer, concat.y.producer = cut, shown
        nodes += cut, shown
    gone = {stack, *(concat for concat, _ in found)}
    graph.nodes[:] = [n for n in graph.nodes if n not in gone] + nodes
    graph.sort()
    return True


def _part(past: Value, piece: Value | None, i: int, across: int, axis: int) -> tuple[Node, Value] | None:
    """Return (Concat, new rows) if `piece` is part `i` of `past` followed by new rows, with one more axis."""
    lift = None if piece is None else piece.producer
    if lift is None or not isinstance(lift.op, Reshape) or piece is None:
        return None
    joined = lift.x
    concat = joined.producer
    if concat is None or not isinstance(concat.op, Concat) or len(concat.inputs) != 2:
        return None
    if concat.op.axis != axis - (axis > across) or not always_equal(piece.shape, _with_axis(joined, across)):
        return None
    old = concat.x
    is_part = always_equal(_with_axis(old, across), _slice_shape(past, across)) and _selects(past, old, i, across)
    return (concat, concat.input(1)) if is_part else None


def _with_axis(v: Value, across: int) -> tuple[int, ...]:
    return (*v.shape[:across], 1, *v.shape[across:])


def _slice_shape(past: Value, across: int) -> tuple[int, ...]:
    return (*past.shape[:across], 1, *past.shape[across + 1 :])


def _selects(past: Value, old: Value, i: int, across: int) -> bool:
    """Whether `old` is entry `i` of `past` along `across`."""
    node = old.producer
    if node is not None and isinstance(node.op, Reshape):
        node = node.x.producer
    if node is None or not node.inputs or node.x is not past:
        return False
    match node.op:
        case Gather(axis=axis):
            index = node.input(1).data
            at = None if index is None or index.size != 1 else int(index.reshape(()))
            return axis == across and at in (i, i - past.shape[across])
        case Slice(starts=starts, sizes=sizes):
            begins = tuple(i if k == across else 0 for k in range(len(past.shape)))
            return starts == begins and always_equal(sizes, _slice_shape(past, across))
    return False
