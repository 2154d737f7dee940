"""PyTorch's nn.MultiheadAttention as torch.onnx writes it: sequences first between two transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.models.net import Batch, Net


def encoder(
    batch: Batch = 2,
    length: Batch = 50,
    width: int = 64,
    heads: int = 4,
    layers: int = 1,
    *,
    mask: bool = False,
    memory: int = 0,
    batch_first: bool = True,
    stacks: bool = False,
) -> Any:
    """Pre-norm encoder blocks: x [batch, length, width] to y of that shape.

    mask: numbers [length, length] are added to the scores. memory: each block also attends to `memory` positions of a
    second input. batch_first False: x is [length, batch, width], and nothing is transposed. stacks: heads of all
    batches are one axis, as where weights of attention are asked for, by default.
    """
    net = Net("encoder", opset=17)
    attend = attention_of_stacks if stacks else attention
    lead = (batch, length) if batch_first else (length, batch)
    x = net.input("x", (*lead, width))
    added = net.input("added", (length, length)) if mask else None
    other = net.input("memory", (batch, memory, width)) if memory else None
    for _ in range(layers):
        y = net.layer_norm(x, width, 1e-6)
        y = net.transpose(y, 1, 0, 2) if batch_first else y
        q, k, v = in_projection(net, y, width, 3)
        y = attend(net, q, k, v, (batch, length, length), width, heads, added)
        x = net.add(x, net.transpose(y, 1, 0, 2) if batch_first else y)
        if other is not None:
            y = net.transpose(net.layer_norm(x, width, 1e-6), 1, 0, 2)
            keys, values = in_projection(net, net.transpose(other, 1, 0, 2), width, 2)
            y = attend(net, net.linear(y, width, width), keys, values, (batch, length, memory), width, heads, None)
            x = net.add(x, net.transpose(y, 1, 0, 2))
        y = net.gelu(net.linear(net.layer_norm(x, width, 1e-6), width, 2 * width))
        x = net.add(x, net.linear(y, 2 * width, width))
    return net.model(x)


def in_projection(net: Net, x: str, width: int, parts: int) -> list[str]:
    """[L, N, width] to `parts` tensors of that shape, by one product whose result is taken apart by Gather."""
    joint = net.op("Reshape", net.linear(x, width, parts * width), net.integers(0, 0, parts, width))
    joint = net.op("Unsqueeze", joint, net.integers(0))
    joint = net.op("Squeeze", net.transpose(joint, 3, 1, 2, 0, 4), net.integers(3))
    return [net.op("Gather", joint, net.constant(i, "index", np.int64), axis=0) for i in range(parts)]


def attention(
    net: Net,
    q: str,
    k: str,
    v: str,
    sizes: tuple[Batch, Batch, Batch],
    width: int,
    heads: int,
    mask: str | None,
) -> str:
    """Scaled dot products of [L, N, width] and [S, N, width]; `sizes` are N, L and S. The result is [L, N, width]."""
    depth = width // heads
    root = net.constant(depth**-0.25, "root")

    def split(x: str, length: Batch) -> str:
        """[length, N, width] to [N, heads, length, depth], through [N * heads, length, depth]."""
        rows = stack(net, x, sizes[0], heads, depth)
        if isinstance(sizes[0], int):
            return net.reshape(rows, sizes[0], heads, -1, depth)
        batch = net.op("Slice", net.op("Shape", x), net.integers(1), net.integers(2))
        length_of = net.integers(length) if isinstance(length, int) else net.integers(-1)
        shape = net.op("Concat", batch, net.integers(heads), length_of, net.integers(depth), axis=0)
        return net.op("Reshape", rows, shape)

    q4, k4, v4 = split(q, sizes[1]), split(k, sizes[2]), split(v, sizes[2])
    keys = net.op("Mul", net.transpose(k4, 0, 1, 3, 2), root)
    scores = net.op("MatMul", net.op("Mul", q4, root), keys)
    if mask is not None:
        scores = net.add(scores, mask)
    y = net.transpose(net.op("MatMul", net.op("Softmax", scores, axis=-1), v4), 2, 0, 1, 3)
    y = net.gemm(net.reshape(y, -1, width), width, width)
    return net.op("Reshape", y, net.op("Shape", q))


def attention_of_stacks(
    net: Net,
    q: str,
    k: str,
    v: str,
    sizes: tuple[Batch, Batch, Batch],
    width: int,
    heads: int,
    mask: str | None,
) -> str:
    """As `attention`, by products of [N * heads, L, depth]."""
    depth = width // heads
    q3, k3, v3 = (stack(net, x, sizes[0], heads, depth) for x in (q, k, v))
    scores = net.op("MatMul", net.op("Mul", q3, net.constant(depth**-0.5)), net.transpose(k3, 0, 2, 1))
    if mask is not None:
        scores = net.add(scores, net.op("Unsqueeze", mask, net.integers(0)))
    y = net.transpose(net.op("MatMul", net.op("Softmax", scores, axis=-1), v3), 1, 0, 2)
    y = net.gemm(net.reshape(y, -1, width), width, width)
    return net.op("Reshape", y, net.op("Shape", q))


def stack(net: Net, x: str, batch: Batch, heads: int, depth: int) -> str:
    """[L, N, heads * depth] to [N * heads, L, depth]."""
    return net.transpose(net.reshape(x, 0, batch * heads if isinstance(batch, int) else -1, depth), 1, 0, 2)
