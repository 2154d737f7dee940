"""Recurrent layers with any weights, constant or not: one product for all inputs, then a work-group per sequence."""

from __future__ import annotations

from ...ir.graph import Value
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Arg, Args, Launch, Scratch
from .rnn_problem import RecurrentProblem, activation_macros


@register
class RnnAnyWeights(Kernel):
    """GROUP work-items share the hidden units of a sequence; on a CPU one work-item computes all units."""

    op = "Recurrent"
    problem = RecurrentProblem
    space = {"GROUP": (64, 128, 256, 32, 1), "PACK": (4, 8, 16, 1)}

    def refuse(self, p: RecurrentProblem) -> str | None:
        if p.op.rounds_state and p.node.x.shape[1] > 1:
            return "a work-group walks one sequence, but the states of all are rounded together"
        return None if p.node.x.dtype.is_float else f"{p.node.x.dtype} has no arithmetic here"

    def illegal(self, p: RecurrentProblem, params: Params) -> str | None:
        if params["GROUP"] > p.device.max_work_group_size:
            return f"a work-group has at most {p.device.max_work_group_size} work-items"
        return None

    def defaults(self, p: RecurrentProblem) -> Params:
        if p.device.is_cpu:
            return {"GROUP": 1, "PACK": max(4, min(16, p.device.native_float_width))}
        return {"GROUP": min(64, p.device.max_work_group_size), "PACK": 4}

    def seconds(self, p: RecurrentProblem, cost: Cost) -> float:
        """On a GPU only as many compute units as there are sequences have work."""
        seconds = super().seconds(p, cost)
        sequences = max(1, p.node.x.shape[1] * p.directions)
        return seconds if p.device.is_cpu else seconds * max(1.0, p.device.compute_units / sequences)

    def launch(self, p: RecurrentProblem, params: Params) -> list[Launch]:
        node, op = p.node, p.op
        steps, batch, inputs = node.x.shape
        hidden, count = op.hidden, p.directions
        rows = count * p.gates * hidden
        w, r = node.input(1), node.input(2)
        b, lens, h0, c0, peep = (node.get(i) for i in range(3, 8))
        defines = p.defines | {"PACK": params["PACK"], "GATES": p.gates, "DIRECTIONS": count, "ROUNDS": op.rounds_state}
        defines["RESET_LATE"] = op.linear_before_reset
        z = Scratch("gates", max(steps * batch * rows, 1) * p.acc_bytes)
        state, cell, reset = (
            Scratch(name, max(n * count * batch * hidden, 1) * p.acc_bytes)
            for name, n in (("h", 2), ("c", 1), ("reset", 1))
        )

        def given(v: Value | None) -> Arg:
            return z if v is None else v  # never read: the HAS_ define is 0

        prelude = activation_macros(p, 1)
        first: Args = {"x": node.x, "w": w, "b": given(b), "z": z, "lines": steps * batch, "inputs": inputs}
        first |= {"hidden": hidden}
        product = Launch("recurrent_inputs", first, (rows, steps * batch), None, defines, prelude)
        args: Args = {"z": z, "r": r, "state": state, "cell": cell, "reset": reset}
        given_by_name = {"b": b, "lens": lens, "h0": h0, "c0": c0, "peep": peep}
        args |= {name: given(v) for name, v in given_by_name.items()}
        args |= dict(zip(("y", "yh", "yc"), (*node.outputs, state, state), strict=False))
        args |= {"steps": steps, "batch": batch, "hidden": hidden}
        group = params["GROUP"]
        walk = Launch("recurrent_steps", args, (group, batch, count), (group, 1, 1), defines, prelude)
        return [product, walk] if steps else [walk]
