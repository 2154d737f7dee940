"""RotaryEmbedding and RotaryAppend: vectors on CPUs, some pairs per work-item elsewhere; strided x and y."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...ir.graph import Value
from ...ir.symbols import hint_of, may_have_remainder, symbolic_max
from ...ir.tensor_type import Shape
from ...ops.rotary_embedding import RotaryAppend, RotaryEmbedding
from ...ops.strided_view import View
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, ceil_div
from ..launch_workgroups import group_refusal

MOST = 1 << 31
"""Elements that 32-bit steps reach."""


@dataclass(frozen=True, eq=False)
class RotationProblem(Problem):
    """A RotaryEmbedding or RotaryAppend; the last three inputs are x and the tables of cosines and sines."""

    @property
    def x(self) -> Value:
        """The rotated tensor."""
        return self.node.input(-3)

    @property
    def cosines(self) -> Value:
        """The table of cosines, of the same shape as the table of sines."""
        return self.node.input(-2)

    @property
    def sines(self) -> Value:
        """The table of sines."""
        return self.node.input(-1)

    @cached_property
    def source(self) -> View:
        """The view of x with axes in the order of y."""
        op = self.node.op
        assert isinstance(op, RotaryEmbedding | RotaryAppend)
        return View.whole(self.x.shape).transpose(op.perm)

    @cached_property
    def target(self) -> View:
        """The view of the written part of y."""
        whole, op = View.whole(self.node.y.shape), self.node.op
        start = op.at * whole.strides[op.axis] if isinstance(op, RotaryAppend) else 0
        return View(self.source.shape, whole.strides, start)

    @cached_property
    def steps(self) -> dict[str, int]:
        """Strides of b, h and s in x and the tables, half a row's size, the offset of the tables' second half.

        The keys are the kernel's parameter names.
        """
        size = self.x.shape[-1]
        x_b, x_h, x_s = self.source.strides[:3]
        t_b, t_h, t_s = _table_steps(self.cosines.shape)
        second = size // 2 if self.cosines.shape[-1] == size else 0
        steps = {"x_b": x_b, "x_h": x_h, "x_s": x_s, "t_b": t_b, "t_h": t_h, "t_s": t_s}
        return steps | {"half_row": size // 2, "second": second}


class RotaryKernel(Kernel):
    """PAIRS: pairs per work-item, in groups of WG; 0: all heads of a position."""

    problem = RotationProblem
    space = {"PAIRS": (4, 1, 0), "WG": (128, 1, 32, 64, 256)}

    def refuse(self, p: RotationProblem) -> str | None:
        largest = symbolic_max(v.type.count for v in (*p.node.inputs, *p.node.outputs) if v is not None)
        return f"a tensor of {largest!r} elements is beyond 32-bit indices" if largest >= MOST else None

    def illegal(self, p: RotationProblem, params: Params) -> str | None:
        if not params["PAIRS"] and params["WG"] > 1:
            return "a work-item takes whole rows"
        # Rows of y are strided.
        if params["PAIRS"] > 1 and any(may_have_remainder(n, params["PAIRS"]) for n in p.steps.values()):
            return f"not all vectors of {params['PAIRS']} elements begin at multiples of that"
        return group_refusal(params["WG"], p.device)

    def defaults(self, p: RotationProblem) -> Params:
        return {"PAIRS": 0, "WG": 1} if p.device.is_cpu else super().defaults(p)

    def launch(self, p: RotationProblem, params: Params) -> list[Launch]:
        if not p.x.type.count:
            return []
        y, target = p.node.y, p.target
        batches, heads, rows = target.shape[:3]
        args: Args = {"x": p.x, "cosines": p.cosines, "sines": p.sines, "y": y}
        args |= {"batches": batches, "heads": heads, "S": rows, **p.steps, "y_start": target.offset}
        args |= dict(zip(("y_b", "y_h", "y_s"), target.strides, strict=False))
        pairs = params["PAIRS"]
        defines = {"STORAGE": STORAGE[y.type.storage], "PACK": pairs if pairs > 1 else p.device.pack, "PAIRS": pairs}
        if not pairs:
            return [Launch("rotate_rows", args, (rows, batches), (params["WG"], 1), defines)]
        across = ceil_div(p.steps["half_row"], pairs)
        along = min(params["WG"], 1 << (hint_of(across) - 1).bit_length())
        return [Launch("rotate_rows", args, (across, batches * heads * rows), (along, params["WG"] // along), defines)]


@register
class RotateRows(RotaryKernel):
    """Writes a tensor of its own."""

    op = "RotaryEmbedding"


@register
class RotateAppendRows(RotaryKernel):
    """Writes into a KV cache, which is y's memory already."""

    op = "RotaryAppend"


def _table_steps(shape: Shape) -> tuple[int, int, int]:
    """Strides of b, h and s in tables of `shape`; 0 if they broadcast."""
    whole = (1,) * (4 - len(shape)) + tuple(shape)
    strides = View.whole(whole).strides
    b, h, s = (0 if type(size) is int and size == 1 else step for size, step in zip(whole[:3], strides, strict=False))
    return b, h, s
