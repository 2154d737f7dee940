"""Recognize group normalization written as a normalization of reshaped tensors."""

from __future__ import annotations

import math

import numpy as np

from ...ir.constants.lazy_array import Array
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...ir.tensor_type import Shape
from ...ops.data_movement import Reshape
from ...ops.normalize import BY_CHANNEL, Normalize
from ..rewrite_driver import Sweep, joined_origin
from .fold_into_conv import constant_like


def recognize_group_norm(node: Node, sweep: Sweep) -> Patch | str | None:
    """A Normalize of x[N,C,...] reshaped to rows of whole channels, and reshaped back, becomes Normalize(group) of x.

    So exporters of opsets without GroupNormalization write it. The reshaped tensor has no channels of x to pack, and
    a following scale per channel could not become part of the normalization.
    """
    norm = node.x.producer if isinstance(node.op, Reshape) else None
    view = None if norm is None or not isinstance(norm.op, Normalize) else norm.x.producer
    if norm is None or view is None or not isinstance(view.op, Reshape) or norm.epilogue is not None:
        return None
    x, op = view.x, norm.as_(Normalize)
    if sweep.only_use(norm.y) is not node or not always_equal(x.shape, node.y.shape) or op.kind == "rms":
        return None
    groups = _groups(op, x.shape, norm.x.shape)
    if groups is None:
        return "its rows are no groups of channels"
    parameters: list[Value | None] = [None, None]
    for i, neutral in enumerate((1.0, 0.0)):
        v = norm.get(i + 1)
        if v is None:
            continue
        spread = _by_channel(op, v, x.shape, norm.x.shape)
        if spread is None:
            return f"{v.type} is no constant of a value for each group"
        if np.any(spread != neutral):
            parameters[i] = constant_like(v, spread)
    kind = Normalize("instance", op.epsilon) if groups == x.shape[1] else Normalize("group", op.epsilon, -1, groups)
    made = node.with_(op=kind, inputs=[x, *parameters], name=norm.name, origin=joined_origin(view, norm, node))
    return Patch.replacing(node, made, also=[norm])


def _groups(op: Normalize, shape: Shape, viewed: Shape) -> int | None:
    """Number of groups that the channels of x have if each row is whole channels of an image, else None."""
    if len(shape) < 2:
        return None
    lead = (viewed[0], op.num_groups) if op.kind == "group" else viewed[: 2 if op.kind in BY_CHANNEL else op.axis]
    channels = shape[1]
    if lead and always_equal(lead[0], shape[0]):
        groups = math.prod(lead[1:])
    elif type(shape[0]) is int and shape[0] and math.prod(lead) % shape[0] == 0:
        groups = math.prod(lead) // shape[0]
    else:
        return None
    if type(channels) is not int or type(groups) is not int or groups < 1 or channels % groups:
        return None
    return groups


def _by_channel(op: Normalize, v: Value, shape: Shape, viewed: Shape) -> Array | None:
    """A constant scale or bias of the reshaped tensor as one for each channel of x; None if there is none."""
    if not v.is_const or not v.type.count:
        return None
    data, channels = v.array.reshape(-1), int(shape[1])
    if np.all(data == data[0]):
        return np.full(channels, data[0])
    if op.kind not in BY_CHANNEL or not always_equal(viewed[0], shape[0]) or channels % len(data):
        return None
    return np.repeat(data, channels // len(data))
