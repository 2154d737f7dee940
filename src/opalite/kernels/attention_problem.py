"""What the attention kernels share: refusals, defines and arguments of an Attention node."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ir.dtype import DType
from ..ir.graph import Node
from .base import Arg
from .sources import STORAGE


def mask_strides(node: Node) -> tuple[int, int, int, int]:
    """Elements from one b, h, s and t to the next in the mask; 0 where it broadcasts."""
    mask = node.get(3)
    if mask is None:
        return 0, 0, 0, 0
    shape = (1,) * (4 - len(mask.shape)) + tuple(mask.shape)
    b, h, s, t = (0 if size == 1 else math.prod(shape[i + 1 :]) for i, size in enumerate(shape))
    return b, h, s, t


def attention_refusal(node: Node) -> str | None:
    """What no attention kernel can serve: sizes beyond 32-bit indices."""
    largest = max(v.type.count for v in (*node.inputs, *node.outputs) if v is not None)
    return f"a tensor of {largest} elements is beyond 32-bit indices" if largest >= 1 << 31 else None


def attention_defines(node: Node) -> dict[str, Any]:
    """Defines that attention kernels share."""
    mask = node.get(3)
    return {
        "STORAGE": STORAGE[node.y.type.storage],
        "MASK": 0 if mask is None else 1 if mask_strides(node)[3] else 2,
        "CAUSAL": bool(node.attrs["causal"]),
        "SOFTCAP": bool(node.attrs["softcap"]),
    }


def attention_args(node: Node) -> tuple[tuple[Arg, ...], tuple[Arg, ...]]:
    """Kernel arguments that attention kernels share: tensors and sizes first; then the mask's steps in b, h and s."""
    q, k, v = node.x, node.input(1), node.input(2)
    batches, heads, queries, size = q.shape
    mask: Arg = node.get(3) or q
    sizes = (batches, heads, heads // k.shape[1], queries, k.shape[2], size, v.shape[3])
    return (q, k, v, mask, node.y, *sizes), mask_strides(node)[:3]


def factors(node: Node) -> tuple[np.generic, np.generic]:
    """Scale and soft cap in the type that the kernel computes in."""
    kind = np.float64 if node.y.type.storage is DType.FLOAT64 else np.float32
    return kind(node.attrs["scale"]), kind(node.attrs["softcap"])
