"""FlowRun: runs the steps of a bundle's control flow in order, on arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import BundleError, OpaliteError
from ....ir.constants.lazy_array import LazyArray
from ....plan.control_flow import Constant, FirstRows, Flow, HostNode, Rename, Rows, RunLoop, RunProgram, Switch
from ....plan.program import HostStep
from ...execute.host_operators import HostRunner

Array = np.ndarray[Any, Any]
RunOne = Callable[[int, Sequence[Any]], list[Any]]
"""Runs a program by number on its inputs; the caller owns the outputs."""


class FlowRun:
    """One run of a flow."""

    def __init__(self, run: RunOne, run_host: HostRunner, check: Callable[[], None] | None) -> None:
        """check: raises if the run is cancelled."""
        self._run, self._run_host, self._check = run, run_host, check

    def check(self) -> None:
        """Raise if the run is cancelled; called before each iteration."""
        if self._check is not None:
            self._check()

    def outputs(self, flow: Flow, feeds: Mapping[str, Any]) -> list[Any]:
        """The model's outputs in order, owned by the caller. BundleError for a malformed flow."""
        values = {name: np.asarray(array) for name, array in feeds.items()}
        borrowed = {id(array) for array in values.values()}
        try:
            self._steps(flow.steps, values, borrowed)
            found = [values[name] for name in flow.outputs]
        except (AttributeError, LookupError, TypeError, ValueError) as e:
            raise BundleError(
                f"the bundle's steps cannot run ({type(e).__name__}: {e}); compile the model again"
            ) from e
        return [a.copy() if id(a) in borrowed else a for a in found]

    def _steps(self, steps: Sequence[Any], values: dict[str, Any], borrowed: set[int]) -> None:
        for step in steps:
            match step:
                case RunProgram():
                    made = self._run(step.program, [values[name] for name in step.inputs])
                    values.update((name, made[number]) for name, number in step.outputs)
                case Rename():
                    values[step.name] = values[step.source]
                case Constant():
                    array = step.array.read() if isinstance(step.array, LazyArray) else step.array
                    values[step.name] = array
                    borrowed.add(id(array))
                case FirstRows():
                    values[step.name] = values[step.source][: max(0, int(_number(values[step.count])))]
                case HostNode():
                    self._host(step, values)
                case Switch():
                    taken = bool(_number(values[step.condition]))
                    self._steps(step.if_true if taken else step.if_false, values, borrowed)
                case RunLoop():
                    self._repeat(step, values, borrowed)
                case _:
                    raise TypeError(f"{type(step).__name__} is no step")

    def _host(self, step: HostNode, values: dict[str, Any]) -> None:
        host = HostStep(step.op_type, step.domain, step.opset, step.proto, (), (), step.node)
        try:
            found = iter(self._run_host(host, [values[name] if name else None for name in step.inputs]))
        except OpaliteError as e:
            raise e.add_context(f"while running {step.node} on the host") from e
        values.update((name, np.asarray(next(found))) for name in step.outputs if name)

    def _repeat(self, step: RunLoop, values: dict[str, Any], borrowed: set[int]) -> None:
        most = int(_number(values[step.limit])) if step.limit else None
        going = bool(_number(values[step.start])) if step.start else True
        scanned = [(inner, _parts(values[name], axis, back)) for name, inner, axis, back in step.scanned]
        if scanned:
            most = len(scanned[0][1])
        outer = {inner: values[name] for inner, name in step.captured}
        states = [values[name] for name, _, _ in step.states]
        rows: list[list[Array]] = [[] for _ in step.rows]
        number = 0
        while going and (most is None or number < most):
            self.check()
            inside = dict(outer)
            if step.counter[0]:
                inside[step.counter[0]] = np.full((1,) * step.counter[1], number, np.int64)
            if step.condition[0]:
                inside[step.condition[0]] = np.ones((1,) * step.condition[1], bool)
            inside.update((inner, state) for (_, inner, _), state in zip(step.states, states, strict=True))
            inside.update((inner, parts[number]) for inner, parts in scanned)
            self._steps(step.body, inside, borrowed)
            states = [inside[after] for _, _, after in step.states]
            for collected, row in zip(rows, step.rows, strict=True):
                collected.append(inside[row.name])
            going = bool(_number(inside[step.goes])) if step.goes else True
            number += 1
        results = [*states, *map(_stacked, step.rows, rows)]
        values.update((name, array) for name, array in zip(step.outputs, results, strict=True) if name)


def _number(array: Any) -> Any:
    """The one element of a condition or a count; ValueError for more elements."""
    return np.asarray(array).reshape(()).item()


def _parts(array: Any, axis: int, back: bool) -> Array:
    moved = np.moveaxis(np.asarray(array), axis, 0)
    return moved[::-1] if back else moved


def _stacked(rows: Rows, found: Sequence[Array]) -> Array:
    axis = rows.axis if rows.axis >= 0 else rows.axis + len(rows.shape) + 1
    if not found:
        return np.empty((*rows.shape[:axis], 0, *rows.shape[axis:]), rows.dtype.np)
    return np.stack(found[::-1] if rows.reverse else found, axis)
