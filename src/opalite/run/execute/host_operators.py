"""HostOperators: operators of a Program that run on the host, by onnx's reference or a canonical operator's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...cl.memory.device_tensor import DeviceTensor
from ...errors import OpaliteError
from ...plan.program import HostStep, ReferenceStep

Array: TypeAlias = np.ndarray[Any, Any]
HostRunner: TypeAlias = Callable[[HostStep, Sequence[Any]], Sequence[Any]]
"""Runs one ONNX operator on its inputs, None where one is absent."""


class HostOperators:
    """Runs host operators with `runner`."""

    def __init__(self, runner: HostRunner | None) -> None:
        self._runner = runner

    def __call__(self, step: HostStep | ReferenceStep, host_values: list[Any]) -> None:
        """Run one operator. `host_values` has its inputs by slot, and gets its outputs."""
        ins: list[Any] = [None if number < 0 else host_values[number] for number in step.inputs]
        if any(type(v) is DeviceTensor for v in ins):
            ins = [on_host(v) for v in ins]
        try:
            if isinstance(step, ReferenceStep):
                outs: Sequence[Any] = [_own(v, ins) for v in step.op.reference(ins)]
            else:
                assert self._runner is not None, f"{step.node} needs the onnx package"
                outs = self._runner(step, ins)
        except OpaliteError as e:
            raise e.add_context(f"while running {step.node} on the host") from e
        for number, value in zip(step.outputs, outs, strict=False):
            host_values[number] = value


def on_host(value: Any) -> Any:
    """The value as an array: a DeviceTensor is downloaded."""
    return value.numpy() if isinstance(value, DeviceTensor) else value


def _own(result: Array, inputs: Sequence[Any]) -> Array:
    """`result` in memory of its own: a view of an input, which may be the caller's, is copied."""
    shared = any(v is not None and np.may_share_memory(result, v) for v in inputs)
    return result.copy() if shared else result
