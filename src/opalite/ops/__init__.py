"""The canonical operators by family. Every module of this folder is found by itself, once an operator is asked for that
nobody has imported."""

from .operator import Cost, Op, all_ops, get_op, make_op, register_op

__all__ = ["Cost", "Op", "all_ops", "get_op", "make_op", "register_op"]
