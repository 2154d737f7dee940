"""Parser of an Expr's text form, which str() gives."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..ir.dtype import DType
from .expression import Expr, In, Instr, Lit, Ref, Tmp, result_dtype
from .function_table import find_function

_CALL = re.compile(r"\s*(\w+)(?:<(\w+)>)?\((.*)\)\s*$")


def parse_expr(text: str, dtypes: Sequence[DType]) -> Expr:
    """The Expr with text form `text`; ValueError names the invalid part."""
    instrs: list[Instr] = []
    for part in [p for p in text.split(";") if p.strip() and p.strip() != "$0"]:
        m = _CALL.match(part)
        if m is None:
            raise ValueError(f"not an instruction: {part!r}")
        fn, given, inner = m.groups()
        so_far = Expr(tuple(instrs), tuple(dtypes))
        args = tuple(_parse_ref(a.strip()) for a in inner.split(","))
        find_function(fn, len(args))
        dtype = DType.parse(given) if given else result_dtype(fn, [so_far.ref_dtype(a) for a in args])
        instrs.append(Instr(fn, args, dtype))
    return Expr(tuple(instrs), tuple(dtypes))


def _parse_ref(text: str) -> Ref:
    if text.startswith("$"):
        return In(int(text[1:]))
    if text.startswith("%"):
        return Tmp(int(text[1:]))
    value, _, short = text.partition(":")
    dtype = DType.parse(short or "f32")
    if dtype is DType.BOOL:
        return Lit(value == "True", dtype)
    return Lit(float(value) if dtype.is_float else int(value), dtype)
