"""Concat of several inputs in one launch, to save launch time on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Node, Value
from ...ir.symbols import always_equal
from ..launch import ELEMENT, Args, Launch, ceil_div
from .strided_copy_axes import Copy, accesses

MAX_INPUTS = 16  # pointer arguments of one kernel; every driver accepts more
_VEC = 4


def join_copies(node: Node, inputs: Sequence[Value], copies: Sequence[Copy]) -> list[Launch] | None:
    """Launches of up to MAX_INPUTS inputs each, or None if an input is not one contiguous run per line of y.

    node: a Concat. copies: one per input, as in ConcatCopy.
    """
    merged = [copy.merged() for copy in copies]
    ranks = {len(c.extents) for c in merged}
    if ranks not in ({1}, {2}) or not all(always_equal((c.source[-1], c.target[-1]), (1, 1)) for c in merged):
        return None
    groups = [range(i, min(i + MAX_INPUTS, len(inputs))) for i in range(0, len(inputs), MAX_INPUTS)]
    return [_launch(node, [inputs[i] for i in group], [merged[i] for i in group]) for group in groups]


def _launch(node: Node, inputs: Sequence[Value], copies: Sequence[Copy]) -> Launch:
    lines = copies[0].extents[0] if len(copies[0].extents) > 1 else 1
    pitch = copies[0].target[0] if len(copies[0].extents) > 1 else node.y.type.count
    args: Args = {"y": node.y, "pitch": pitch, "lines": lines}
    for i, (x, copy) in enumerate(zip(inputs, copies, strict=True)):
        args |= {f"x{i}": x, f"n{i}": copy.extents[-1], f"s{i}": copy.target_start}
    longest = max(c.extents[-1] for c in copies)
    size = node.y.type.storage.size
    load, store = accesses(size, _VEC)
    prelude = f"#define VLOADV(p) {load}\n#define VSTOREV(v, p) {store}\n{_inputs(len(inputs))}"
    grid = (ceil_div(longest, _VEC), lines, len(inputs))
    defines = {"T": ELEMENT[size], "VEC": _VEC}
    return Launch("concat_runs", args, grid, None, defines, prelude, "data_movement/concat_runs.cl")


def _inputs(count: int) -> str:
    """INPUTS and FIND_INPUT for `count` inputs."""
    params = ", ".join(f"global const T *x{i}, int n{i}, long s{i}" for i in range(count))
    cases = [f"if (k == {i}) {{ x = x{i}; n = n{i}; start = s{i}; }}" for i in range(1, count)]
    last = "{ x = x0; n = n0; start = s0; }"
    return f"#define INPUTS {params}\n#define FIND_INPUT(k) {' else '.join([*cases, last])}\n"
