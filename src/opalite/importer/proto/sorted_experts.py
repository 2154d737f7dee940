"""Rows sorted by expert, split by computed sizes, each part multiplied by its expert's matrix: one product of experts.

    concat(split(x, sizes)[0] @ w_0, split(x, sizes)[1] @ w_1, ...)

The sizes say which expert each row belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .expert_loops import GraphIndex
from .graphdef import DOMAIN, Attr, NodeDef

FLOATS = (np.float32, np.float16)


def group_sorted_experts(index: GraphIndex) -> Iterator[tuple[NodeDef, list[NodeDef]]]:
    """Yield each Concat of products that can be one, and the nodes in its place."""
    for node in index.graph.nodes:
        if node.op_type == "Split" and not node.domain and len(node.inputs) > 1 and len(node.outputs) > 1:
            if node.inputs[1] in index.graph.constants or node.attrs.get("axis", 0):
                continue
            products = _products(index, node)
            for concat in {c for p in products[:1] for o in p.outputs for c in index.readers.get(o, ())}:
                joined = concat.op_type == "Concat" and concat.attrs.get("axis", 0) == 0
                if joined and concat.inputs == tuple(p.outputs[0] for p in products):
                    yield concat, _grouped(node, products, concat)


def _products(index: GraphIndex, split: NodeDef) -> list[NodeDef]:
    """Return the products by constants of the parts in order; an empty list unless they are alike."""
    found: list[NodeDef] = []
    constants = index.graph.constants
    for part in split.outputs:
        readers = index.readers.get(part, [])
        if len(readers) != 1 or readers[0].op_type not in ("MatMul", "Gemm") or readers[0].inputs[0] != part:
            return []
        node = readers[0]
        held = [constants.held(n) for n in node.inputs[1:] if n in constants]
        if len(held) < len(node.inputs) - 1 or len(held[0].shape) != 2 or any(h.dtype not in FLOATS for h in held):
            return []
        if not is_plain_product(node) or part in index.outputs or node.outputs[0] in index.outputs:
            return []
        found.append(node)
    shapes = {tuple(constants.held(n).shape for n in p.inputs[1:]) for p in found}
    kinds = {(p.op_type, bool(p.attrs.get("transB", 0))) for p in found}
    return found if len(shapes) == len(kinds) == 1 else []


def is_plain_product(node: NodeDef) -> bool:
    """Whether a product neither transposes its rows nor scales its result."""
    attrs = node.attrs
    return not attrs.get("transA", 0) and attrs.get("alpha", 1) == attrs.get("beta", 1) == 1


def _grouped(split: NodeDef, products: list[NodeDef], concat: NodeDef) -> list[NodeDef]:
    first, picks, out = products[0], f"{concat.outputs[0]}/experts", concat.outputs[0]
    constants = [p.inputs[i] for i in range(1, len(first.inputs)) for p in products]
    attrs = {"kind": first.op_type, "experts": len(products), "axis": 0, "shares": 0, **first.attrs}
    return [
        replace(split, op_type="ExpertsOfRows", domain=DOMAIN, version=1, outputs=(picks,), attributes={}),
        NodeDef(
            "ExpertProduct",
            DOMAIN,
            1,
            first.name,
            (split.inputs[0], picks, *constants),
            (out,),
            {k: Attr(0, v) for k, v in attrs.items()},
            opsets=first.opsets,
        ),
    ]
