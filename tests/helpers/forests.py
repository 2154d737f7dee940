"""Random trees as the attributes of ai.onnx.ml's operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx import numpy_helper

ALL_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 4


def forest(
    kind: str,
    columns: Sequence[int],
    trees: int = 7,
    depth: int = 5,
    modes: Sequence[str] = ("BRANCH_LEQ",),
    positive: bool = False,
    shift: float = 0.0,
) -> dict[str, Any]:
    """Trees over four features whose paths end early at random; each leaf has a weight for each of `columns`."""
    rng = np.random.default_rng(trees + depth + len(columns))
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{k}": [] for k in (*names, "missing_value_tracks_true")}
    owners: dict[str, list[Any]] = {f"{kind}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, left: int) -> int:
        own = nodes["nodes_treeids"].count(tree)
        at = len(nodes["nodes_treeids"])
        is_leaf = left == 0 or (left < depth and rng.random() < 0.25)
        limit = rng.integers(-2, 3) if rng.random() < 0.3 else rng.standard_normal()
        feature, mode = (0, "LEAF") if is_leaf else (int(rng.integers(FEATURES)), modes[int(rng.integers(len(modes)))])
        row = (tree, own, feature, float(np.float32(limit)), mode, 0, 0, int(rng.random() < 0.5))
        for column, v in zip(nodes.values(), row, strict=True):
            column.append(v)
        if not is_leaf:
            nodes["nodes_truenodeids"][at] = grow(tree, left - 1)
            nodes["nodes_falsenodeids"][at] = grow(tree, left - 1)
            return own
        for c in columns:
            weight = float(np.float32(rng.random() / trees if positive else rng.standard_normal() + shift))
            for column, v in zip(owners.values(), (tree, own, c, weight), strict=True):
                column.append(v)
        return own

    for t in range(trees):
        grow(t, depth)
    return nodes | owners


def typed_forest(seed: int, dtype: Any, trees: int = 4, depth: int = 3) -> dict[str, Any]:
    """Attributes of TreeEnsemble (version 5) but for n_targets, which must be at least 1 + seed % 2."""
    rng = np.random.default_rng(seed)
    lists: dict[str, list[Any]] = {
        k: []
        for k in ("featureids", "modes", "splits", "missing", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    }
    targets: list[int] = []
    weights: list[float] = []
    members: list[float] = []

    def grow(left: int) -> int:
        own, mode = len(lists["modes"]), int(rng.integers(7))
        limit = float(rng.integers(-2, 3) if rng.random() < 0.5 else rng.standard_normal())
        for name, v in zip(
            lists, (int(rng.integers(FEATURES)), mode, limit, int(rng.integers(2)), 0, 0, 0, 0), strict=True
        ):
            lists[name].append(v)
        if mode == 6:
            members.extend([*(float(v) for v in rng.permutation(5)[: int(rng.integers(1, 4))]), float("nan")])
        for side in ("true", "false"):
            is_leaf = left == 0 or bool(rng.random() < 0.2)
            lists[f"{side}leafs"][own] = int(is_leaf)
            if is_leaf:
                lists[f"{side}nodeids"][own] = len(weights)
                weights.append(float(rng.standard_normal()))
                targets.append(int(rng.integers(1 + seed % 2)))
            else:
                lists[f"{side}nodeids"][own] = grow(left - 1)
        return own

    roots = [grow(depth) for _ in range(trees)]

    def tensor(values: Sequence[Any], kind: Any = dtype) -> Any:
        return numpy_helper.from_array(np.asarray(values, kind), "t")

    attrs: dict[str, Any] = {f"nodes_{k}": lists[k] for k in lists if k not in ("modes", "splits", "missing")}
    attrs |= {"nodes_modes": tensor(lists["modes"], np.uint8), "nodes_splits": tensor(lists["splits"])}
    attrs |= {"nodes_missing_value_tracks_true": lists["missing"], "tree_roots": roots}
    attrs |= {"leaf_targetids": targets, "leaf_weights": tensor(weights)}
    return attrs | ({"membership_values": tensor(members)} if members else {})
