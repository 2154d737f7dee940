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
from .maybe_symbolic import (
    FUNCTIONS,
    always_equal,
    as_float,
    as_float32,
    equal_guarded,
    fixed,
    hint_of,
    int_or_symbolic,
    is_multiple,
    is_symbolic,
    is_symbolic_float,
    is_symbolic_int,
    may_be_less,
    may_have_remainder,
    runs_along,
    symbolic_max,
    symbolic_min,
    tile_at_most,
)
from .parse import read_expression
from .substitute import Rehinted, Substituted, holds_symbols
from .symbol_trace import Guard, Trace, conditions, fixed_sizes
from .symbolic_float import SymbolicFloat, is_less
from .symbolic_int import SymbolicInt, with_plain_sizes

__all__ = [
    "FUNCTIONS",
    "Guard",
    "Numbers",
    "Rehinted",
    "Substituted",
    "SymbolicFloat",
    "SymbolicInt",
    "Trace",
    "always_equal",
    "as_float",
    "as_float32",
    "compile_numbers",
    "conditions",
    "equal_guarded",
    "fixed",
    "fixed_sizes",
    "hint_of",
    "holds_symbols",
    "int_or_symbolic",
    "is_less",
    "is_multiple",
    "is_symbolic",
    "is_symbolic_float",
    "is_symbolic_int",
    "may_be_less",
    "may_have_remainder",
    "read_expression",
    "runs_along",
    "symbolic_max",
    "symbolic_min",
    "tile_at_most",
    "with_plain_sizes",
]
