"""Tasks: what runs on the host between two segments, with arrays, lists of arrays or None for values.

A NodeTask is one ONNX operator. Loop, Scan and SequenceMap run their body as a model of its own: the caller of an
import passes a Runner that compiles and runs one, so that bodies run on the device too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import ModelError, OpaliteError, ShapeError
from ...ir.graph import Value
from ...ir.symbols import is_dim
from ..host.reference import run_host
from ..proto.decode import ValueInfo
from ..proto.encode import make_proto
from ..proto.graphdef import GraphDef
from .open_dims import CLOSED, Declared, Open
from .scopes import Item

if TYPE_CHECKING:
    from .segments import ModelImporter

Runner = Callable[["ModelImporter", Mapping[str, Any]], Sequence[Any]]
"""runner(importer, feeds) -> the importer's outputs in order; feeds and outputs are arrays, lists of them or None."""

Values = Mapping[str, Any]


class Task(ABC):
    """One step between two segments. `inputs` and `outputs` are global names."""

    reason: ClassVar[str]

    def __init__(self, label: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self.label = label
        self.inputs = inputs
        self.outputs = outputs

    @abstractmethod
    def run(self, values: Values, runner: Runner) -> list[Any]:
        """The outputs, in the order of `outputs`, given the values of `inputs`."""

    def open_dims(self, find: Callable[[str], Value | None]) -> dict[str, Declared]:
        """Which dimensions of the outputs depend on data, as far as that is known. find: the Value of a name."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"


def run_tasks(tasks: Sequence[Task], values: dict[str, Any], runner: Runner) -> None:
    """Run `tasks` in order on `values`, where their results go too."""
    for task in tasks:
        results = task.run({n: values[n] for n in task.inputs}, runner)
        values.update((n, v) for n, v in zip(task.outputs, results, strict=False) if n)


class ItemTask(Task):
    """A task that stands for a node."""

    def __init__(self, item: Item) -> None:
        super().__init__(item.node.label, item.reads, item.outputs)
        self.item = item

    def value(self, values: Values, i: int) -> Any:
        """The value of the node's input `i`, None where it is absent."""
        names = self.item.inputs
        return values[names[i]] if i < len(names) and names[i] else None


TEXT_MAKERS = frozenset(("Tokenizer", "StringSplit", "StringNormalizer", "StringConcat"))
"""Operators whose first output holds strings."""

TEXT_MOVES = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose"))
"""Operators that hand their first input on in another shape."""

TEXT_READERS = frozenset(("TfIdfVectorizer", "RegexFullMatch", *TEXT_MAKERS))
"""Operators on strings that the host runs alone."""


class NodeTask(ItemTask):
    """One ONNX operator on the host."""

    reason = "its outputs' shapes depend on data, or it handles sequences or optionals"

    @cached_property
    def _proto(self) -> bytes:
        return bytes(make_proto(self.item.node).SerializeToString())

    def open_dims(self, find: Callable[[str], Value | None]) -> dict[str, Declared]:
        if self.item.node.op_type != "NonZero" or self.item.node.domain:
            return {}
        return {self.outputs[0]: [CLOSED, Open(self.outputs[0])]}

    def gives_text(self, texts: AbstractSet[str]) -> bool:
        """Whether the first output holds strings; `texts` are the names of those that do."""
        kind = self.item.node.op_type
        return kind in TEXT_MAKERS or (kind in TEXT_MOVES and self.item.inputs[0] in texts)

    def run(self, values: Values, runner: Runner) -> list[Any]:
        node = self.item.node
        ins = [self.value(values, i) for i in range(len(self.item.inputs))]
        try:
            found = iter(run_host(node.op_type, node.domain, node.version, self._proto, ins))
        except OpaliteError as e:
            e.add_context(f"while running {self.label}")
            raise
        return [next(found) if name else None for name in node.outputs]


class PackTask(Task):
    """A sequence as the list of its elements."""

    reason = "the host holds a sequence as a list"

    def __init__(self, sequence: str, elements: tuple[str, ...]) -> None:
        super().__init__(f"sequence '{sequence}'", elements, (sequence,))

    def run(self, values: Values, runner: Runner) -> list[Any]:
        return [[values[n] for n in self.inputs]]


class TrimTask(Task):
    """The first rows of an array, as many as another one says."""

    reason = "the number of its rows depends on data"

    def __init__(self, item: Item, value: str, count: str, output: str) -> None:
        super().__init__(item.node.label, (value, count), (output,))

    def open_dims(self, find: Callable[[str], Value | None]) -> dict[str, Declared]:
        value = find(self.inputs[0])
        if value is None:
            return {}
        rest = [Open(d.text) if is_dim(d) else CLOSED for d in value.shape[1:]]
        return {self.outputs[0]: [Open(self.inputs[1]), *rest]}

    def run(self, values: Values, runner: Runner) -> list[Any]:
        array, count = (values[n] for n in self.inputs)
        return [np.asarray(array)[: max(0, int(_number(count)))]]


@dataclass(frozen=True)
class Body:
    """A body as a model of its own. `captured` pairs its names of outer values with the global ones."""

    graph: GraphDef
    importer: ModelImporter
    captured: tuple[tuple[str, str], ...]

    def run(self, inputs: Sequence[Any], values: Values, runner: Runner) -> list[Any]:
        """Outputs of one run of the body."""
        if len(inputs) != len(self.graph.inputs):
            raise ShapeError(f"body '{self.graph.name}' has {len(self.graph.inputs)} inputs, {len(inputs)} are given")
        feeds = {local: values[outer] for local, outer in self.captured}
        feeds.update((info.name, v) for info, v in zip(self.graph.inputs, inputs, strict=True))
        return list(runner(self.importer, feeds))


class BodyTask(ItemTask):
    """A task around a body."""

    reason = "its body runs once for each iteration"

    def __init__(self, item: Item, body: Body) -> None:
        super().__init__(item)
        self.body = body

    def run(self, values: Values, runner: Runner) -> list[Any]:
        try:
            found = self.iterate(values, runner)
        except OpaliteError as e:
            e.add_context(f"while running {self.label}")
            raise
        except (ValueError, TypeError, IndexError, KeyError) as e:
            raise ModelError(f"{self.label} cannot run: {type(e).__name__}: {e}") from e
        return (found + [None] * len(self.outputs))[: len(self.outputs)]

    @abstractmethod
    def iterate(self, values: Values, runner: Runner) -> list[Any]:
        """Outputs of the node."""


class LoopTask(BodyTask):
    """Loop: the body runs at most M times, while its condition holds."""

    def iterate(self, values: Values, runner: Runner) -> list[Any]:
        limit, go_on = self.value(values, 0), self.value(values, 1)
        trips = None if limit is None else _number(limit)
        going = True if go_on is None else bool(_number(go_on))
        state = [self.value(values, i) for i in range(2, len(self.item.inputs))]
        infos = self.body.graph.inputs
        collected: list[list[Any]] = [[] for _ in self.body.graph.outputs[1 + len(state) :]]
        i = 0
        while going and (trips is None or i < trips):
            count = _shaped(np.asarray(i, np.int64), infos[0])
            outs = self.body.run([count, _shaped(np.asarray(True), infos[1]), *state], values, runner)
            going = bool(_number(outs[0]))
            state = outs[1 : 1 + len(state)]
            for rows, row in zip(collected, outs[1 + len(state) :], strict=True):
                rows.append(np.asarray(row))
            i += 1
        ends = self.body.graph.outputs[1 + len(state) :]
        return [*state, *(_stack(rows, 0, info) for rows, info in zip(collected, ends, strict=True))]


class ScanTask(BodyTask):
    """Scan: the body runs once for each slice of the scan inputs."""

    def iterate(self, values: Values, runner: Runner) -> list[Any]:
        plan = ScanPlan(self.item)
        ins = [self.value(values, i) for i in range(len(self.item.inputs))]
        if self.item.node.version >= 9:
            return self._scan(plan, ins, values, runner)
        lengths, *rest = ins
        arrays = [np.asarray(v) for v in rest]
        batches = []
        for b in range(arrays[0].shape[0]):
            stop = None if lengths is None else int(np.asarray(lengths)[b])
            states = [a[b] for a in arrays[: plan.n_states]]
            batches.append(self._scan(plan, [*states, *(a[b][:stop] for a in arrays[plan.n_states :])], values, runner))
        return [_pad_stack(rows) for rows in zip(*batches, strict=True)]

    def _scan(self, plan: ScanPlan, ins: list[Any], values: Values, runner: Runner) -> list[Any]:
        state, scanned = ins[: plan.n_states], [np.asarray(v) for v in ins[plan.n_states :]]
        axes = plan.input_axes([a.ndim for a in scanned])
        rows = [np.moveaxis(a, axis, 0) for a, axis in zip(scanned, axes, strict=True)]
        length = plan.length([a.shape for a in scanned], axes)
        ends = self.body.graph.outputs[plan.n_states :]
        collected: list[list[Any]] = [[] for _ in ends]
        for i in range(length):
            slices = [a[length - 1 - i if back else i] for a, back in zip(rows, plan.input_reverse, strict=True)]
            outs = self.body.run([*state, *slices], values, runner)
            state = outs[: plan.n_states]
            for column, row in zip(collected, outs[plan.n_states :], strict=True):
                column.append(np.asarray(row))
        for column, back in zip(collected, plan.output_reverse(len(ends)), strict=True):
            if back:
                column.reverse()
        outputs = zip(collected, plan.output_axes(len(ends)), ends, strict=True)
        return [*state, *(_stack(column, axis, info) for column, axis, info in outputs)]


class ScanPlan:
    """A Scan node's attributes with their defaults."""

    def __init__(self, item: Item) -> None:
        self._attrs = item.node.attrs
        self._label = item.node.label
        count = len(item.inputs) - (0 if item.node.version >= 9 else 1)
        self.n_scanned = int(self._attrs.get("num_scan_inputs", 0))
        self.n_states = count - self.n_scanned
        if self.n_scanned < 1 or self.n_states < 0:
            raise ShapeError(f"{self._label} has {count} inputs, of which it scans {self.n_scanned}")
        directions = self._attrs.get("scan_input_directions", self._attrs.get("directions", (0,) * self.n_scanned))
        self.input_reverse = tuple(bool(d) for d in directions)

    def input_axes(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """The axis that each scan input is cut along, counted from the front."""
        given = self._attrs.get("scan_input_axes", (0,) * self.n_scanned)
        if any(not -r <= a < r for a, r in zip(given, ranks, strict=True)):
            raise ShapeError(f"{self._label} scans along axes {given} of inputs of rank {tuple(ranks)}")
        return tuple(a % r for a, r in zip(given, ranks, strict=True))

    def length(self, shapes: Sequence[tuple[int, ...]], axes: Sequence[int]) -> int:
        """Number of iterations, on which all scan inputs must agree."""
        lengths = [s[a] for s, a in zip(shapes, axes, strict=True)]
        if any(n != lengths[0] for n in lengths):
            raise ShapeError(f"{self._label} scans inputs of different lengths {sorted(lengths)}")
        return lengths[0]

    def output_axes(self, count: int) -> tuple[int, ...]:
        """The new axis of each scan output."""
        return tuple(self._attrs.get("scan_output_axes", (0,) * count))

    def output_reverse(self, count: int) -> tuple[bool, ...]:
        """Whether each scan output is filled from its end."""
        return tuple(bool(d) for d in self._attrs.get("scan_output_directions", (0,) * count))


class MapTask(BodyTask):
    """SequenceMap: the body runs once for each element of the first sequence."""

    reason = "its body runs once for each element of a sequence"

    def iterate(self, values: Values, runner: Runner) -> list[Any]:
        ins = [self.value(values, i) for i in range(len(self.item.inputs))]
        first, rest = ins[0], ins[1:]
        results: list[list[Any]] = [[] for _ in self.body.graph.outputs]
        for i, element in enumerate(first):
            others = [v[i] if isinstance(v, (list, tuple)) else v for v in rest]
            for row, out in zip(results, self.body.run([element, *others], values, runner), strict=True):
                row.append(out)
        return list(results)


def _number(value: Any) -> Any:
    array = np.asarray(value)
    if array.size != 1:
        raise ShapeError(f"a trip count or condition must hold one element, got shape {array.shape}")
    return array.reshape(()).item()


def _shaped(scalar: Any, info: ValueInfo) -> Any:
    """The scalar as the body declares it: some exporters declare a vector of one element."""
    return scalar.reshape(1) if info.shape is not None and len(info.shape) == 1 else scalar


def _stack(rows: Sequence[Any], axis: int, info: ValueInfo) -> Any:
    """Rows along a new axis; without any, an empty tensor of the declared type."""
    if not rows:
        dims = [d if isinstance(d, int) else 0 for d in info.shape or ()]
        dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 0)
        return np.empty(dims, info.dtype.np if info.dtype is not None else np.float32)
    shapes = {r.shape for r in rows}
    if len(shapes) > 1:
        raise ModelError(f"scan output '{info.name}' has different shapes in different iterations: {sorted(shapes)}")
    return np.stack(rows, axis)


def _pad_stack(rows: Sequence[Any]) -> Any:
    """Batch rows stacked; shorter ones are filled with zeros at the end (Scan of opset 8 with sequence lengths)."""
    arrays = [np.asarray(r) for r in rows]
    shape = np.max([a.shape for a in arrays], axis=0) if arrays[0].ndim else ()
    out = np.zeros((len(arrays), *shape), arrays[0].dtype)
    for i, a in enumerate(arrays):
        filled: Any = (i, *(slice(d) for d in a.shape))
        out[filled] = a
    return out
