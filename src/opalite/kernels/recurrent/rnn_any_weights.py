"""Recurrent layers with any weights, constant or not: one product for all inputs, then a work-group per sequence."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.operator import Cost
from ...ops.recurrent import GATES, Recurrent, directions
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Arg, Args, Launch, Scratch
from .rnn_activations import activation_macros
from .rnn_unit_blocks import KINDS


@register
class RnnAnyWeights(Kernel):
    """GROUP work-items share the hidden units of a sequence; on a CPU one work-item computes them all."""

    op = "Recurrent"
    space = {"GROUP": (64, 128, 256, 32, 1), "PACK": (4, 8, 16, 1)}

    def refuse(self, p: Problem) -> str | None:
        if p.node.as_(Recurrent).rounds_state and p.node.x.shape[1] > 1:
            return "a work-group walks one sequence, but the states of all are rounded together"
        return None if p.node.x.dtype.is_float else f"{p.node.x.dtype} has no arithmetic here"

    def illegal(self, p: Problem, params: Params) -> str | None:
        if params["GROUP"] > p.device.max_work_group_size:
            return f"a work-group has at most {p.device.max_work_group_size} work-items"
        return None

    def defaults(self, p: Problem) -> Params:
        if p.device.is_cpu:
            return {"GROUP": 1, "PACK": max(4, min(16, p.device.native_float_width))}
        return {"GROUP": min(64, p.device.max_work_group_size), "PACK": 4}

    def seconds(self, p: Problem, cost: Cost) -> float:
        """On a GPU only as many compute units as there are sequences have work."""
        seconds = super().seconds(p, cost)
        sequences = max(1, p.node.x.shape[1] * directions(p.node.as_(Recurrent)))
        return seconds if p.device.is_cpu else seconds * max(1.0, p.device.compute_units / sequences)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(Recurrent)
        steps, batch, inputs = node.x.shape
        hidden, count = op.hidden, directions(op)
        rows = count * GATES[op.kind] * hidden
        size = 8 if node.x.dtype is DType.FLOAT64 else 4
        w, r = node.input(1), node.input(2)
        b, lens, h0, c0, peep = (node.get(i) for i in range(3, 8))
        defines = {
            "STORAGE": STORAGE[node.x.type.storage],
            "PACK": params["PACK"],
            "KIND": KINDS[op.kind],
            "GATES": GATES[op.kind],
            "DIRECTIONS": count,
            "BACKWARD": op.direction == "reverse",
            "HAS_BIAS": b is not None,
            "HAS_LENS": lens is not None,
            "HAS_H0": h0 is not None,
            "HAS_C0": c0 is not None,
            "HAS_PEEP": peep is not None,
            "RESET_LATE": op.linear_before_reset,
            "COUPLED": op.input_forget,
            "ROUNDS": op.rounds_state,
        }
        z = Scratch("gates", max(steps * batch * rows, 1) * size)
        state, cell, reset = (
            Scratch(name, max(n * count * batch * hidden, 1) * size) for name, n in (("h", 2), ("c", 1), ("reset", 1))
        )

        def given(v: Value | None) -> Arg:
            return z if v is None else v  # never read: the HAS_ define is 0

        prelude = activation_macros(node, 1, p.device)
        product = Launch(
            "recurrent_inputs",
            {"x": node.x, "w": w, "b": given(b), "z": z, "lines": steps * batch, "inputs": inputs, "hidden": hidden},
            (rows, steps * batch),
            defines=defines,
            prelude=prelude,
        )
        args: Args = {"z": z, "r": r, "state": state, "cell": cell, "reset": reset}
        given_by_name = {"b": b, "lens": lens, "h0": h0, "c0": c0, "peep": peep}
        args |= {name: given(v) for name, v in given_by_name.items()}
        args |= dict(zip(("y", "yh", "yc"), (*node.outputs, state, state), strict=False))
        args |= {"steps": steps, "batch": batch, "hidden": hidden}
        group = params["GROUP"]
        walk = Launch("recurrent_steps", args, (group, batch, count), (group, 1, 1), defines, prelude)
        return [product, walk] if steps else [walk]
