"""Symbolic sizes: integers and floats with the expression that computes them from a model's open dimensions.

A `SymbolicInt` stands where a size stands. It holds the current size (`hint`) and the expression for any size.
Arithmetic keeps the expression. A comparison, or a conversion to a plain number, records a guard: a condition under
which the decision holds for other sizes too. A trace is valid for all sizes that satisfy its guards. A needless guard
costs generality, never correctness. PyTorch's backed SymInts work in the same way.

Integers are polynomials over atoms: symbols, and quotients, remainders, minima and maxima that no rule simplifies.
Equal polynomials are one object, so that comparing them records no guard. Bounds of symbols decide comparisons where
they can. Sizes in an expression that is too long are fixed (`expression_limits`).
"""

from .compile_expressions import Numbers, compile_numbers
from .explain_guards import conditions, fixed_sizes
from .maybe_symbolic import (
    FUNCTIONS,
    agree,
    always_equal,
    as_float,
    as_float32,
    fixed,
    hint_of,
    is_symbolic_int,
    is_multiple,
    is_symbolic_float,
    is_symbolic,
    runs_along,
    int_or_symbolic,
)
from .min_max import symbolic_max, symbolic_min, fitted, may_be_less, may_have_remainder
from .parse import read_expression
from .substitute import Moved, Substituted, holds_symbols
from .symbol_trace import Guard, Trace
from .symbolic_float import SymbolicFloat, is_less
from .symbolic_int import SymbolicInt, with_plain_sizes

__all__ = [
    "FUNCTIONS",
    "Guard",
    "Moved",
    "Numbers",
    "Substituted",
    "SymbolicFloat",
    "SymbolicInt",
    "Trace",
    "agree",
    "always_equal",
    "as_float",
    "as_float32",
    "symbolic_max",
    "symbolic_min",
    "compile_numbers",
    "conditions",
    "fitted",
    "fixed",
    "fixed_sizes",
    "hint_of",
    "holds_symbols",
    "is_symbolic_int",
    "is_less",
    "is_multiple",
    "is_symbolic_float",
    "is_symbolic",
    "may_be_less",
    "may_have_remainder",
    "read_expression",
    "runs_along",
    "int_or_symbolic",
    "with_plain_sizes",
]
