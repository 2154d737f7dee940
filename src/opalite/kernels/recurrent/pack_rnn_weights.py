"""Packs constant weights of recurrent layers: hidden units in blocks, zero-padded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.graph import Node, Value
from ...ops.recurrent import GATES, Recurrent
from ..launch import Array, Weight, ceil_div

Reorder = Callable[[Array, int, int], Array]
"""Function of the data, the number of gates and the units in a block. A negative number of gates is a GRU that
multiplies the state's share of its last gate by the reset gate."""


def block_weight(node: Node, v: Value, name: str, block: int, fn: Reorder) -> Weight:
    """Input `v` of a Recurrent node reordered by `fn`, in the node's storage type."""
    gates = GATES[node.as_(Recurrent).kind]
    if node.as_(Recurrent).kind == "gru" and node.as_(Recurrent).linear_before_reset:
        gates = -gates
    storage = node.x.type.storage

    def prepare(data: Array) -> Array:
        return np.ascontiguousarray(fn(data, gates, block).astype(storage.np))

    return Weight(v, f"{name}:{gates}:{block}:{storage}", prepare)


def in_blocks(data: Array, block: int) -> Array:
    """[D, gates, H, ...] as [D, blocks, gates, block, ...], zeros past H."""
    d, gates, hidden, *rest = data.shape
    blocks = ceil_div(hidden, block)
    wide = np.zeros((d, gates, blocks * block, *rest), data.dtype)
    wide[:, :, :hidden] = data
    return np.swapaxes(wide.reshape(d, gates, blocks, block, *rest), 1, 2)


def input_rows(w: Array, gates: int, block: int) -> Array:
    """w[D, gates * H, I] as [D * blocks * gates * block, I]."""
    d, _, inputs = w.shape
    return in_blocks(w.reshape(d, abs(gates), -1, inputs), block).reshape(-1, inputs)


def recurrent_blocks(r: Array, gates: int, block: int) -> Array:
    """r[D, gates * H, H] as [D, blocks, H, gates, block]."""
    d, _, hidden = r.shape
    return np.moveaxis(in_blocks(r.reshape(d, abs(gates), hidden, hidden), block), -1, 2)


def bias_blocks(b: Array, gates: int, block: int) -> Array:
    """The input and state biases b[D, 2 * gates * H], added, as [D, blocks, gates, block].

    Negative `gates` means a GRU whose reset gate multiplies the last gate's state bias. That bias is then not added but
    comes as the fourth.
    """
    d = b.shape[0]
    inputs, state = np.moveaxis(b.reshape(d, 2, abs(gates), -1), 1, 0)
    if gates > 0:
        return in_blocks(inputs + state, block)
    joined = np.concatenate([inputs[:, :2] + state[:, :2], inputs[:, 2:], state[:, 2:]], axis=1)
    return in_blocks(joined, block)


def peephole_blocks(p: Array, gates: int, block: int) -> Array:
    """p[D, 3 * H] as [D, blocks, 3, block]."""
    return in_blocks(p.reshape(p.shape[0], 3, -1), block)
