"""Sizes as symbols: integers that remember how they came from the open dimensions of a model.

A `SymbolicInt` stands where a size stands. It has the size at hand (`hint`), and the expression that gives it for any
size. All arithmetic keeps the expression. What is decided by a comparison, or becomes a plain number, records a guard:
a condition under which everything that was decided holds for other sizes too. So what is traced once is right wherever
its guards hold, whatever code it went through; a needless guard costs generality, never correctness. PyTorch's SymInt
("backed" symbols) works so.

Integers are polynomials over atoms: symbols, and quotients, remainders, minima and maxima that no rule resolves. Equal
polynomials are one object, so that comparing them records nothing. Bounds of the symbols decide what they can. An
expression that would be too long fixes sizes in it (`lengths`).
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
    is_dim,
    is_multiple,
    is_real,
    is_symbolic,
    runs_along,
    same_or_int,
)
from .min_max import at_least, at_most, fitted, may_be_less, may_leave_rest
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
    "at_least",
    "at_most",
    "compile_numbers",
    "conditions",
    "fitted",
    "fixed",
    "fixed_sizes",
    "hint_of",
    "holds_symbols",
    "is_dim",
    "is_less",
    "is_multiple",
    "is_real",
    "is_symbolic",
    "may_be_less",
    "may_leave_rest",
    "read_expression",
    "runs_along",
    "same_or_int",
    "with_plain_sizes",
]
