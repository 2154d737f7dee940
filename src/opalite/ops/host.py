"""HostOp: an ONNX operator without a canonical form, run on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.tensor_type import TensorType
from .operator import Array, Arrays, Op, Types, frozen_op

BY_PYTHON = "Python computes it, by onnx's reference evaluator"
"""Prefix of the reason of nodes that run by onnx's reference evaluator."""

HostRunner = Callable[[str, str, int, bytes, Sequence[Any]], list[Any]]
_runner: list[HostRunner] = []


def set_host_runner(runner: HostRunner) -> None:
    """Register the function that executes HostOps: runner(op_type, domain, opset, proto, inputs) -> outputs.

    The importer registers the function, so that opalite.ops does not depend on the model format.
    """
    _runner[:] = [runner]


@frozen_op
class HostOp(Op):
    """An ONNX operator with outputs of known type, run on the host.

    Attributes: op_type, domain, opset (the domain's version), proto (serialized NodeProto with attributes), types
    (TensorTypes of the outputs), reason (of running on the host).
    """

    op_type: str
    domain: str
    opset: int
    proto: bytes
    types: tuple[TensorType, ...]
    reason: str = ""

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return list(self.types)

    def reference(self, arrays: Arrays) -> list[Array]:
        if not _runner:
            raise NotImplementedError("no host runner is registered; import opalite.importer first")
        return _runner[0](self.op_type, self.domain, self.opset, self.proto, arrays)
