"""The runner of ONNX operators on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ....errors import OpaliteError
from ....plan.program import HostStep
from ...execute.host_operators import HostRunner


def onnx_runner() -> HostRunner:
    """A function that runs ONNX operators on the host; it imports onnx at its first call."""

    @cache
    def find(node: str) -> Callable[..., Sequence[Any]]:
        try:
            from ....importer.host.onnx_reference import run_host
        except ImportError as e:
            raise OpaliteError(f"{node} runs on the host, for which the onnx package must be installed") from e
        return run_host

    def run(step: HostStep, inputs: Sequence[Any]) -> Sequence[Any]:
        run_host = find(step.node)
        return run_host(step.op_type, step.domain, step.opset, step.proto, inputs)

    return run
