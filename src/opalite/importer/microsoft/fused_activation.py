"""Activations that onnxruntime's optimiser fuses into a product or a convolution, named by an attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import UnsupportedOpError
from ...expr.trace_function import Sym, where
from ...ir.graph import Value
from ..onnx.activation import gelu_exact, gelu_tanh, softplus_of, swish_of
from ..walk.node_context import NodeContext

Parameters = Mapping[str, float]

_ORDER: dict[str, dict[str, float | None]] = {
    "LeakyRelu": {"alpha": 0.01},
    "Clip": {"min": None, "max": None},
    "HardSigmoid": {"alpha": None, "beta": None},
    "Elu": {"alpha": 1.0},
    "Selu": {"alpha": 1.6732631921768188, "gamma": 1.0507010221481323},
    "ThresholdedRelu": {"alpha": 1.0},
    "ScaledTanh": {"alpha": 1.0, "beta": 1.0},
    "ParametricSoftplus": {"alpha": 1.0, "beta": 1.0},
    "Gelu": {"tanh": 0.0},
    "QuickGelu": {"alpha": 1.702},
}
"""Parameters of each function in the order of `activation_params`, with defaults; None: required."""

_FUNCTIONS: dict[str, Callable[[Sym, Parameters], Sym]] = {
    "Relu": lambda x, p: x.call("max", 0),
    "Sigmoid": lambda x, p: x.call("sigmoid"),
    "Tanh": lambda x, p: x.call("tanh"),
    "LeakyRelu": lambda x, p: where(x < 0, x * p["alpha"], x),
    "Clip": lambda x, p: x.call("max", p["min"]).call("min", p["max"]),
    "HardSigmoid": lambda x, p: (x * p["alpha"] + p["beta"]).call("max", 0).call("min", 1),
    "HardSwish": lambda x, p: x * (x * (1 / 6) + 0.5).call("max", 0).call("min", 1),
    "Elu": lambda x, p: where(x < 0, (x.call("exp") - 1) * p["alpha"], x),
    "Selu": lambda x, p: where(x > 0, x, x.call("exp") * p["alpha"] - p["alpha"]) * p["gamma"],
    "Softplus": lambda x, p: softplus_of(x),
    "ParametricSoftplus": lambda x, p: softplus_of(x * p["beta"]) * p["alpha"],
    "Softsign": lambda x, p: x / (x.call("abs") + 1),
    "ScaledTanh": lambda x, p: (x * p["beta"]).call("tanh") * p["alpha"],
    "ThresholdedRelu": lambda x, p: where(x > p["alpha"], x, 0),
    "Mish": lambda x, p: x * softplus_of(x).call("tanh"),
    "Gelu": lambda x, p: gelu_tanh(x) if p["tanh"] else gelu_exact(x),
    "FastGelu": lambda x, p: gelu_tanh(x),
    "QuickGelu": lambda x, p: swish_of(x, p["alpha"]),
    "Silu": lambda x, p: swish_of(x, 1.0),
    "Erf": lambda x, p: x.call("erf"),
}


def apply_activation(ctx: NodeContext, y: Value) -> Value:
    """Apply the function that the attribute `activation` names to y, if any.

    The parameters are in `activation_params` (convolutions), or in `activation_alpha` etc. (products).
    UnsupportedOpError for an unknown function or missing parameters.
    """
    name = ctx.attr("activation", "")
    if not name:
        return y
    order = _ORDER.get(name, {})
    listed = dict(zip(order, ctx.attr("activation_params", ()), strict=False))
    found = {k: ctx.attr(f"activation_{k}", listed.get(k, default)) for k, default in order.items()}
    if name not in _FUNCTIONS or None in found.values():
        raise UnsupportedOpError(
            f"{ctx.label} has activation '{name}' with parameters {found}; known are {', '.join(_FUNCTIONS)}"
        )
    parameters = {k: float(v) for k, v in found.items()}
    return ctx.elementwise(lambda x: _FUNCTIONS[name](x, parameters), y)
