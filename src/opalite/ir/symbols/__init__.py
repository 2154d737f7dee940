"""Sizes as symbols: integers that remember how they came from the open dimensions of a model.

A `Dim` stands where a size stands. It has the size at hand (`hint`), and the expression that gives it for any size. All
arithmetic keeps the expression. What is decided by a comparison, or becomes a plain number, records a guard: a
condition under which everything that was decided holds for other sizes too. So what is traced once is right wherever
its guards hold, whatever code it went through; a needless guard costs generality, never correctness. PyTorch's SymInt
("backed" symbols) works so.

Integers are polynomials over atoms: symbols, and quotients, remainders, minima and maxima that no rule resolves. Equal
polynomials are one object, so that comparing them records nothing. Bounds of the symbols decide what they can.
"""

from .dim import Dim, Guard, Trace
from .extremes import at_least, at_most
from .real import Real
from .values import FUNCTIONS, hint_of, is_symbolic

__all__ = ["FUNCTIONS", "Dim", "Guard", "Real", "Trace", "at_least", "at_most", "hint_of", "is_symbolic"]
