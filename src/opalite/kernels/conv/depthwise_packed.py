"""Depthwise convolution on channel-packed tensors."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node
from ...ops.conv import Convolution
from ..kernel import register
from ..launch import Args, Array, Defines, Weight, ceil_div
from .pack_filters import ConvProblem, bias_weight
from .per_channel_window import ChannelwisePacked


@register
class DepthwisePacked(ChannelwisePacked):
    """Conv with one filter for each channel (group = C = M), NCHWc to NCHWc."""

    rank = -2
    problem = ConvProblem
    half_sums = True
    op = "Conv"

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        channels = (node.x.shape[1], node.y.shape[1])
        if channels != (node.as_(Convolution).group,) * 2:
            return f"{channels[0]} to {channels[1]} channels in {node.as_(Convolution).group} groups is not depthwise"
        return p.packed_refusal

    def constants(self, node: Node, pack: int) -> Args:
        storage, bias = node.x.type.storage, node.get(2)

        def blocks(data: Array) -> Array:
            taps = data.reshape(data.shape[0], -1)
            padded = np.zeros((ceil_div(taps.shape[0], pack) * pack, taps.shape[1]), storage.np)
            padded[: taps.shape[0]] = taps
            return np.ascontiguousarray(padded.reshape(-1, pack, taps.shape[1]).swapaxes(1, 2))

        filters = Weight(node.input(1), f"depthwise filter o{pack} {storage}", blocks)
        args: Args = {"w": filters}
        return args if bias is None else {**args, "bias": bias_weight(bias, pack, storage)}

    def kind(self, node: Node) -> Defines:
        return {"KIND": 3, "HAS_BIAS": node.get(2) is not None}
