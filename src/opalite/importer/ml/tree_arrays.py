"""Conversion of ai.onnx.ml's tree attributes to the arrays of the canonical TreeEnsemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ModelError, UnsupportedOpError
from ...ir import Array
from ...ops.tree_ensemble import MISSING_IS_YES

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MEMBER = 6  # BRANCH_MEMBER in the standard's enumeration; other modes have their index in _MODES
_EQUAL = 4


@dataclass(frozen=True)
class Trees:
    """Constant inputs of one TreeEnsemble, in float64 if the model's attributes are."""

    limits: Array
    nodes: Array
    roots: Array
    leaves: Array
    columns: Array
    weights: Array
    depth: int


def flat_trees(attrs: Mapping[str, Any], kind: str, label: str) -> Trees:
    """Convert TreeEnsembleClassifier (kind 'class') or -Regressor ('target'); ModelError for inconsistent nodes."""
    modes = _comparison_numbers(attrs.get("nodes_modes", ()), label)
    count = len(modes)
    trees, ids = _ints(attrs, "nodes_treeids"), _ints(attrs, "nodes_nodeids")
    if len(trees) != count or len(ids) != count or not count:
        raise ModelError(
            f"{label}: {count} nodes_modes, {len(trees)} nodes_treeids and {len(ids)} nodes_nodeids must be one each"
        )
    leaf = modes < 0
    place = _NodeIndex(trees, ids, label)
    own = np.arange(count)
    edges = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        to = own.copy()
        given = _ints(attrs, name)
        if len(given) != count:
            raise ModelError(f"{label}: {count} nodes, but {len(given)} {name}")
        to[~leaf] = place.of(trees[~leaf], given[~leaf], name)
        edges.append(to)
    _, roots = np.unique(trees, return_index=True)
    owners = place.of(_ints(attrs, f"{kind}_treeids"), _ints(attrs, f"{kind}_nodeids"), f"{kind}_nodeids")
    columns, weights = _ints(attrs, f"{kind}_ids"), _floats(attrs, f"{kind}_weights", len(owners))
    if not len(columns) == len(weights) == len(owners):
        raise ModelError(f"{label}: {len(owners)} {kind}_nodeids, {len(columns)} {kind}_ids and {len(weights)} weights")
    order = np.argsort(owners, kind="stable")
    owners = owners[order]
    leaves = np.stack([np.searchsorted(owners, own, "left"), np.searchsorted(owners, own, "right")], 1)
    missing = _ints(attrs, "nodes_missing_value_tracks_true")
    features = _ints(attrs, "nodes_featureids")
    if len(features) != count:
        raise ModelError(f"{label}: {count} nodes, but {len(features)} nodes_featureids")
    nodes = _Nodes(
        _floats(attrs, "nodes_values", count),
        np.where(leaf, 0, features),
        np.where(leaf, 0, modes),
        missing if len(missing) else np.zeros(count, np.int64),
        edges[0],
        edges[1],
        leaves,
    )
    return _checked(nodes, roots[np.argsort(roots, kind="stable")], columns[order], weights[order], label)


def typed_trees(attrs: Mapping[str, Any], label: str) -> Trees:
    """Convert TreeEnsemble (since version 5), whose leaves have arrays of their own."""
    splits = np.asarray(attrs["nodes_splits"])
    modes = np.asarray(attrs["nodes_modes"]).astype(np.int64).reshape(-1)
    inner = len(modes)
    targets, weights = _ints(attrs, "leaf_targetids"), np.asarray(attrs["leaf_weights"])
    features = _ints(attrs, "nodes_featureids")
    if not len(splits) == inner == len(features):
        raise ModelError(f"{label}: {inner} nodes_modes, {len(splits)} nodes_splits, {len(features)} nodes_featureids")
    if ((modes < 0) | (modes > _MEMBER)).any():
        raise UnsupportedOpError(f"{label}: nodes_modes must be in [0, {_MEMBER}], got {sorted(set(modes.tolist()))}")
    count = inner + len(weights)
    edges = []
    for side in ("true", "false"):
        to, ends = _ints(attrs, f"nodes_{side}nodeids"), _ints(attrs, f"nodes_{side}leafs")
        if not len(to) == len(ends) == inner:
            raise ModelError(
                f"{label}: {inner} nodes, but {len(to)} nodes_{side}nodeids and {len(ends)} nodes_{side}leafs"
            )
        limit = np.where(ends > 0, len(weights), inner)
        if ((to < 0) | (to >= limit)).any():
            raise ModelError(f"{label}: nodes_{side}nodeids names a node or leaf that is not there")
        edges.append(np.concatenate([np.where(ends > 0, to + inner, to), np.arange(inner, count)]))
    missing = _ints(attrs, "nodes_missing_value_tracks_true")
    pad = np.zeros(len(weights), np.int64)
    owned = np.stack([np.arange(len(weights)), np.arange(1, len(weights) + 1)], 1)
    roots = _ints(attrs, "tree_roots")
    if ((roots < 0) | (roots >= inner)).any():
        raise ModelError(f"{label}: tree_roots names a node that is not there")
    # A tree of one leaf is a node with two edges to that leaf.
    arrays = _Nodes(
        np.concatenate([splits, pad.astype(splits.dtype)]),
        np.concatenate([features, pad]),
        np.concatenate([modes, pad]),
        np.concatenate([missing if len(missing) else np.zeros(inner, np.int64), pad]),
        edges[0],
        edges[1],
        np.concatenate([np.zeros((inner, 2), np.int64), owned]),
    )
    if (modes == _MEMBER).any():
        arrays = _expand_set_tests(arrays, modes, np.asarray(attrs.get("membership_values", ())), label)
    return _checked(arrays, roots, targets, weights, label)


