"""A Recurrent node as kernels query it: sizes, refusals, defines, activations as macros, weights in blocks of units."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ...expr.trace_function import Sym, trace, where
from ...ir.dtype import DType
from ...ops.recurrent import CELL, FUNCTIONS, GATES, Recurrent, directions
from ..codegen.expression_code import generate
from ..codegen.vector_types import compute_type
from ..kernel import Problem
from ..launch import STORAGE, Array, Defines, Weight, ceil_div

Reorder = Callable[[Array, int, int], Array]
"""Function of the data, the number of gates and the units in a block. A negative number of gates is a GRU that
multiplies the state's share of its last gate by the reset gate."""


KINDS = {"lstm": 0, "gru": 1, "rnn": 2}
MOST_LAUNCHES = 512
_OPTIONAL = ("BIAS", "LENS", "H0", "C0", "PEEP")  # inputs 3 to 7


class RecurrentProblem(Problem):
    """A Recurrent node as kernels query it."""

    @cached_property
    def op(self) -> Recurrent:
        """The node's attributes."""
        return self.node.as_(Recurrent)

    @property
    def gates(self) -> int:
        """Gates of a unit."""
        return GATES[self.op.kind]

    @property
    def directions(self) -> int:
        """1, or 2 for a bidirectional layer."""
        return directions(self.op)

    @property
    def passes(self) -> int:
        """Passes over the state per step: a GRU whose reset gate acts on the state needs two."""
        return 2 if self.op.kind == "gru" and not self.op.linear_before_reset else 1

    @property
    def resets_late(self) -> bool:
        """Whether the reset gate of a GRU multiplies the state's share of the last gate."""
        return self.op.kind == "gru" and self.op.linear_before_reset

    @property
    def acc_bytes(self) -> int:
        """Bytes of an accumulator: 8 for float64, else 4, so that half states are accumulated in float32."""
        return 8 if self.node.x.type.storage is DType.FLOAT64 else 4

    @property
    def defines(self) -> Defines:
        """Defines that the kernels share."""
        op = self.op
        given = {f"HAS_{name}": self.node.get(i) is not None for i, name in enumerate(_OPTIONAL, 3)}
        defines = {"STORAGE": STORAGE[self.node.x.type.storage], "KIND": KINDS[op.kind], "COUPLED": op.input_forget}
        return defines | {"RESET_LATE": self.resets_late, "BACKWARD": op.direction == "reverse", **given}

    def weights_refusal(self) -> str | None:
        """The reason why the weights cannot be packed ahead of time, or None."""
        if not self.node.x.dtype.is_float:
            return f"{self.node.x.dtype} has no activations"
        for i, what in ((1, "input weights"), (2, "recurrent weights"), (3, "bias"), (7, "peepholes")):
            v = self.node.get(i)
            if v is not None and not v.is_const:
                return f"the {what} are not constant"
        return None

    def split_refusal(self) -> str | None:
        """The reason why the units cannot be split over groups with a launch per step, or None."""
        steps = self.node.x.shape[0]
        if steps == 0 or steps * self.passes > MOST_LAUNCHES:
            return f"{steps} steps would take too many launches"
        return None

    def block_weight(self, i: int, name: str, block: int, fn: Reorder) -> Weight | None:
        """Input `i` reordered by `fn`, in the node's storage type; None if it is absent."""
        v, storage = self.node.get(i), self.node.x.type.storage
        gates = -self.gates if self.resets_late else self.gates
        if v is None:
            return None

        def prepare(data: Array) -> Array:
            return np.ascontiguousarray(fn(data, gates, block).astype(storage.np))

        return Weight(v, f"{name}:{gates}:{block}:{storage}", prepare)

    def texel_weight(self, block: int) -> Weight:
        """The recurrent weights as `recurrent_texels`, in words of 32 bits."""
        storage, gates = self.node.x.type.storage, self.gates

        def prepare(data: Array) -> Array:
            return recurrent_texels(data, gates, block, storage.np)

        return Weight(self.node.input(2), f"recurrent texels:{gates}:{block}:{storage}", prepare)

    def texels(self, block: int) -> int:
        """Texels of `texel_weight`; 0 for element types that they do not hold."""
        size = self.node.x.type.storage.size
        if size > 4 or self.node.x.type.storage is DType.BFLOAT16:
            return 0
        hidden = int(self.op.hidden)
        return self.directions * ceil_div(hidden, block) * block * ceil_div(hidden, 4 // size)


EXPRESSIONS: dict[str, Callable[[Sym, float, float], Sym]] = {
    "Relu": lambda x, a, b: x.call("max", 0.0),
    "Tanh": lambda x, a, b: x.call("tanh"),
    "Sigmoid": lambda x, a, b: x.call("sigmoid"),
    "Affine": lambda x, a, b: x * a + b,
    "LeakyRelu": lambda x, a, b: where(x >= 0.0, x, x * a),
    "ThresholdedRelu": lambda x, a, b: where(x >= a, x, 0.0),
    "ScaledTanh": lambda x, a, b: (x * b).call("tanh") * a,
    "HardSigmoid": lambda x, a, b: (x * a + b).call("max", 0.0).call("min", 1.0),
    "Elu": lambda x, a, b: where(x >= 0.0, x, (x.call("min", 0.0).call("exp") - 1.0) * a),
    "Softsign": lambda x, a, b: x / (x.call("abs") + 1.0),
    # max(x, 0) + log(1 + e^-|x|): e^x itself overflows.
    "Softplus": lambda x, a, b: x.call("max", 0.0) + (-x.call("abs")).call("exp").call("log1p"),
}
"""Each activation of x with its alpha and beta."""


def activation_macros(p: RecurrentProblem, width: int) -> str:
    """ACT(i, v, d): activation i of direction d on `width` lanes; gate inputs are clipped first if the node clips."""
    op, dtype, count = p.op, p.node.x.dtype, FUNCTIONS[p.op.kind]
    clip = float(op.clip)
    t = compute_type(dtype, width)
    helpers: dict[str, str] = {}
    functions: list[str] = []
    chosen = list(zip(op.activations, op.alphas, op.betas, strict=True))
    for at, (name, alpha, beta) in enumerate(chosen):
        clips = clip and at % count != CELL

        def chain(
            x: Sym, name: str = name, alpha: float = alpha or 0.0, beta: float = beta or 0.0, clips: bool = bool(clips)
        ) -> Sym:
            x = x.call("max", -clip).call("min", clip) if clips else x
            return EXPRESSIONS[name](x, alpha, beta)

        code = generate(trace(chain, dtype), width, ["x"], device=p.device)
        helpers.update(code.helpers)
        functions.append(f"static inline {t} act_{at}({t} x) {{\n{code.body()}    return {code.result};\n}}\n")
    same = p.directions == 1 or chosen[:count] == chosen[count:]
    macros = ["#define ACT(i, v, d) act_##i(v)"]
    if not same:
        macros = [f"#define ACT_{i}(v, d) ((d) ? act_{count + i}(v) : act_{i}(v))" for i in range(count)]
        macros.append("#define ACT(i, v, d) ACT_##i(v, d)")
    return "".join((*helpers.values(), *functions)) + "\n".join(macros) + "\n"


def in_blocks(data: Array, block: int) -> Array:
    """[D, gates, H, ...] as [D, blocks, gates, block, ...], zeros past H."""
    d, gates, hidden, *rest = data.shape
    blocks = ceil_div(hidden, block)
    wide = np.zeros((d, gates, blocks * block, *rest), data.dtype)
    wide[:, :, :hidden] = data
    return np.swapaxes(wide.reshape(d, gates, blocks, block, *rest), 1, 2)


def input_rows(w: Array, gates: int, block: int) -> Array:
    """w[D, gates * H, I] as [D * blocks * gates * block, I]."""
    d, _, inputs = w.shape
    return in_blocks(w.reshape(d, abs(gates), -1, inputs), block).reshape(-1, inputs)


def recurrent_blocks(r: Array, gates: int, block: int) -> Array:
    """r[D, gates * H, H] as [D, blocks, H, gates, block]."""
    d, _, hidden = r.shape
    return np.moveaxis(in_blocks(r.reshape(d, abs(gates), hidden, hidden), block), -1, 2)


def recurrent_texels(r: Array, gates: int, block: int, storage: np.dtype[Any]) -> Array:
    """r[D, gates * H, H] as words of [D, blocks, H / kept, block, kept, 4].

    A texel of 16 bytes has all gates of a unit for `kept` elements of the state, two of halves.
    """
    blocks, kept = recurrent_blocks(r, gates, block), 4 // storage.itemsize
    d, count, hidden, _, _ = blocks.shape
    rows = ceil_div(hidden, kept)
    wide: Array = np.zeros((d, count, rows * kept, block, 4), storage)
    wide[:, :, :hidden, :, :gates] = blocks.swapaxes(3, 4)
    texels = wide.reshape(d, count, rows, kept, block, 4).swapaxes(3, 4)
    return np.ascontiguousarray(texels).view(np.uint32)


def bias_blocks(b: Array, gates: int, block: int) -> Array:
    """The input and state biases b[D, 2 * gates * H], added, as [D, blocks, gates, block].

    Negative `gates` means a GRU whose reset gate multiplies the last gate's state bias. That bias is then not added but
    comes as the fourth.
    """
    d = b.shape[0]
    inputs, state = np.moveaxis(b.reshape(d, 2, abs(gates), -1), 1, 0)
    if gates > 0:
        return in_blocks(inputs + state, block)
    joined = np.concatenate([inputs[:, :2] + state[:, :2], inputs[:, 2:], state[:, 2:]], axis=1)
    return in_blocks(joined, block)


def peephole_blocks(p: Array, gates: int, block: int) -> Array:
    """p[D, 3 * H] as [D, blocks, 3, block]."""
    return in_blocks(p.reshape(p.shape[0], 3, -1), block)
