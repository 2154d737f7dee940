"""Dynamic quantization of activations to 8 bits in products with low-bit weights, on request of a session."""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Node
from ...ir.patch import Patch
from ...ir.precision import PrecisionPolicy
from ...ops.quantized_matmul import QuantizedMatMul
from ..rewrite_driver import Rule, Sweep


def quantize_activations(policy: PrecisionPolicy) -> Rule:
    """Rule: QuantizedMatMul may quantize its activations as `policy` says, like `accuracy_level` 4 in a model.

    Nodes that the policy keeps in fp32, and nodes with table weights, stay exact.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if not isinstance(op, QuantizedMatMul) or op.rounds or op.table:
            return None
        if node.name in policy.fp32:
            return policy.fp32[node.name] or "the policy keeps it in fp32"
        return Patch.replacing(node, node.with_(op=replace(op, rounds=True)))

    return rule
