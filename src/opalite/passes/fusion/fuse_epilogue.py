"""Fuse elementwise chains, residual adds included, into the kernel that writes their input (epilogue fusion).

The chain becomes the writer's epilogue, so that the intermediate tensor is never stored. It is fused only if the kernel
chosen for the writer accepts the epilogue. TensorFlow Lite calls this linking.
"""

from __future__ import annotations

from functools import partial

from ...expr.expression import In, Ref
from ...expr.trace_function import Builder
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.place import Memory
from ...ir.symbols import equal_guarded
from ...kernels.kernel import Tier
from ...layout.kernel_candidates import Answers, find_options
from ...ops.elementwise import Elementwise
from ..rewrite_driver import Rule, Sweep, joined_origin

_SMALL = (DType.INT32, DType.INT8, DType.UINT8)
"""Integer types that an epilogue on integer sums may read."""


def fuse_epilogues(
    device: DeviceInfo,
    memory: Memory | None = Memory.BUFFER,
    tier: Tier = "optimized",
    builds: bool = True,
    answers: Answers | None = None,
) -> Rule:
    """Rule: the kernel that computes a value also applies the expression that alone reads it.

    memory, tier, builds, answers: as in `find_options`.
    """
    ask = partial(find_options, device=device, memory=memory, tier=tier, builds=builds, answers=answers)

    fastest: dict[Node, str | None] = {}  # name of each writer's fastest kernel, cached

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, Elementwise):
            return None
        writers = []
        for i, v in enumerate(node.inputs):
            w = v.producer if v is not None else None
            if v is None or w is None or not w.op.takes_epilogue or v is not w.y or len(w.outputs) != 1:
                continue
            same = v.dtype is node.y.dtype and v.dtype.is_float
            if sweep.only_use(v) is node and equal_guarded(v.shape, node.y.shape) and (same or w.op.sums is not None):
                writers.append((sweep.position[w], i, w))
        reason = None
        for _, i, writer in sorted(writers, key=lambda t: t[0], reverse=True):
            if writer.precision is not node.precision and writer.op.sums is None:
                reason = f"its input is computed in {writer.precision.value}, this in {node.precision.value}"
                continue
            linked = _linked(writer, node, i)
            if isinstance(linked, str):
                reason = linked
                continue
            if writer not in fastest:
                before, _ = ask(writer)
                fastest[writer] = next((o.kernel.name for o in before if o.kernel is not None), None)
            best = fastest[writer]
            # With buffers, a kernel's acceptance does not depend on the other kernels.
            asked = best if memory is Memory.BUFFER else None
            after, refusals = ask(linked, timed=False, only=asked)
            kept = {o.kernel.name for o in after if o.kernel is not None}
            if best is not None and best not in kept:
                reason = f"{best} refuses the epilogue: {refusals.get(best, 'no binding')}"
                continue
            if not kept:
                reason = "no kernel accepts the epilogue"
                continue
            return Patch.replacing(node, linked, also=[writer])
        return reason

    return rule


def _linked(writer: Node, node: Node, operand: int) -> Node | str:
    """`writer` with the expression of `node` appended to its epilogue."""
    arity = writer.op.arity
    inputs: list[Value | None] = list(writer.inputs[:arity])
    inputs += [None] * (arity - len(inputs))
    extra: list[Value] = []
    dtypes = [writer.op.sums or writer.y.dtype]

    def operand_ref(v: Value) -> Ref:
        if v in extra:
            return In(1 + extra.index(v))
        extra.append(v)
        dtypes.append(v.dtype)
        return In(len(extra))

    inner = writer.epilogue
    inner_refs = [operand_ref(v) for v in writer.inputs[arity:] if v is not None]
    outer = node.as_(Elementwise).expr
    if outer.uses_coords:
        return "the expression depends on coordinates"
    written = node.inputs[operand]
    outer_refs = [None if v is written else operand_ref(v) for v in node.inputs if v is not None]
    b = Builder(dtypes)
    value: Ref = In(0) if inner is None else b.inline(inner, [In(0), *inner_refs])
    expr = b.finish(b.inline(outer, [value if r is None else r for r in outer_refs]))
    for ref_dtype in expr.dtypes[1:]:
        if not ref_dtype.is_float and (writer.op.sums is None or ref_dtype not in _SMALL):
            return f"an operand is {ref_dtype}"
    outputs = [new_value(node.y.name, node.y.type)]
    origin = joined_origin(writer, node)
    made = writer.with_(inputs=[*inputs, *extra], outputs=outputs, epilogue=expr, origin=origin)
    like = writer if writer.op.sums is None else node  # integer sums have no precision of their own
    made.precision, made.precision_reason = like.precision, like.precision_reason
    return made
