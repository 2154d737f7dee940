"""Graph, Node and Value: the graph representation from the importer to the planner.

A Graph is a list of Nodes in execution order over Values of known types. Only `Patch` (patch.py) and the importer's
builder edit a Graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CheckError
from ..lazy_dataclass import dataclass
from .constants.lazy_array import Array, LazyArray
from .constants.quantized_constant import QuantizedConstant
from .dtype import DType
from .precision import Precision
from .symbols import Trace
from .tensor_type import TensorType

if TYPE_CHECKING:
    from ..expr.expression import Expr
    from ..layout.kernel_candidates import Choice
    from ..ops.operator import Cost, Op

_O = TypeVar("_O", bound="Op")
_T = TypeVar("_T")
_MOST_NAMED = 3  # operators of the model by which a node is called


class Value:
    """A tensor in the graph: a graph input, a constant (`data` set) or the output of one node.

    data: the contents of a constant. The contents of a LazyArray are read at each access. quantized: the integers from
    which a dequantized constant was computed. needs_number: whether `Graph.adopt` gives the name a number.
    """

    __slots__ = ("__weakref__", "_answers", "_data", "name", "needs_number", "producer", "quantized", "type")

    def __init__(
        self,
        name: str,
        type: TensorType,
        data: Array | LazyArray | None = None,
        producer: Node | None = None,
        quantized: QuantizedConstant | None = None,
        needs_number: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self._data = data
        self._answers: dict[Callable[[Any], Any], Any] = {}
        self.producer = producer
        self.quantized = quantized
        self.needs_number = needs_number

    @property
    def data(self) -> Array | None:
        """The contents of a constant, in memory. This loads a LazyArray; `is_const` does not."""
        return self._data.read() if isinstance(self._data, LazyArray) else self._data

    @data.setter
    def data(self, array: Array | None) -> None:
        self._data = array
        self._answers = {}

    @property
    def array(self) -> Array:
        """The contents of a constant, in memory. AssertionError for another value."""
        data = self.data
        assert data is not None, f"%{self.name} is no constant"
        return data

    @property
    def lazy_data(self) -> Array | LazyArray | None:
        """The contents as stored: an array, a LazyArray that is not loaded yet, or None."""
        return self._data

    def share(self, other: Value) -> None:
        """Share the contents of `other` without loading them."""
        self._data = other._data
        self._answers = other._answers

    def cached_query(self, question: Callable[[Array | LazyArray], _T]) -> _T:
        """The result of `question(contents)`, cached for all values with the same contents."""
        held = self._data
        assert held is not None, f"%{self.name} is no constant"
        if isinstance(held, LazyArray):
            return held.cached_query(question)
        if question not in self._answers:
            self._answers[question] = question(held)
        found: _T = self._answers[question]
        return found

    @property
    def is_const(self) -> bool:
        """Whether the contents are known ahead of time. This does not load them."""
        return self._data is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Logical element type."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


def new_value(like: str, type_: TensorType) -> Value:
    """A new value whose name starts with `like`; the graph that adopts the value numbers it (Graph.adopt)."""
    return Value(like.split("~")[0], type_, needs_number=True)


@dataclass(frozen=True)
class Origin:
    """A node of the ONNX model: its operator and its name."""

    op_type: str
    name: str


class _Same(Enum):
    """Default of `Node.with_` for a field whose None is a value of its own: the field stays."""

    SAME = "same"


@dataclass(eq=False)
class Node:
    """One operator between values.

    op: the operator with its attributes. name: the model's own name for the node, used in messages. epilogue: an
    expression of output 0; its operands follow the operator's own inputs. origin: the ONNX nodes that this node
    computes, several after fusion; empty for nodes that a pass added. choice: the chosen kernel and layouts. precision:
    how float32 values are stored.
    """

    op: Op
    inputs: list[Value | None]
    outputs: list[Value]
    epilogue: Expr | None = None
    name: str = ""
    origin: tuple[Origin, ...] = ()
    choice: Choice | None = None
    precision: Precision = Precision.FP32
    precision_reason: str = ""  # why float32 is kept though the policy is another

    def __post_init__(self) -> None:
        for out in self.outputs:
            out.producer = self

    @property
    def x(self) -> Value:
        """The first input."""
        return self.input(0)

    @property
    def y(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def input(self, i: int) -> Value:
        """Input `i`. AssertionError if it is absent."""
        v = self.inputs[i]
        assert v is not None, f"{self.label} has no input {i}"
        return v

    def get(self, i: int) -> Value | None:
        """Input `i`, or None if it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    @property
    def chosen(self) -> Choice:
        """The chosen kernel and layouts. CheckError before kernel selection."""
        if self.choice is None:
            raise CheckError(f"no kernel was chosen for {self.label} yet")
        return self.choice

    def as_(self, kind: type[_O]) -> _O:
        """The operator as class `kind`, with typed attributes. CheckError if it is of another class."""
        if not isinstance(self.op, kind):
            raise CheckError(f"{self.label} computes {self.op.name}; {kind.__name__} was expected")
        return self.op

    @property
    def host_dtype(self) -> DType | None:
        """The first element type among inputs and outputs that no device supports; None if there is none."""
        values = (*self.inputs, *self.outputs)
        return next((v.dtype for v in values if v is not None and not v.dtype.on_device), None)

    def input_types(self) -> list[TensorType | None]:
        """Types of the inputs."""
        return [None if v is None else v.type for v in self.inputs]

    def infer(self) -> list[TensorType]:
        """Output types, epilogue included. ShapeError if inputs and attributes do not fit."""
        ins = self.input_types()
        self.op.check_shape(ins)
        types = self.op.infer_shape(ins)
        if self.epilogue is not None:
            types[0] = TensorType(self.epilogue.dtype, types[0].shape)
        return types

    def cost(self) -> Cost:
        """Operations and bytes of the operator for these input and output types."""
        return self.op.cost(self.input_types(), [v.type for v in self.outputs])

    def stored_input(self, i: int) -> DType | None:
        """The element type to which input `i` is cast; None to keep its own type."""
        v = self.input(i)
        if i in self.op.float32_inputs and v.dtype is DType.FLOAT32 and v.type.storage is DType.FLOAT32:
            return None
        return self.precision.override(v.dtype)

    def with_(
        self,
        *,
        op: Op | None = None,
        inputs: Sequence[Value | None] | None = None,
        outputs: Sequence[Value] | None = None,
        epilogue: Expr | _Same | None = _Same.SAME,
        name: str | None = None,
        origin: tuple[Origin, ...] | None = None,
    ) -> Node:
        """A copy of this node with the given fields replaced; its kernel is not chosen yet.

        Without `outputs` the copy has new outputs of the same types.
        """
        return Node(
            self.op if op is None else op,
            list(self.inputs if inputs is None else inputs),
            [new_value(v.name, v.type) for v in self.outputs] if outputs is None else list(outputs),
            self.epilogue if epilogue is _Same.SAME else epilogue,
            self.name if name is None else name,
            self.origin if origin is None else origin,
            precision=self.precision,
            precision_reason=self.precision_reason,
        )

    def make_helper(self, op: Op, inputs: Sequence[Value | None], like: str = "") -> Node:
        """A new helper node of this node: `op` on `inputs`, with inferred output types.

        The helper has this node's name and precision, for messages and policies. `like`: a name for the outputs, by
        default that of the first input.
        """
        made = Node(op, list(inputs), [], name=self.name, precision=self.precision)
        made.precision_reason = self.precision_reason
        named = like or next((v.name for v in inputs if v is not None), self.name)
        made.outputs = [new_value(named, t) for t in made.infer()]
        for out in made.outputs:
            out.producer = made
        return made

    @property
    def kind(self) -> str:
        """The display name of the operator: up to three ONNX operators that the node computes, else its own name."""
        types = dict.fromkeys(o.op_type for o in self.origin)
        return "+".join(types) if 0 < len(types) <= _MOST_NAMED else self.op.name

    @property
    def label(self) -> str:
        """The node in messages: operator and model name."""
        return f"{self.kind} node '{self.name}'"

    def __repr__(self) -> str:
        return f"{self.outputs} = {self.op.name}({', '.join(v.name if v else '-' for v in self.inputs)})"


