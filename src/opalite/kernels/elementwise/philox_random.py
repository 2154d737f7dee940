"""Random numbers (Philox) in row-major tensors."""

from __future__ import annotations

import numpy as np

from ...ir.dtype import DType
from ...ops.random import KINDS, Random, uniform_bits
from ..kernel import Kernel, Params, Problem, register
from ..launch import ELEMENT, STORAGE, Args, Defines, Launch, ceil_div


@register
class RandomPhilox(Kernel):
    """One work-item per block of four numbers."""

    op = "Random"
    space = {"WG": (64, 128, 256)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        op, y = p.node.as_(Random), p.node.y
        count = y.type.count
        blocks = ceil_div(count, 4)
        args: Args = {"y": y, "blocks": blocks, "count": count}
        args |= {"key0": np.uint32(op.seed & 0xFFFFFFFF), "key1": np.uint32(op.seed >> 32 & 0xFFFFFFFF)}
        defines: Defines = {"KIND": KINDS.index(op.kind)}
        if op.kind == "bernoulli":
            x, stored = p.node.x, y.type.storage
            one = np.ones((), stored.np).view(f"uint{8 * stored.size}")
            defines |= {"ELEM": ELEMENT[stored.size], "ONE": f"{int(one)}ul"}
            defines |= {"STORAGE": STORAGE[x.type.storage], "BITS": uniform_bits(x.dtype)}
            return [Launch("random_bernoulli", {**args, "x": x}, (blocks,), (params["WG"],), defines)]
        defines |= {"STORAGE": STORAGE[y.type.storage], "BITS": uniform_bits(y.dtype)}
        if op.kind == "uniform":
            line = (op.low, op.high - op.low)
        else:
            line = (op.mean, op.scale)
        number = np.float64 if y.type.storage is DType.FLOAT64 else np.float32
        args |= {"first": number(line[0]), "factor": number(line[1])}
        return [Launch("random_real", args, (blocks,), (params["WG"],), defines)]
