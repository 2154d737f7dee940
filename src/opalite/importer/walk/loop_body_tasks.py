"""Tasks with a loop body: Loop, Scan and SequenceMap.

The body is a model of its own. The caller of an import passes a Runner, which compiles the body and runs it on the
device. The Runner may run many iterations at once if none of them needs the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...errors import ModelError, ShapeError
from ..proto.decode import ValueInfo
from ..proto.graphdef import GraphDef
from .host_tasks import ComputedTask, Runner, Values, number_of
from .model_importer import ModelImporter
from .name_scopes import Item

FIRST_WATCHED = 1024
"""Iterations after which a loop without a limit is looked at: whether the last one has changed anything."""


@dataclass(frozen=True)
class LoopCarried:
    """Loop-carried values of a body, by names in the body.

    counter: input for the iteration number; condition: input and output of the loop condition; '' if absent. states:
    pairs of an input and the output that it takes from the iteration before. rows: outputs that are stacked (scan
    outputs). scanned: inputs that take one row of an array in each iteration.
    """

    counter: str
    condition: tuple[str, str]
    states: tuple[tuple[str, str], ...]
    rows: tuple[str, ...]
    scanned: tuple[str, ...] = ()


class BatchedRunner(Protocol):
    """A Runner that can run many iterations at once."""

    def repeat(
        self,
        importer: ModelImporter,
        feeds: Mapping[str, Any],
        carried: LoopCarried,
        first: int,
        most: int | None,
        scanned: Sequence[Any],
    ) -> tuple[int, bool, list[Any], list[Any]] | None:
        """Run iterations from number `first` on; None if they have to run one by one for now.

        feeds: of the first of them. most: largest number of iterations; None for no limit. scanned: the rows of each
        scanned input, from iteration `first` on. Returns (iterations run, whether the loop goes on, final states, rows
        along a new first axis).
        """


def _batched_runner(runner: Runner) -> BatchedRunner | None:
    return runner if hasattr(runner, "repeat") else None


@dataclass(frozen=True)
class Body:
    """A body as a model. `captured` pairs its names of outer values with their global names."""

    graph: GraphDef
    importer: ModelImporter
    captured: tuple[tuple[str, str], ...]

    def run(self, inputs: Sequence[Any], values: Values, runner: Runner) -> list[Any]:
        """Return the outputs of one run of the body."""
        return list(runner(self.importer, self.feeds(inputs, values)))

    def feeds(self, inputs: Sequence[Any], values: Values) -> dict[str, Any]:
        """Return the feeds of one run of the body, by its names."""
        if len(inputs) != len(self.graph.inputs):
            raise ShapeError(f"body '{self.graph.name}' has {len(self.graph.inputs)} inputs, got {len(inputs)}")
        feeds = {local: values[outer] for local, outer in self.captured}
        feeds.update((info.name, v) for info, v in zip(self.graph.inputs, inputs, strict=True))
        return feeds


class BodyTask(ComputedTask):
    """Task with a body."""

    reason = "its body runs once for each iteration"

    def __init__(self, item: Item, body: Body) -> None:
        super().__init__(item)
        self.body = body

    def run_loop(
        self,
        values: Values,
        runner: Runner,
        carried: LoopCarried,
        state: list[Any],
        columns: Sequence[ScanOutput],
        inputs: Callable[[int, Sequence[Any]], list[Any]],
        most: int | None,
        scanned: Sequence[Any] = (),
    ) -> list[Any]:
        """Run all iterations and return the final states; rows are added to `columns`.

        inputs: function of the iteration number and the states that returns the body's inputs. most: largest number of
        iterations; None for no limit. scanned: the rows of each scanned input. Many iterations run at once if the
        runner can.
        """
        batched = _batched_runner(runner)
        ends = bool(carried.condition[1])  # whether an iteration may end the loop
        after = int(ends) + len(state)
        going = True
        i = due = 0
        # Without a limit, and without the iteration's number, equal states mean equal iterations for ever.
        may_hang = most is None and not columns and not self._reads(carried.counter)
        watched = FIRST_WATCHED if may_hang else 0
        while going and (most is None or i < most):
            given, before = inputs(i, state), state
            if batched is not None and i >= due:
                left, feeds = None if most is None else most - i, self.body.feeds(given, values)
                found = batched.repeat(self.body.importer, feeds, carried, i, left, [a[i:] for a in scanned])
                if found is not None:
                    made, more, state, rows = found
                    going = more or not ends
                    for column, some in zip(columns, rows, strict=True):
                        column.extend(some)
                    i += made
                    if may_hang and going:
                        self._check_progress(before, state)
                    continue
                due = max(2 * i, i + 1)
            outs = self.body.run(given, values, runner)
            going = not ends or bool(number_of(outs[0]))
            state = outs[int(ends) : after]
            for column, row in zip(columns, outs[after:], strict=True):
                column.add(np.asarray(row))
            i += 1
            if i == watched and going:
                self._check_progress(before, state)
                watched *= 2
        return state

    def _reads(self, name: str) -> bool:
        """Whether the body reads one of its inputs."""
        graph = self.body.graph
        return any(name in node.reads for node in graph.nodes) or any(v.name == name for v in graph.outputs)

    def _check_progress(self, before: Sequence[Any], after: Sequence[Any]) -> None:
        """Raise ModelError if an iteration that is to be repeated has changed nothing."""
        if any(v is None or isinstance(v, (list, tuple)) for v in (*before, *after)):
            return
        arrays = [[np.asarray(v) for v in values] for values in (before, after)]
        if all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(*arrays, strict=True)):
            raise ModelError("the loop would never end: its condition holds, and an iteration changes nothing")


class LoopTask(BodyTask):
    """Loop: the body runs at most M times, while its condition holds."""

    def compute(self, values: Values, runner: Runner) -> list[Any]:
        limit, go_on = self.value(values, 0), self.value(values, 1)
        iterations = None if limit is None else number_of(limit)
        going = True if go_on is None else bool(number_of(go_on))
        state = [self.value(values, i) for i in range(2, len(self.item.inputs))]
        infos, ends = self.body.graph.inputs, self.body.graph.outputs
        carried = LoopCarried(
            infos[0].name,
            (infos[1].name, ends[0].name),
            tuple((i.name, o.name) for i, o in zip(infos[2:], ends[1 : 1 + len(state)], strict=True)),
            tuple(o.name for o in ends[1 + len(state) :]),
        )

        def inputs(i: int, state: Sequence[Any]) -> list[Any]:
            return [shaped_as(np.asarray(i, np.int64), infos[0]), shaped_as(np.asarray(True), infos[1]), *state]

        columns = [ScanOutput(o) for o in ends[1 + len(state) :]]
        if going:
            state = self.run_loop(values, runner, carried, state, columns, inputs, iterations)
        return [*state, *(c.stack(0) for c in columns)]


class ScanTask(BodyTask):
    """Scan: the body runs once for each slice of the scan inputs."""

    def compute(self, values: Values, runner: Runner) -> list[Any]:
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
        infos, ends = self.body.graph.inputs, self.body.graph.outputs
        states = zip(infos[: plan.n_states], ends[: plan.n_states], strict=True)
        names = tuple((a.name, b.name) for a, b in states)
        ends = ends[plan.n_states :]
        rows = [a[::-1] if back else a for a, back in zip(rows, plan.input_reverse, strict=True)]
        scanned_names = tuple(v.name for v in infos[plan.n_states :])
        carried = LoopCarried("", ("", ""), names, tuple(o.name for o in ends), scanned_names)

        def inputs(i: int, state: Sequence[Any]) -> list[Any]:
            return [*state, *(a[i] for a in rows)]

        columns = [ScanOutput(o) for o in ends]
        state = self.run_loop(values, runner, carried, state, columns, inputs, length, rows)
        outputs = zip(columns, plan.output_axes(len(ends)), plan.output_reverse(len(ends)), strict=True)
        return [*state, *(c.stack(axis, back) for c, axis, back in outputs)]


class ScanPlan:
    """Attributes of a Scan node, with defaults."""

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
        """Return the axis along which each scan input is cut, counted from the front."""
        given = self._attrs.get("scan_input_axes", (0,) * self.n_scanned)
        if any(not -r <= a < r for a, r in zip(given, ranks, strict=True)):
            raise ShapeError(f"{self._label} scans along axes {given} of inputs of rank {tuple(ranks)}")
        return tuple(a % r for a, r in zip(given, ranks, strict=True))

    def length(self, shapes: Sequence[tuple[int, ...]], axes: Sequence[int]) -> int:
        """Return the number of iterations, which all scan inputs must share."""
        lengths = [s[a] for s, a in zip(shapes, axes, strict=True)]
        if any(n != lengths[0] for n in lengths):
            raise ShapeError(f"{self._label} scans inputs of different lengths {sorted(lengths)}")
        return lengths[0]

    def output_axes(self, count: int) -> tuple[int, ...]:
        """Return the new axis of each scan output."""
        return tuple(self._attrs.get("scan_output_axes", (0,) * count))

    def output_reverse(self, count: int) -> tuple[bool, ...]:
        """Return, for each scan output, whether it is filled from its end."""
        return tuple(bool(d) for d in self._attrs.get("scan_output_directions", (0,) * count))


class MapTask(BodyTask):
    """SequenceMap: the body runs once for each element of the first sequence."""

    reason = "its body runs once for each element of a sequence"

    def compute(self, values: Values, runner: Runner) -> list[Any]:
        ins = [self.value(values, i) for i in range(len(self.item.inputs))]
        first, rest = ins[0], ins[1:]
        results: list[list[Any]] = [[] for _ in self.body.graph.outputs]
        for i, element in enumerate(first):
            others = [v[i] if isinstance(v, (list, tuple)) else v for v in rest]
            for row, out in zip(results, self.body.run([element, *others], values, runner), strict=True):
                row.append(out)
        return list(results)


def shaped_as(scalar: Any, info: ValueInfo) -> Any:
    """Reshape the scalar as the body declares it: some exporters declare a vector of one element."""
    return scalar.reshape(1) if info.shape is not None and len(info.shape) == 1 else scalar


class ScanOutput:
    """Collects the rows of one scan output."""

    def __init__(self, info: ValueInfo) -> None:
        self._info = info
        self._parts: list[Any] = []  # each of one or more rows

    def add(self, row: Any) -> None:
        """Add a row."""
        self._parts.append(row[None])

    def extend(self, rows: Any) -> None:
        """Add rows along the first axis."""
        self._parts.append(rows)

    def stack(self, axis: int, reverse: bool = False) -> Any:
        """Stack all rows along a new axis; without rows, return an empty tensor of the declared type."""
        info, parts = self._info, self._parts
        if not parts:
            dims = [d if isinstance(d, int) else 0 for d in info.shape or ()]
            dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 0)
            return np.empty(dims, info.dtype.np if info.dtype is not None else np.float32)
        shapes = {p.shape[1:] for p in parts}
        if len(shapes) > 1:
            raise ModelError(
                f"scan output '{info.name}' has different shapes in different iterations: {sorted(shapes)}"
            )
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if reverse:
            whole = whole[::-1]
        at = axis if axis >= 0 else axis + whole.ndim
        return np.ascontiguousarray(np.moveaxis(whole, 0, at) if at else whole)


def _pad_stack(rows: Sequence[Any]) -> Any:
    """Stack batch entries; shorter ones are padded with zeros (Scan of opset 8 with sequence lengths)."""
    arrays = [np.asarray(r) for r in rows]
    shape = np.max([a.shape for a in arrays], axis=0) if arrays[0].ndim else ()
    out = np.zeros((len(arrays), *shape), arrays[0].dtype)
    for i, a in enumerate(arrays):
        filled: Any = (i, *(slice(d) for d in a.shape))
        out[filled] = a
    return out
