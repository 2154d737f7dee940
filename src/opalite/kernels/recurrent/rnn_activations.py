"""Activations of recurrent layers as macros, generated from the expressions of elementwise kernels."""

from __future__ import annotations

from collections.abc import Callable

from ...expr.trace_function import Sym, trace, where
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ops.recurrent import CELL, FUNCTIONS, Recurrent, directions
from ..codegen.expression_code import generate
from ..codegen.vector_types import compute_type

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


def activation_macros(node: Node, width: int, device: DeviceInfo) -> str:
    """ACT(i, v, d): activation i of direction d on `width` lanes; gate inputs are clipped first if the node clips."""
    op = node.as_(Recurrent)
    dtype, count = node.x.dtype, FUNCTIONS[op.kind]
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

        code = generate(trace(chain, dtype), width, ["x"], device=device)
        helpers.update(code.helpers)
        functions.append(f"static inline {t} act_{at}({t} x) {{\n{code.body()}    return {code.result};\n}}\n")
    same = directions(op) == 1 or chosen[:count] == chosen[count:]
    macros = ["#define ACT(i, v, d) act_##i(v)"]
    if not same:
        macros = [f"#define ACT_{i}(v, d) ((d) ? act_{count + i}(v) : act_{i}(v))" for i in range(count)]
        macros.append("#define ACT(i, v, d) ACT_##i(v, d)")
    return "".join((*helpers.values(), *functions)) + "\n".join(macros) + "\n"
