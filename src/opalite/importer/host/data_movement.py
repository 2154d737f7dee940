"""Reshaping operators on host values, mainly strings. Results are new arrays.

If shapes are known at import, canonical operators move strings instead, by their NumPy references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Array
from .numpy_ops import HostNode, Step, host_op, host_step


@host_step("Reshape")
def reshape(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Reshape x: 0 keeps a size unless `allowzero`, -1 is inferred. Old opsets have the shape as attribute."""
    keeps = not int(node.attrs.get("allowzero", 0))
    x: Array = inputs[0]
    shape = inputs[1].tolist() if len(inputs) > 1 else node.attrs["shape"]
    return [x.reshape([x.shape[i] if d == 0 and keeps else d for i, d in enumerate(shape)]).copy()]


@host_step("Flatten")
def flatten(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Reshape x to a matrix: the axes before `axis`, and the others."""
    axis = int(node.attrs.get("axis", 1))
    x: Array = inputs[0]
    before = math.prod(x.shape[:axis])
    return [x.reshape(before, math.prod(x.shape[axis:])).copy()]


@host_op("Transpose")
def transpose(node: HostNode) -> Step:
    """Permute the axes of x; without perm, reverse them."""
    perm = node.attrs.get("perm")
    return lambda inputs: [inputs[0].transpose(perm).copy()]


@host_step("Squeeze")
def squeeze(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Remove axes of size 1: the given ones (an attribute in old opsets), or all."""
    x: Array = inputs[0]
    axes = _axes(node, inputs)
    wrong = [a for a in axes or () if not -x.ndim <= a < x.ndim or x.shape[a] != 1]
    if wrong:
        raise ShapeError(f"Squeeze takes axis {wrong[0]} of shape {list(x.shape)}; its size is not 1")
    return [np.squeeze(x, None if axes is None else tuple({a % x.ndim for a in axes})).copy()]


@host_step("Unsqueeze")
def unsqueeze(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Insert axes of size 1, counted in the result (an attribute in old opsets)."""
    x: Array = inputs[0]
    axes = _axes(node, inputs) or []
    rank = x.ndim + len(axes)
    if len({a % rank for a in axes}) < len(axes) or any(not -rank <= a < rank for a in axes):
        raise ShapeError(f"Unsqueeze adds the axes {axes} to shape {list(x.shape)}")
    return [np.expand_dims(x, tuple(axes)).copy()]


def _axes(node: HostNode, inputs: Sequence[Any]) -> list[int] | None:
    if len(inputs) > 1 and inputs[1] is not None:
        return [int(a) for a in np.asarray(inputs[1]).reshape(-1)]
    found = node.attrs.get("axes")
    return None if found is None else [int(a) for a in found]
