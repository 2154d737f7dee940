"""Fuse chains of movements that keep rows whole into one row permutation: windows, rolls, patches, heads."""

from __future__ import annotations

import math

import numpy as np

from ...ir.device.device_family import SLOW_SUB_BUFFERS
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...ops.data_movement import Reshape, Slice, Transpose
from ...ops.elementwise import Elementwise
from ...ops.matmul import MatMul
from ...ops.normalize import Normalize
from ...ops.permute_rows import PermuteRows, scaled, table_of
from ..rewrite_driver import Added, Rule, Sweep, joined_origin
from .row_permutation_chains import Chain, find_chain

_SHORT = {True: 64, False: 32}
"""Shortest row, in bytes, worth a PermuteRows on a CPU (True) and on a GPU; of float32, if halves are stored."""


def fuse_row_permutations(device: DeviceInfo | None) -> Rule:
    """Rule: a chain of several launches that only move rows becomes a PermuteRows.

    A single Transpose of whole rows next to row-wise operators
    becomes one too, so that other passes can move it; `unfuse_row_permutation` converts those that remain back.
    """
    short = _SHORT[device is None or device.is_cpu]
    copies = device is not None and SLOW_SUB_BUFFERS in device.quirks
    found: dict[Node, Chain | str | None] = {}
    swept: list[Sweep] = []

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if swept != [sweep]:
            swept[:] = [sweep]
            found.clear()
            taken: set[Node] = set()
            for last in reversed(sweep.graph.nodes):  # the longest first
                chain = None if last in taken else find_chain(last, sweep)
                if isinstance(chain, Chain):
                    refusal = _refusal(chain)
                    taken.update(() if refusal else chain.nodes)
                    found[last] = refusal or chain
                else:
                    found[last] = chain
        chain = found.get(node)
        return _joined(chain) if isinstance(chain, Chain) else chain

    def _refusal(chain: Chain) -> str | None:
        nbytes = chain.row * chain.root.y.dtype.size
        if nbytes < short:
            return f"rows have {nbytes} bytes; at least {short} are needed"
        launches = sum(_launches(n, copies) for n in chain.nodes)
        if launches > 1:
            return None
        moved = [n for n in chain.nodes if not isinstance(n.op, Reshape)]
        if len(moved) == 1 and isinstance(moved[0].op, Transpose) and _is_between_rows(chain):
            return None
        return "it is a single launch" if launches else "it moves nothing"

    return rule


def _launches(node: Node, copies: bool) -> int:
    """Launches of a movement on unpacked tensors. copies: count movements that would be aliased, too."""
    match node.op:
        case Reshape():
            return 0
        case Slice(steps=steps):
            cut = [k for k, (n, m) in enumerate(zip(node.x.shape, node.y.shape, strict=True)) if n != m]
            even = all(step == 1 or size == 1 for step, size in zip(steps, node.y.shape, strict=True))
            outside = math.prod(node.y.shape[: cut[-1]]) if cut else 1
            return int(copies or not even or not always_equal(outside, 1))
    return 1  # of the parts that a Concat takes from one tensor, all but one at least


def _is_between_rows(chain: Chain) -> bool:
    """Whether the chain moves whole rows of matrices between row-wise operators."""
    x, y = chain.source, chain.root.y
    if not always_equal((x.shape[-1], y.shape[-1]), (chain.row, chain.row)):
        return False
    return x.producer is not None and isinstance(x.producer.op, MatMul | Normalize | Elementwise | PermuteRows)


def _joined(chain: Chain) -> Patch:
    root, source = chain.root, chain.source
    op = PermuteRows(root.y.shape, chain.row, chain.steps)
    moves = [n for n in chain.nodes if not isinstance(n.op, Reshape)] or [root]
    made = root.with_(op=op, inputs=[source], name=moves[-1].name, origin=joined_origin(*chain.nodes))
    if does_nothing(op, source):
        made = made.with_(op=Reshape(root.y.shape))
    return Patch.replacing(root, made, also=[n for n in chain.nodes if n is not root])


def does_nothing(op: PermuteRows, x: Value) -> bool:
    """Whether the permutation is the identity on the rows of `x`."""
    table = table_of(op, x.shape)
    return table is not None and len(table) * op.row == x.type.count and np.array_equal(table, np.arange(len(table)))


def unfuse_row_permutation(node: Node, sweep: Sweep) -> Patch | str | None:
    """A PermuteRows of one Transpose between Reshapes becomes those nodes again: more kernels compute a Transpose."""
    if not isinstance(node.op, PermuteRows):
        return None
    op = node.op
    if [s[0] for s in op.steps if s[0] != "reshape"] != ["transpose"]:
        return None
    added, value = Added(), node.x
    for kind, new in scaled(op.steps, op.row, 1):
        value = added.put(node.make_helper(Transpose(new) if kind == "transpose" else Reshape(new), [value]))
        if kind == "transpose":
            added[-1].origin = node.origin
    added.put(node.make_helper(Reshape(node.y.shape), [value]))
    return Patch.replacing(node, *added)
