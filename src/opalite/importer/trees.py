"""Tree ensembles (ai.onnx.ml) by NumPy: all rows go down all trees together, one level at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .protos import Array

_MODES: dict[str, Callable[[Array, Array], Array]] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}
_ROWS = 1 << 20  # of positions, rows times trees, that go down together


@dataclass
class Ensemble:
    """Trees as arrays by node number. A leaf is its own child, so that rows may arrive early.

    rules: (comparison, which nodes use it). payload: for each node, the weights it gives to each column.
    """

    roots: Array
    feature: Array
    threshold: Array
    yes: Array
    no: Array
    missing_is_yes: Array
    rules: list[tuple[Callable[[Array, Array], Array], Array]]
    depth: int
    payload: Array
    base: Array
    aggregate: str
    transform: str
    labels: Array | None  # of a classifier
    one_class: bool  # a classifier of two classes whose weights are all for one of them
    positive: bool

    @staticmethod
    def of(attrs: Mapping[str, Any], classifies: bool) -> Ensemble | None:
        """The ensemble that the attributes of a TreeEnsembleClassifier or -Regressor describe; None if unusual."""
        modes = np.asarray(attrs.get("nodes_modes", ()), object)
        trees = np.asarray(attrs.get("nodes_treeids", ()), np.int64)
        ids = np.asarray(attrs.get("nodes_nodeids", ()), np.int64)
        aggregate = str(attrs.get("aggregate_function", "SUM"))
        transform = str(attrs.get("post_transform", "NONE"))
        if not len(modes) or not set(modes) <= {*_MODES, "LEAF"} or (transform == "PROBIT"):
            return None
        number = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
        leaf = modes == "LEAF"
        count = len(modes)

        def child(name: str) -> Array | None:
            found = np.arange(count)
            for i in np.flatnonzero(~leaf):
                to = number.get((int(trees[i]), int(attrs[name][i])))
                if to is None:
                    return None
                found[i] = to
            return found

        yes, no = child("nodes_truenodeids"), child("nodes_falsenodeids")
        if yes is None or no is None:
            return None
        _, roots = np.unique(trees, return_index=True)
        depth = _depth(roots, yes, no)
        if depth is None:
            return None
        threshold = _floats(attrs, "nodes_values", count)
        missing = np.asarray(attrs.get("nodes_missing_value_tracks_true") or [0] * count, bool)
        kind = "class" if classifies else "target"
        columns = np.asarray(attrs.get(f"{kind}_ids", ()), np.int64)
        weights = _floats(attrs, f"{kind}_weights", len(columns))
        owners = [number[t, n] for t, n in zip(attrs[f"{kind}_treeids"], attrs[f"{kind}_nodeids"], strict=True)]
        labels = _labels(attrs) if classifies else None
        width = int(attrs.get("n_targets", 1)) if labels is None else max(len(labels), 1)
        one_class = labels is not None and width <= 2 and len(set(columns.tolist())) == 1
        if labels is not None and (width == 1 or (width == 2 and not one_class)):
            return None  # rare, and decided in ways of their own
        if aggregate not in ("SUM", "AVERAGE") and len(set(owners)) < len(owners):
            return None
        payload = np.zeros((count, width), threshold.dtype)
        for node, column, weight in zip(owners, columns.tolist(), weights, strict=True):
            payload[node, 0 if one_class else column] += weight
        if aggregate not in ("SUM", "AVERAGE") and width > 1:
            return None
        base = _floats(attrs, "base_values", 0)
        if one_class and base.size > 1:
            return None
        rules = [(compare, np.flatnonzero(modes == name)) for name, compare in _MODES.items() if (modes == name).any()]
        return Ensemble(
            roots=roots,
            feature=np.asarray(attrs.get("nodes_featureids", [0] * count), np.int64) * ~leaf,
            threshold=threshold,
            yes=yes,
            no=no,
            missing_is_yes=missing,
            rules=rules,
            depth=depth,
            payload=payload,
            base=base,
            aggregate=aggregate,
            transform=transform,
            labels=labels,
            one_class=one_class,
            positive=bool((weights >= 0).all()),
        )

    def run(self, x: Array) -> list[Array]:
        """[y] of a regressor, [labels, scores] of a classifier, for rows x[N,F]."""
        x = x.reshape(1, -1) if x.ndim == 1 else x
        x = x if x.dtype.kind == "f" else x.astype(np.float32)
        step = max(1, _ROWS // len(self.roots))
        parts = [self._sums(x[i : i + step]) for i in range(0, len(x), step)]
        scores = np.concatenate(parts) if parts else np.zeros((0, self.payload.shape[1]))
        if self.labels is None:
            return [_transform(scores + self.base if self.base.size else scores, self.transform).astype(np.float32)]
        return self._classes(scores, self.labels)

    def _sums(self, x: Array) -> Array:
        """What the leaves that each row reaches give to each column: [N, columns], before base values."""
        at = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        rows = np.arange(len(x))[:, None]
        kind = np.zeros(len(self.feature), np.int64)
        for i, (_, nodes) in enumerate(self.rules):
            kind[nodes] = i
        for _ in range(self.depth):
            value = x[rows, self.feature[at]]
            limit = self.threshold[at]
            goes = np.zeros(at.shape, bool)
            for i, (compare, _nodes) in enumerate(self.rules):
                goes |= compare(value, limit) & (kind[at] == i) if len(self.rules) > 1 else compare(value, limit)
            goes = np.where(np.isnan(value), self.missing_is_yes[at], goes)
            at = np.where(goes, self.yes[at], self.no[at])
        given = self.payload[at]
        if self.aggregate == "MIN":
            return np.asarray(given.min(1))
        if self.aggregate == "MAX":
            return np.asarray(given.max(1))
        total = given.sum(1, dtype=np.float64)
        return np.asarray(total / len(self.roots) if self.aggregate == "AVERAGE" else total)

    def _classes(self, scores: Array, labels: Array) -> list[Array]:
        if not self.one_class:
            scores = scores + self.base if self.base.size else scores
            best = scores.argmax(1)
            return [labels[best], _transform(scores, self.transform).astype(np.float32)]
        one = scores[:, :1] + (self.base[0] if self.base.size else 0)
        best = (one[:, 0] > (0.5 if self.positive else 0.0)).astype(np.int64)
        if self.transform == "LOGISTIC":
            both = _transform(np.concatenate([-one, one], 1), self.transform)
        else:
            both = np.concatenate([1 - one if self.positive else -one, one], 1)
            both = _transform(both, self.transform)
        return [labels[best], both.astype(np.float32)]


def _depth(roots: Array, yes: Array, no: Array) -> int | None:
    """Levels from the roots to the deepest leaf; None if a path runs in circles."""
    level, depth = np.unique(roots), 0
    while True:
        inner = level[(yes[level] != level) | (no[level] != level)]
        if not len(inner):
            return depth
        depth += 1
        if depth > len(yes):
            return None
        level = np.unique(np.concatenate([yes[inner], no[inner]]))


def _floats(attrs: Mapping[str, Any], name: str, count: int) -> Array:
    """A list of floats: float32, or the type of its tensor where it is given as one."""
    tensor = attrs.get(f"{name}_as_tensor")
    if tensor is not None and np.asarray(tensor).size:
        return np.asarray(tensor)
    given = attrs.get(name)
    return np.zeros(count, np.float32) if given is None or not len(given) else np.asarray(given, np.float32)


def _labels(attrs: Mapping[str, Any]) -> Array:
    strings: Sequence[str] = attrs.get("classlabels_strings") or ()
    return np.asarray(strings, object) if strings else np.asarray(attrs.get("classlabels_int64s") or (), np.int64)


def _transform(scores: Array, name: str) -> Array:
    """The post-transform `name` of scores [N, columns]."""
    if name == "LOGISTIC":
        return np.asarray(1 / (1 + np.exp(-scores)))
    if name in ("SOFTMAX", "SOFTMAX_ZERO"):
        e = np.exp(scores - scores.max(1, keepdims=True))
        e = np.where(scores == 0, 0, e) if name == "SOFTMAX_ZERO" else e
        return np.asarray(e / np.maximum(e.sum(1, keepdims=True), np.finfo(np.float32).tiny))
    return scores
