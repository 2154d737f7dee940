"""HostOp: one ONNX operator that has no canonical form and runs on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.tensor_type import TensorType
from .operator import Array, Op, Types, register_op

BY_PYTHON = "Python computes it, by onnx's reference evaluator"
"""How the reason of a node begins that neither a kernel nor NumPy code of Opalite's computes."""

HostRunner = Callable[[str, str, int, bytes, Sequence[Any]], list[Any]]
_runner: list[HostRunner] = []


def set_host_runner(runner: HostRunner) -> None:
    """Say who executes HostOps: runner(op_type, domain, opset, proto, inputs) -> outputs.

    This package knows nothing of the model format; the importer registers the function that does.
    """
    _runner[:] = [runner]


@register_op
@dataclass(frozen=True, slots=True)
class HostOp(Op):
    """Any ONNX operator with outputs of known type.

    Attributes: op_type, domain, opset (the domain's version), proto (serialised NodeProto with attributes),
    types (TensorTypes of the outputs).
    """

    op_type: str
    domain: str
    opset: int
    proto: bytes
    types: tuple[TensorType, ...]
    reason: str = ""

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return list(self.types)

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        if not _runner:
            raise NotImplementedError("no host runner is registered; import opalite.importer first")
        return _runner[0](self.op_type, self.domain, self.opset, self.proto, arrays)