class Graph:
    """Inputs, outputs and nodes in execution order.

    trace: the Trace of symbolic sizes in shapes and operators; None if all sizes are plain integers.
    input_output_aliases: pairs of an input's and an output's number that share persistent memory: a KV cache before and
    after the append.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.trace: Trace | None = None
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self.input_output_aliases: tuple[tuple[int, int], ...] = ()
        self._adopted = 0  # values that got a number so far
        self._taken: frozenset[str] | None = None  # names of the model's own that look like numbered ones

    def adopt(self, value: Value) -> Value:
        """`value`, with a unique name: an 'x' that needs a number becomes 'x~7'.

        Numbers are counted within the graph, so that compiling a model again gives the same names.
        """
        if value.needs_number:
            if self._taken is None:
                self._taken = frozenset(v.name for v in self.values() if "~" in v.name)
            stem = value.name
            while value.needs_number or value.name in self._taken:
                value.name, value.needs_number = f"{stem}~{self._adopted}", False
                self._adopted += 1
        return value

    def copy(self) -> Graph:
        """A copy with its own nodes and values; constants share their data, and kernel choices are dropped."""
        made: dict[Value, Value] = {}

        def copied(v: Value) -> Value:
            if v not in made:
                made[v] = Value(v.name, v.type, quantized=v.quantized)
                made[v].share(v)
            return made[v]

        other = Graph(self.name)
        other._adopted, other._taken = self._adopted, self._taken
        other.trace = self.trace
        other.input_output_aliases = self.input_output_aliases
        other.inputs = [copied(v) for v in self.inputs]
        for n in self.nodes:
            ins = [None if v is None else copied(v) for v in n.inputs]
            outs = [copied(v) for v in n.outputs]
            other.nodes.append(n.with_(inputs=ins, outputs=outs))
        other.outputs = [copied(v) for v in self.outputs]
        return other

    def uses(self) -> Mapping[Value, list[Node]]:
        """Consumers of each value, in execution order; a value used twice by a node lists it once."""
        table: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in dict.fromkeys(node.inputs):
                if v is not None:
                    table.setdefault(v, []).append(node)
        return table

    def values(self) -> Iterable[Value]:
        """Every value once: inputs, constants and node outputs in order of first appearance."""
        seen: dict[Value, None] = dict.fromkeys(self.inputs)
        for node in self.nodes:
            for v in (*node.inputs, *node.outputs):
                if v is not None:
                    seen.setdefault(v)
        for v in self.outputs:
            seen.setdefault(v)
        return seen.keys()

    def sort(self) -> None:
        """Sort nodes into execution order; the sort is stable."""
        done: set[Node] = set()
        order: list[Node] = []
        for root in self.nodes:
            stack = [root]
            while stack:
                node = stack[-1]
                if node in done:
                    stack.pop()
                    continue
                waiting = [
                    v.producer
                    for v in node.inputs
                    if v is not None and v.producer is not None and v.producer not in done
                ]
                if waiting:
                    stack.extend(reversed(waiting))
                    if len(stack) > 4 * len(self.nodes) + 64:
                        raise ValueError(f"graph '{self.name}' has a cycle through {node.label}")
                else:
                    done.add(node)
                    order.append(node)
                    stack.pop()
        self.nodes = order

    def prune(self) -> int:
        """Remove nodes whose outputs are unused; returns their number."""
        needed: set[Value] = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(out in needed for out in node.outputs):
                kept.append(node)
                needed.update(v for v in node.inputs if v is not None)
        removed = len(self.nodes) - len(kept)
        self.nodes = kept[::-1]
        return removed
