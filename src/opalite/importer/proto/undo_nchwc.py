"""Conversion of graphs in onnxruntime's blocked layout NCHWc to the plain layout.

onnxruntime's optimiser may save such graphs. Operators of domain com.microsoft.nchwc have 4-D tensors with channels
padded to multiples of a block of B = 8 (CPUs with AVX2) or 16 (AVX-512, AArch64) and stored in blocks. The conversion
reorders filters to [M,C,H,W], removes padded channels and records the channel count in the nodes. The operators are
imported by `microsoft/unfuse.py`.

Stored filters have the dimensions of the plain ones with M rounded up to B. OIHWBo is [M/B,C,H,W,B]; OIHWBiBo is
[M/B,C/B,H,W,B,B] with C rounded up too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx import AttributeProto

from ...errors import ModelFormatError
from ...ir import Array
from ...ir.constants.lazy_array import LazyArray
from .constants import Constants
from .graphdef import Attr, GraphDef, NodeDef

BLOCKS = (16, 8)
"""Block sizes of onnxruntime, the more common one first."""

_MOST_ELEMENTS = 1 << 20  # total size of filters compared to detect the block size
_LEAST_ENERGY = 1e-12  # energy of a zero channel, relative to the largest


@dataclass(frozen=True)
class Blocked:
    """Stored filter. both: input channels are blocked too (OIHWBiBo, not OIHWBo)."""

    held: Array | LazyArray
    blocks_inputs: bool

    def fits(self, block: int) -> bool:
        """Whether the dimensions are multiples of `block` as required."""
        m, c = self.held.shape[:2]
        return m % block == 0 and (not self.blocks_inputs or c % block == 0)

    def plain(self, block: int, kept: tuple[int, int] | None = None) -> Array | LazyArray:
        """Return the filter in plain order, cut to `kept` output and input channels; lazy if the stored one is."""
        held, (m, c) = self.held, kept or self.held.shape[:2]
        shape = (m, c, *held.shape[2:])
        if not isinstance(held, LazyArray):
            return _plain(held, block, self.blocks_inputs, m, c)
        key = (held.key, "nchwc", block, self.blocks_inputs, m, c)
        return LazyArray(held.dtype, shape, lambda: _plain(held.read(), block, self.blocks_inputs, m, c), key=key)

    def used_channels(self, block: int) -> int:
        """Return the number of input channels up to the last nonzero one; only the last block is inspected."""
        m, c, h, w = self.held.shape
        stored = self.held.read() if isinstance(self.held, LazyArray) else self.held
        last = stored.reshape(m // block, c // block, h * w, block, block)[:, -1]
        used = np.flatnonzero(last.any(axis=(0, 1, 3)))
        return c - block + (int(used[-1]) + 1 if used.size else 1)


def _plain(stored: Array, block: int, blocks_inputs: bool, m: int, c: int) -> Array:
    rows, channels, h, w = stored.shape
    if blocks_inputs:
        view = stored.reshape(rows // block, channels // block, h, w, block, block).transpose(0, 5, 1, 4, 2, 3)
    else:
        view = stored.reshape(rows // block, channels, h, w, block).transpose(0, 4, 1, 2, 3)
    return np.ascontiguousarray(view.reshape(rows, channels, h, w)[:m, :c])


def likelier_block(filters: Sequence[Blocked], candidates: Sequence[int]) -> int:
    """Return the block size that the contents of `filters` support; the first one if they are inconclusive.

    Trained filters differ in magnitude between channels. With a wrong block size each channel mixes elements of several
    channels: magnitudes become similar, and padded channels are no longer zero. The measure is the likelihood of the
    elements under one variance per output channel, and under one per input channel.
    """
    scores, channels = dict.fromkeys(candidates, 0.0), 0
    left = _MOST_ELEMENTS
    for blocked in filters:
        size = math.prod(blocked.held.shape)
        if size > left:
            continue
        left -= size
        channels += sum(blocked.held.shape[:2])
        for block in candidates:
            array = blocked.plain(block)
            squares = np.square((array.read() if isinstance(array, LazyArray) else array).astype(np.float64))
            for axis in (0, 1):
                energy = squares.mean(axis=tuple(i for i in range(4) if i != axis))
                floor = _LEAST_ENERGY * max(float(energy.max()), np.finfo(np.float64).tiny / _LEAST_ENERGY)
                scores[block] -= 0.5 * size / len(energy) * float(np.log(np.maximum(energy, floor)).sum())
    first = candidates[0]
    best = max(candidates, key=lambda b: scores[b])
    chance = 10 * math.sqrt(channels + 1)  # expected difference for random filters
    return best if scores[best] > scores[first] + chance else first


NCHWC = "com.microsoft.nchwc"

FULL = -1
"""Channel count of a tensor that keeps its padded channels."""


def undo_nchwc(graph: GraphDef) -> GraphDef:
    """Return the graph in plain layout, inner graphs included; the graph itself if it has no blocks.

    ModelFormatError if filters are no constants, or no block size fits them.
    """
    found = [_Blocks(g) for g in _graphs(graph) if any(n.domain == NCHWC for n in g.nodes)]
    if not found:
        return graph
    block = _block_size(found)
    return _rewritten(graph, {b.graph: b.undo(block) for b in found})


def _graphs(graph: GraphDef) -> Iterator[GraphDef]:
    yield graph
    for node in graph.nodes:
        for inner in node.graphs:
            yield from _graphs(inner)


def _rewritten(graph: GraphDef, made: Mapping[GraphDef, GraphDef]) -> GraphDef:
    """Replace graph and inner graphs by those in `made`."""
    nodes = []
    result = made.get(graph, graph)
    for node in result.nodes:
        if node.graphs:
            inner = {
                k: replace(a, value=_rewritten(a.value, made)) if isinstance(a.value, GraphDef) else a
                for k, a in node.attributes.items()
            }
            node = replace(node, attributes=inner)
        nodes.append(node)
    return replace(result, nodes=tuple(nodes))


def _block_size(found: list[_Blocks]) -> int:
    """Return the block size of the machine that wrote the file."""
    filters = [f for b in found for f in b.filters.values()]
    for b in found:
        for declared in b.block_hints():
            return declared
    candidates = [size for size in BLOCKS if all(f.fits(size) for f in filters)]
    if not candidates:
        raise ModelFormatError(
            f"operators of domain '{NCHWC}' have filters of shapes {[f.held.shape for f in filters][:4]}..., which no "
            f"block size of {BLOCKS} fits: save the model again with graph_optimization_level ORT_ENABLE_EXTENDED"
        )
    return candidates[0] if len(candidates) == 1 else likelier_block(filters, candidates)


class _Blocks:
    """The blocked tensors of one graph.

    filters: by output of the convolution. Tensors with equal channels form one set (union-find in `_parent`): operators
    between them process each channel separately.
    """

    def __init__(self, graph: GraphDef) -> None:
        self.graph = graph
        self.filters: dict[str, Blocked] = {}
        self._parent: dict[str, str] = {}
        self._readers: dict[str, list[NodeDef]] = {}
        for node in graph.nodes:
            for name in dict.fromkeys(node.reads):
                self._readers.setdefault(name, []).append(node)
            if _is(node, "Conv"):
                self._add_filter(node)
            # Inputs and output of a node have the same channels, except for Concat and convolutions that mix channels.
            inside = [n for n in node.inputs[int(self._mixes(node)) :] if n in self._parent]
            if node.op_type == "Concat" and inside:
                self._union(node.outputs[0])
            elif _is(node, "ReorderOutput"):
                continue
            elif node.domain == NCHWC or inside:
                self._union(*(o for o in node.outputs if o), *inside)

    def _add_filter(self, node: NodeDef) -> None:
        name = node.inputs[1]
        if name not in self.graph.constants:
            raise ModelFormatError(f"{node.label} of domain '{NCHWC}' has a filter that is no constant: '{name}'")
        held = self.graph.constants.held(name)
        if len(held.shape) != 4:
            raise ModelFormatError(f"{node.label} of domain '{NCHWC}' has a filter of shape {held.shape}, expected 4-D")
        blocks_inputs = node.inputs[0] in self._parent and not _is_depthwise(node, held)
        self.filters[node.outputs[0]] = Blocked(held, blocks_inputs)

    def _union(self, *names: str) -> None:
        first = self._find(names[0])
        for name in names[1:]:
            self._parent[self._find(name)] = first

    def _find(self, name: str) -> str:
        while (parent := self._parent.setdefault(name, name)) != name:
            name = parent
        return name

    def _mixes(self, node: NodeDef) -> bool:
        """Whether the node is a convolution with a blocked input whose output has other channels."""
        return _is(node, "Conv") and self.filters[node.outputs[0]].blocks_inputs

    # The block size -----------------------------------------------------------------------------------------------

    def block_hints(self) -> Iterator[int]:
        """Yield block sizes that a single node proves."""
        width = {self._find(out): f.held.shape[0] for out, f in self.filters.items()}
        for node in self.graph.nodes:
            shape = self._split_shape(node)
            if shape is not None:
                yield shape[-1]
            elif node.domain != NCHWC:
                continue
            elif node.op_type == "Conv" and node.inputs[0] not in self._parent:
                # The convolution reads a plain tensor, so it has fewer channels than a block.
                if self.filters[node.outputs[0]].held.shape[1] >= min(BLOCKS):
                    yield max(BLOCKS)
            elif node.op_type == "ReorderOutput":
                full = width.get(self._find(node.inputs[0]))
                if full is not None and full - int(node.attrs.get("channels", full)) >= min(BLOCKS):
                    yield max(BLOCKS)

    def _split_shape(self, node: NodeDef) -> tuple[int, ...] | None:
        """Return the shape of a Reshape that makes blocks an axis, for a sum of tensors of unknown size; else None."""
        shape = self._reshape_to(node)
        known = shape is not None and len(shape) == 5 and shape[0] == shape[2] == shape[3] == 0
        return shape if known and node.inputs[0] in self._parent else None

    def _reshape_to(self, node: NodeDef) -> tuple[int, ...] | None:
        if node.op_type != "Reshape" or node.domain or len(node.inputs) < 2:
            return None
        if node.inputs[1] not in self.graph.constants:
            return None
        return tuple(int(d) for d in np.asarray(self.graph.constants[node.inputs[1]]).reshape(-1))

    # The plain graph ----------------------------------------------------------------------------------------------

    def undo(self, block: int) -> GraphDef:
        """Return the graph in plain layout."""
        members: dict[str, list[str]] = {}
        for name in self._parent:
            members.setdefault(self._find(name), []).append(name)
        kept = {root: self._channels(names, block) for root, names in members.items()}
        constants, nodes = self.graph.constants.copy(), []
        for node in self.graph.nodes:
            if node.domain == NCHWC:
                nodes.append(self._plain_node(node, block, kept, constants))
            elif node.op_type == "Reshape" and node.inputs[0] in self._parent:
                nodes.append(replace(node, op_type="Identity", inputs=node.inputs[:1], attributes={}))
            else:
                nodes.append(node)
        return replace(self.graph, nodes=tuple(nodes), constants=constants)

    def _channels(self, members: Sequence[str], block: int) -> int:
        """Return the number of channels to keep for a set of tensors: as many as are read, FULL if unknown."""
        outputs = {v.name for v in self.graph.outputs}
        readers = [(name, node) for name in members for node in self._readers.get(name, ())]
        if any(n in outputs for n in members):
            return FULL
        declared = [int(n.attrs.get("channels", 0)) for _, n in readers if _is(n, "ReorderOutput")]
        most = max(declared, default=0)
        for name, node in readers:
            if self._mixes(node) and name == node.inputs[0]:
                if int(node.attrs.get("group", 1)) > 1:
                    return FULL  # groups are whole blocks
                if not declared:
                    most = max(most, self.filters[node.outputs[0]].used_channels(block))
            elif node.domain != NCHWC and (node.op_type == "Concat" or name not in node.inputs):
                return FULL  # whole blocks, or an inner graph reads it
        return most or FULL

    def _plain_node(self, node: NodeDef, block: int, kept: Mapping[str, int], constants: Constants) -> NodeDef:
        added: dict[str, int] = {}
        inputs = list(node.inputs)
        if node.op_type == "Conv":
            blocked = self.filters[node.outputs[0]]
            m, c = blocked.held.shape[:2]
            out = kept[self._find(node.outputs[0])]
            m = m if out == FULL else out
            if _is_depthwise(node, blocked.held):
                added["group"] = m
            elif blocked.blocks_inputs and kept[self._find(node.inputs[0])] != FULL:
                c = kept[self._find(node.inputs[0])]
            inputs[1] = _add(constants, f"{inputs[1]}/{m}x{c}", blocked.plain(block, (m, c)))
            if len(inputs) > 2 and inputs[2]:
                inputs[2] = _add(constants, f"{inputs[2]}/{m}", np.asarray(constants[inputs[2]])[:m])
        elif node.op_type == "ReorderInput":
            channels = kept[self._find(node.outputs[0])]
            added = {"channels": channels, "block": block}
        attributes = {k: Attr(AttributeProto.INT, v) for k, v in added.items()}
        return replace(node, inputs=tuple(inputs), attributes={**node.attributes, **attributes})


def _add(constants: Constants, name: str, array: Array | LazyArray) -> str:
    constants[name] = array
    return name


def _is(node: NodeDef, op_type: str) -> bool:
    return node.domain == NCHWC and node.op_type == op_type


def _is_depthwise(node: NodeDef, held: Any) -> bool:
    group = int(node.attrs.get("group", 1))
    return group > 1 and held.shape[1] == 1
