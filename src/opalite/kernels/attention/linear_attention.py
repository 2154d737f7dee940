"""LinearAttention: each work-item holds some columns of a head's state and iterates over all positions."""

from __future__ import annotations

from ...cost.cost_tables import SequentialSteps
from ...ops.linear_attention import LinearAttention
from ...ops.operator import Cost
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, Scratch, ceil_div


@register
class LinearAttentionSequential(Kernel):
    """Sequential recurrence; each work-item reads only the state columns that it wrote, so they stay in cache."""

    op = "LinearAttention"
    space = {"VEC": (1, 4, 16, 8, 2), "WG": (64, 16, 128, 256)}

    def defaults(self, p: Problem) -> Params:
        return {"VEC": min(16, p.device.native_float_width), "WG": 4} if p.device.is_cpu else {"VEC": 1, "WG": 64}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(LinearAttention)
        k, state = node.input(1), node.input(3)
        decay, beta = node.get(4), node.get(5)
        batch, heads, dk, dv = state.shape
        chunks = ceil_div(dv, params["VEC"])
        args: Args = {"q": node.x, "k": k, "v": node.input(2), "state": state}
        defines = {"STORAGE": STORAGE[node.y.type.storage], "VEC": params["VEC"], "DELTA": 0, "GATED": 0}
        if decay is not None:
            args["decay"] = decay
            defines["GATED"] = 1 if decay.shape[2] == heads else 2
        if beta is not None:
            args["beta"] = beta
            defines |= {"DELTA": 1, "ONE_RATE": int(beta.shape[2] == 1)}
        items = batch * heads * chunks
        if params["VEC"] > 1:
            args["held"] = Scratch("state", items * dk * params["VEC"] * node.y.type.storage.size)
        args |= {"y": node.y, "after": node.outputs[1], "items": items, "chunks": chunks, "steps": k.shape[1]}
        args |= {"queries": op.queries, "heads": heads, "dk": dk, "dv": dv, "scale": op.scale}
        return [Launch("linear_attention", args, (items,), (params["WG"],), defines)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        state = p.node.input(3)
        walk = SequentialSteps.named(self.cost_name, p.device)
        rows = p.node.input(1).shape[1] * state.shape[2]
        turns = walk.turns(state.type.count // max(state.shape[2], 1), p.device)
        return cost.bytes / p.device.bandwidth + turns * rows * walk.step_s + p.device.launch_s
