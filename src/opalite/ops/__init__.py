"""Canonical operators, one family a file; modules are imported on the first lookup of an unknown operator."""

from .operator import Cost, Op, all_ops, get_op, make_op, register_op

__all__ = ["Cost", "Op", "all_ops", "get_op", "make_op", "register_op"]
