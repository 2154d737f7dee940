"""Fast erf, tanh and sigmoid for results stored as halves on GPUs: error below 3e-7, few native instructions.

The built-in erf computes two ranges in some 70 instructions, which a matrix product does not hide.
"""

from __future__ import annotations

from collections.abc import Callable

from .vector_types import Vec

Writer = Callable[[Vec], str]


def _erf(t: Vec) -> str:
    """1 - 2^(-a P(a)) with a = |x|: a fit of -log2(erfc(a)) / a on [0, 4]; beyond 4 the power is negligible."""
    high = (4.5358265e-5, -4.4550406e-4, 1.4894278e-3, 7.7465555e-4)
    p = t.literal(high[0])
    for c in (*high[1:], -2.8253706e-2, 1.4848162e-1, 9.1841638e-1, 1.6279086):
        p = f"fma({p}, a, {t.literal(c)})"
    return f"""
    const {t} a = fabs(x);
    return copysign({t.literal(1.0)} - native_exp2(-a * {p}), x);
"""


def _tanh(t: Vec) -> str:
    """1 - 2 / (1 + e^2|x|)."""
    return f"""
    const {t} e = native_exp2(fabs(x) * {t.literal(2.8853901)});
    return copysign(fma({t.literal(-2.0)}, native_recip({t.literal(1.0)} + e), {t.literal(1.0)}), x);
"""


def _sigmoid(t: Vec) -> str:
    """1 / (1 + e^-x)."""
    return f"    return native_recip({t.literal(1.0)} + native_exp2(x * {t.literal(-1.4426950)}));\n"


_BODIES: dict[str, Writer] = {"erf": _erf, "tanh": _tanh, "sigmoid": _sigmoid}
SHORT = frozenset(_BODIES)
"""Functions that have such a form."""


def short_helper(name: str, t: Vec) -> str:
    """Source of `short_<name>_<type>`, of one argument of a type of floats."""
    return f"static inline {t} short_{name}_{t}({t} x) {{\n{_BODIES[name](t).lstrip(chr(10))}}}\n"