@dataclass(frozen=True)
class _Nodes:
    limits: Array
    features: Array
    modes: Array
    missing: Array
    yes: Array
    no: Array
    leaves: Array


def _expand_set_tests(nodes: _Nodes, modes: Array, members: Array, label: str) -> _Nodes:
    """Expand each set-membership node to a chain of nodes that compare with one member each.

    membership_values holds the sets in the order of the nodes, each terminated by NaN.
    """
    asking = np.flatnonzero(modes == _MEMBER)
    ends = np.flatnonzero(np.isnan(members))
    if len(ends) < len(asking):
        raise ModelError(
            f"{label}: {len(asking)} nodes ask for members of sets, membership_values holds {len(ends)} sets"
        )
    found = {f: list(getattr(nodes, f)) for f in ("limits", "features", "modes", "missing", "yes", "no", "leaves")}
    start = 0
    for node, end in zip(asking.tolist(), ends.tolist(), strict=False):
        values = members[start:end]
        start = end + 1
        at, otherwise = node, found["no"][node]
        found["modes"][node] = _EQUAL
        if not len(values):  # an empty set has no members
            found["yes"][node] = otherwise
        for k, value in enumerate(values):
            found["limits"][at] = value
            if k + 1 == len(values):
                found["no"][at] = otherwise
                break
            following = len(found["limits"])
            found["no"][at] = following
            for name, like in (("limits", 0), ("features", None), ("modes", None), ("yes", None), ("no", None)):
                found[name].append(found[name][node] if like is None else value)
            found["missing"].append(0)  # only the first node tests for NaN
            found["leaves"].append(np.zeros(2, np.int64))
            at = following
    return _Nodes(**{f: np.asarray(v) for f, v in found.items()})


class _NodeIndex:
    """Indices of nodes by tree and identifier."""

    def __init__(self, trees: Array, ids: Array, label: str) -> None:
        self._label = label
        self._base = int(ids.max(initial=0)) + 1
        keys = trees * self._base + ids
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        if (self._keys[1:] == self._keys[:-1]).any():
            raise ModelError(f"{label}: two nodes of a tree have the same identifier")

    def of(self, trees: Array, ids: Array, name: str) -> Array:
        """Return the indices of the nodes; ModelError for an unknown one."""
        if len(trees) != len(ids):
            raise ModelError(f"{self._label}: {len(ids)} {name} for {len(trees)} trees")
        wanted = trees * self._base + np.where((ids >= 0) & (ids < self._base), ids, -1 - self._base * 1e6).astype(
            np.int64
        )
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        wrong = self._keys[at] != wanted
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise ModelError(f"{self._label}: {name} names node {ids[k]} of tree {trees[k]}, which is not there")
        found: Array = self._order[at]
        return found


def _checked(nodes: _Nodes, roots: Array, columns: Array, weights: Array, label: str) -> Trees:
    if (nodes.features < 0).any():
        raise ModelError(f"{label}: nodes_featureids holds the negative feature {nodes.features.min()}")
    flags = nodes.modes | np.where(nodes.missing != 0, MISSING_IS_YES, 0)
    depth = _depth(roots, nodes.yes, nodes.no)
    if depth is None:
        raise ModelError(f"{label}: a path through its nodes is circular")
    table = np.stack([nodes.features, flags, nodes.yes, nodes.no], 1)
    table, roots, leaves, columns = (a.astype(np.int32) for a in (table, roots, nodes.leaves, columns))
    return Trees(nodes.limits, table, roots, leaves, columns, weights, depth)


def _depth(roots: Array, yes: Array, no: Array) -> int | None:
    """Return the steps from the roots to the deepest leaf; None if a path is circular."""
    level, depth = np.unique(roots), 0
    while True:
        inner = level[(yes[level] != level) | (no[level] != level)]
        if not len(inner):
            return depth
        depth += 1
        if depth > len(yes):
            return None
        level = np.unique(np.concatenate([yes[inner], no[inner]]))


def _comparison_numbers(modes: Sequence[Any], label: str) -> Array:
    """Return comparison numbers; -1 for leaves."""
    known = {name: i for i, name in enumerate(_MODES)} | {"LEAF": -1}
    names = [m.decode() if isinstance(m, bytes) else str(m) for m in modes]
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise UnsupportedOpError(f"{label} has nodes_modes '{unknown[0]}'; known are {', '.join(known)}")
    return np.array([known[m] for m in names], np.int64)


def _ints(attrs: Mapping[str, Any], name: str) -> Array:
    return np.asarray(attrs.get(name, ()), np.int64).reshape(-1)


def _floats(attrs: Mapping[str, Any], name: str, count: int) -> Array:
    """Return a list of floats: float32, or the dtype of its tensor attribute."""
    tensor = attrs.get(f"{name}_as_tensor")
    if tensor is not None and np.asarray(tensor).size:
        return np.asarray(tensor).reshape(-1)
    given = attrs.get(name)
    return np.zeros(count, np.float32) if given is None or not len(given) else np.asarray(given, np.float32)


def base_values(attrs: Mapping[str, Any]) -> Array:
    """Return the attribute base_values, empty if absent."""
    return _floats(attrs, "base_values", 0)
