"""Products with weights of few bits may round their rows to 8 bits, where a session asks for it."""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Node
from ...ir.patch import Patch
from ...ir.precision import PrecisionPolicy
from ...ops.quantized_matmul import QuantizedMatMul
from ..rewrite_driver import Rule, Sweep


def round_rows(policy: PrecisionPolicy) -> Rule:
    """Rule for what `policy` says of QuantizedMatMul, as `accuracy_level` 4 says it in a model. Those that it keeps in
    fp32 by name stay exact, and so do those whose weights stand for a table's values."""

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if not isinstance(op, QuantizedMatMul) or op.rounds or op.table:
            return None
        if node.name in policy.fp32:
            return policy.fp32[node.name] or "the policy keeps it in fp32"
        return Patch.replacing(node, node.with_(op=replace(op, rounds=True)))

    return rule
