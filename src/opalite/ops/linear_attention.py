"""LinearAttention: attention without softmax, by a fixed-size recurrent state."""

from __future__ import annotations

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, need, tensor


@frozen_op
class LinearAttention(Op):
    """Linear attention: for each t in order, with a state S [dk,dv] for each batch entry and head.

        S = exp(decay_t) S;  u = v_t, or beta_t (v_t - S^T k_t);  S = S + k_t u^T;  y_t = scale S^T q_t

    Inputs, all float32: q [B,T,queries*dk], k [B,T,heads*dk], v [B,T,heads*dv], state [B,heads,dk,dv] before the first
    position, decay [B,T,heads] or [B,T,heads*dk] (by rows of S), or none (no decay), beta [B,T,heads] or [B,T,1], or
    none (u is v). Outputs: y [B,T,max(queries,heads)*dv], the state after the last position. One of queries and heads
    divides the other: neighbours share a state, or a query. Update rules: Yang et al., 2024 (Gated DeltaNet).
    """

    queries: int
    heads: int
    scale: float

    arity = 6

    def check_shape(self, ins: Types) -> None:
        q, k, v, state = (tensor(ins, i, n) for i, n in enumerate(("q", "k", "v", "state")))
        few, many = sorted((self.queries, self.heads))
        need(few > 0 and many % few == 0, f"queries and heads divide one another, got {self.queries} and {self.heads}")
        need(k.rank == 3 and k.shape[2] % self.heads == 0, f"k must be [B,T,{self.heads}*dk], got {k}")
        batch, steps, keys = k.shape[0], k.shape[1], k.shape[2] // self.heads
        fits = q.shape == (batch, steps, self.queries * keys)
        need(fits, f"q must be [{batch},{steps},{self.queries}*{keys}], got {q}")
        wide = v.rank == 3 and v.shape[:2] == (batch, steps) and v.shape[2] % self.heads == 0
        need(wide, f"v must be [{batch},{steps},{self.heads}*dv], got {v}")
        shape = (batch, self.heads, keys, v.shape[2] // self.heads)
        need(state.shape == shape, f"state must be {list(shape)}, got {state}")
        for i, name, widths in ((4, "decay", (self.heads, self.heads * keys)), (5, "beta", (1, self.heads))):
            x = ins[i] if i < len(ins) else None
            fits = x is None or any(x.shape == (batch, steps, w) for w in widths)
            need(fits, f"{name} must be [{batch},{steps},{widths[0]} or {widths[1]}], got {x}")
        for t in ins:
            need(t is None or t.dtype is DType.FLOAT32, f"inputs must be float32, got {t}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        v, state = tensor(ins, 2, "v"), tensor(ins, 3, "state")
        shape = (*v.shape[:2], max(self.queries, self.heads) * state.shape[3])
        return [TensorType(v.dtype, shape), TensorType(state.dtype, state.shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        wide = [None if a is None else a.astype(np.float64) for a in (*arrays, None, None)[:6]]
        q, k, v, state = (a for a in wide[:4] if a is not None)
        decay, beta = wide[4:]
        batch, steps, heads = k.shape[0], k.shape[1], self.heads
        q, k, v = (x.reshape(batch, steps, n, -1) for x, n in ((q, self.queries), (k, heads), (v, heads)))
        group = max(self.queries // heads, 1)
        q = np.repeat(q, max(heads // self.queries, 1), 2).reshape(batch, steps, heads, group, -1)
        if decay is not None:
            decay = np.exp(decay.reshape(batch, steps, heads, -1, 1))
        y = np.zeros((batch, steps, heads, group, v.shape[-1]))
        for t in range(steps):
            if decay is not None:
                state = state * decay[:, t]
            u = v[:, t]
            if beta is not None:
                u = (u - np.einsum("bhkv,bhk->bhv", state, k[:, t])) * beta[:, t, :, None]
            state = state + k[:, t, :, :, None] * u[:, :, None]
            y[:, t] = self.scale * np.einsum("bhkv,bhgk->bhgv", state, q[:, t])
        return [y.reshape(batch, steps, -1).astype(np.float32), state.astype(np.float32)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        state, steps = tensor(ins, 3, "state"), tensor(ins, 1, "k").shape[1]
        rule = 2 if len(ins) > 5 and ins[5] is not None else 0
        each = 2 + rule + 2 * max(self.queries // self.heads, 1)
        moved = sum(t.nbytes for t in (*ins, *outs) if t is not None)
        return Cost(float(steps * state.count * each), moved)
