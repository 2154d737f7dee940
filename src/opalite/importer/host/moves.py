"""Operators on the host that move elements, of strings above all, which no device holds. Results are new arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..proto.decode import Array
from .native import HostNode, Step, host_op

ML = "ai.onnx.ml"


@host_op("Gather")
def gather(node: HostNode) -> Step:
    """Slices of x along an axis, by number; negative numbers count from the end."""
    axis = int(node.attrs.get("axis", 0))
    return lambda inputs: [inputs[0].take(inputs[1], axis)]


@host_op("ArrayFeatureExtractor", ML)
def array_feature_extractor(node: HostNode) -> Step:
    """Columns of x by number; a vector is one row."""

    def run(inputs: Sequence[Any]) -> list[Any]:
        x = inputs[0] if inputs[0].ndim > 1 else inputs[0].reshape(1, -1)
        return [x.take(inputs[1].reshape(-1), -1)]

    return run


@host_op("Concat")
def concat(node: HostNode) -> Step:
    """Arrays one after the other along an axis."""
    axis = int(node.attrs.get("axis", 1))
    return lambda inputs: [np.concatenate(inputs, axis)]


@host_op("Reshape")
def reshape(node: HostNode) -> Step:
    """x in another shape: 0 keeps a size, unless `allowzero`, and -1 takes what is left. At first an attribute."""
    keeps = not int(node.attrs.get("allowzero", 0))

    def run(inputs: Sequence[Any]) -> list[Any]:
        x: Array = inputs[0]
        shape = inputs[1].tolist() if len(inputs) > 1 else node.attrs["shape"]
        return [x.reshape([x.shape[i] if d == 0 and keeps else d for i, d in enumerate(shape)]).copy()]

    return run


@host_op("Flatten")
def flatten(node: HostNode) -> Step:
    """x as a matrix: the axes before `axis`, and the others."""
    axis = int(node.attrs.get("axis", 1))

    def run(inputs: Sequence[Any]) -> list[Any]:
        x: Array = inputs[0]
        before = math.prod(x.shape[:axis])
        return [x.reshape(before, math.prod(x.shape[axis:])).copy()]

    return run


@host_op("Transpose")
def transpose(node: HostNode) -> Step:
    """x with its axes in another order, the reverse one if there is none."""
    perm = node.attrs.get("perm")
    return lambda inputs: [inputs[0].transpose(perm).copy()]
