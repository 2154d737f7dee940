"""ai.onnx.ml: support vectors, linear models, trees, and what prepares their features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def rows(b: Builder) -> str:
    """Features: float32 [N, C]."""
    x = b.find(lambda a: a.dtype == np.float32 and a.ndim == 2 and 0 < a.size <= 2000 and bool(np.isfinite(a).all()))
    if x is None or b.draw.chance(0.4):
        special, b.draw.special = b.draw.special, 0.0
        x = b.input(b.draw.array([b.draw.pick([1, 2, 7, 33]), b.draw.pick([1, 2, 3, 5, 8])], "f4"))
        b.draw.special = special
    if not b[x].size:
        raise Rejected("no features")
    return x


def numbers(b: Builder, count: int, scale: float = 1.0) -> list[float]:
    return [float(v) for v in (scale * b.draw.rng.standard_normal(count)).astype(np.float32)]


def kernel(b: Builder) -> dict[str, Any]:
    d = b.draw
    return {
        "kernel_type": d.pick(["LINEAR", "POLY", "RBF", "RBF", "SIGMOID"]),
        "kernel_params": [round(d.between(1, 9) / 10, 2), d.pick([0.0, 0.1]), float(d.pick([2, 3]))],
    }


@operation("machine", 1.5)
def support_vectors(b: Builder) -> None:
    """SVMClassifier, with probabilities or without."""
    d, x = b.draw, rows(b)
    width, k = b[x].shape[1], d.pick([2, 2, 3, 4])
    per_class = [d.between(1, 3) for _ in range(k)]
    count, pairs = sum(per_class), k * (k - 1) // 2
    attrs: dict[str, Any] = kernel(b) | {
        "vectors_per_class": per_class,
        "support_vectors": numbers(b, count * width),
        "coefficients": numbers(b, (k - 1) * count),
        "rho": numbers(b, pairs),
        "classlabels_ints": sorted({int(v) for v in d.rng.permutation(20)[:k]}),
        "post_transform": d.pick((None, None, *TRANSFORMS)),
    }
    if d.chance(0.6):
        attrs |= {"prob_a": [-abs(v) for v in numbers(b, pairs)], "prob_b": numbers(b, pairs)}
    b.emit_all("SVMClassifier", [x], 2, domain=ML, **attrs)


@operation("machine", 0.6)
def support_vector_regression(b: Builder) -> None:
    d, x = b.draw, rows(b)
    width, count = b[x].shape[1], d.between(1, 5)
    attrs = kernel(b) | {"n_supports": count, "support_vectors": numbers(b, count * width), "rho": numbers(b, 1)}
    b.emit("SVMRegressor", [x], domain=ML, coefficients=numbers(b, count), one_class=d.pick([None, 0, 1]), **attrs)


@operation("machine", 1)
def linear_model(b: Builder) -> None:
    d, x = b.draw, rows(b)
    width, k = b[x].shape[1], d.pick([1, 2, 3])
    attrs = {"coefficients": numbers(b, k * width), "intercepts": numbers(b, k)}
    attrs["post_transform"] = d.pick([None, *TRANSFORMS])
    if d.chance(0.5):
        b.emit("LinearRegressor", [x], domain=ML, targets=k, **{**attrs, "post_transform": None})
    else:
        labels = list(range(3, 3 + max(k, 2)))
        b.emit_all("LinearClassifier", [x], 2, domain=ML, classlabels_ints=labels, **attrs)


@operation("machine", 1)
def prepared_features(b: Builder) -> None:
    d, x = b.draw, rows(b)
    width = b[x].shape[1]
    op = d.pick(["Scaler", "Normalizer", "Binarizer", "Imputer", "ArrayFeatureExtractor"])
    if op == "Scaler":
        count = d.pick([1, width])
        scale = [abs(v) + 0.1 for v in numbers(b, count)]
        b.emit(op, [x], domain=ML, offset=numbers(b, count), scale=scale)
    elif op == "Normalizer":
        b.emit(op, [x], domain=ML, norm=d.pick(["MAX", "L1", "L2"]))
    elif op == "Binarizer":
        b.emit(op, [x], domain=ML, threshold=d.pick([None, 0.25]))
    elif op == "Imputer":
        count = d.pick([1, width])
        b.emit(op, [x], domain=ML, imputed_value_floats=numbers(b, count), replaced_value_float=float(b[x].flat[0]))
    else:
        columns = d.array([d.between(1, 4)], "i8", 0, width - 1)
        b.emit(op, [x, b.const(columns, 0.0)], domain=ML)


@operation("machine", 1)
def trees(b: Builder) -> None:
    """TreeEnsembleRegressor or TreeEnsembleClassifier of random trees."""
    d, x = b.draw, rows(b)
    width, regression = b[x].shape[1], d.chance(0.5)
    # Of two classes that both have weights onnxruntime gives 0 or 1 for a label, whatever the labels are.
    k = d.pick([1, 2, 3] if regression else [1, 3])
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{n}": [] for n in names}
    leaves: dict[str, list[Any]] = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    mode = d.pick(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])

    def grow(tree: int, depth: int, count: int) -> int:
        """Add a subtree whose root is node `count`; the next free number."""
        leaf = depth == 0 or d.chance(0.3)
        at = len(nodes["nodes_nodeids"])
        for name, value in zip(names, (tree, count, 0, "LEAF", 0.0, 0, 0), strict=True):
            nodes[f"nodes_{name}"].append(value)
        if leaf:
            # Of classes that no leaf has a weight for onnxruntime takes none as the best, whatever the others sum to.
            for target in range(k) if d.chance(0.5) or not regression else [d.between(0, k - 1)]:
                for name, value in zip(leaves, (tree, count, target, numbers(b, 1)[0]), strict=True):
                    leaves[name].append(value)
            return count + 1
        nodes["nodes_modes"][at] = mode
        nodes["nodes_featureids"][at] = d.between(0, width - 1)
        nodes["nodes_values"][at] = round(numbers(b, 1)[0], 1)
        nodes["nodes_truenodeids"][at] = count + 1
        middle = grow(tree, depth - 1, count + 1)
        nodes["nodes_falsenodeids"][at] = middle
        return grow(tree, depth - 1, middle)

    for tree in range(d.between(1, 4)):
        grow(tree, d.between(1, 4), 0)
    if regression:
        ends = {f"target_{n}": v for n, v in leaves.items()}
        how = d.pick([None, "SUM", "AVERAGE", "MIN", "MAX"])
        b.emit("TreeEnsembleRegressor", [x], domain=ML, n_targets=k, aggregate_function=how, **nodes, **ends)
    else:
        ends = {f"class_{n}": v for n, v in leaves.items()}
        labels = list(range(2, 2 + max(k, 2)))
        transform = d.pick([None, *TRANSFORMS])
        b.emit_all(
            "TreeEnsembleClassifier",
            [x],
            2,
            domain=ML,
            classlabels_int64s=labels,
            post_transform=transform,
            **nodes,
            **ends,
        )
