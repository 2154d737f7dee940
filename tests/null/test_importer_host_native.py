"""Host operators that are not left to onnx's reference implementations: trees, maps, sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

import onnx
from opalite.errors import ModelError, OpaliteError, ShapeError
from opalite.importer.hostop import run_host
from opalite.importer.trees import Ensemble

from .importer_oracles import ML, Values, assert_same, by_ort, imported

V = Values(7)
Array = np.ndarray[Any, Any]


def forest(
    kind: str,
    columns: int,
    trees: int = 5,
    depth: int = 4,
    modes: tuple[str, ...] = ("BRANCH_LEQ",),
    positive: bool = False,
    only: int | None = None,
) -> dict[str, Any]:
    """Attributes of random full trees over 6 features; every leaf has a weight for each of `columns`, or for `only`."""
    rng = np.random.default_rng(columns + trees)
    inner, count = 2**depth - 1, 2 ** (depth + 1) - 1
    nodes: dict[str, list[Any]] = {
        f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    nodes["nodes_missing_value_tracks_true"] = []
    owners: dict[str, list[Any]] = {f"{kind}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for t in range(trees):
        for n in range(count):
            is_leaf = n >= inner
            row = (
                t,
                n,
                0 if is_leaf else int(rng.integers(6)),
                0.0 if is_leaf else float(np.float32(rng.standard_normal())),
                "LEAF" if is_leaf else modes[n % len(modes)],
                0 if is_leaf else 2 * n + 1,
                0 if is_leaf else 2 * n + 2,
                n % 2,
            )
            for column, v in zip(nodes.values(), row, strict=True):
                column.append(v)
            if is_leaf:
                for c in range(columns) if only is None else (only,):
                    weight = float(np.float32(rng.random() / trees if positive else rng.standard_normal()))
                    for column, v in zip(owners.values(), (t, n, c, weight), strict=True):
                        column.append(v)
    return nodes | owners


def rows(count: int = 40) -> Array:
    x = V.f(count, 6)
    x[3, :] = np.nan
    return x


def check(op: str, x: Array, outputs: tuple[int, ...], attrs: Mapping[str, Any]) -> None:
    assert Ensemble.of(attrs, op == "TreeEnsembleClassifier") is not None
    got = imported(op, [x], outputs, domain=ML, opset=18, may_use_host=True, **attrs)
    assert_same(got, by_ort(op, [x], outputs, domain=ML, opset=18, **attrs), tol=1e-5)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [("BRANCH_LEQ",), ("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_LEQ")])
def test_tree_regressor(aggregate: str, modes: tuple[str, ...]) -> None:
    attrs = forest("target", 1, modes=modes)
    check("TreeEnsembleRegressor", rows(), (0,), attrs | {"n_targets": 1, "aggregate_function": aggregate})


def test_tree_regressor_with_two_targets_and_base_values() -> None:
    attrs = forest("target", 2) | {"n_targets": 2, "base_values": [0.5, -1.0]}
    check("TreeEnsembleRegressor", rows(), (0,), attrs)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_tree_classifier_of_many_classes(transform: str) -> None:
    attrs = forest("class", 3) | {"classlabels_int64s": [4, 7, 9], "post_transform": transform}
    check("TreeEnsembleClassifier", rows(), (0, 1), attrs)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("base", [[], [0.25]])
def test_tree_classifier_with_weights_for_one_of_two_classes(transform: str, positive: bool, base: list[float]) -> None:
    attrs = forest("class", 1, positive=positive, only=0) | {"classlabels_int64s": [0, 1], "post_transform": transform}
    check("TreeEnsembleClassifier", rows(), (0, 1), attrs | ({"base_values": base} if base else {}))


def test_trees_that_run_in_circles_are_not_walked() -> None:
    attrs = forest("target", 1, trees=1) | {"n_targets": 1}
    attrs["nodes_truenodeids"] = [0] * len(attrs["nodes_truenodeids"])
    assert Ensemble.of(attrs, False) is None


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 5]}, {"classlabels_strings": ["a", "b"]}])
def test_zip_map_gives_a_map_for_each_row(labels: dict[str, Any]) -> None:
    node = oh.make_node("ZipMap", ["x0"], ["y0"], domain=ML, **labels).SerializeToString()
    found = run_host("ZipMap", ML, 1, node, [V.f(2, 2)])[0]
    first, second = next(iter(labels.values()))
    assert [list(row) for row in found] == [[first, second]] * 2
    with pytest.raises(ShapeError, match="2 labels"):
        run_host("ZipMap", ML, 1, node, [V.f(2, 3)])


@pytest.mark.parametrize("position", [np.int64(1), np.array([1], np.int64), np.array([-1], np.int64)])
def test_sequence_at_takes_a_position_of_one_element(position: Any) -> None:
    node = oh.make_node("SequenceAt", ["x0", "x1"], ["y0"]).SerializeToString()
    elements = [V.f(2), V.f(3)]
    np.testing.assert_array_equal(run_host("SequenceAt", "", 17, node, [elements, position])[0], elements[1])
    with pytest.raises(OpaliteError, match="position 5"):
        run_host("SequenceAt", "", 17, node, [elements, np.int64(5)])


def test_nonzero_of_a_scalar() -> None:
    node = oh.make_node("NonZero", ["x0"], ["y0"]).SerializeToString()
    np.testing.assert_array_equal(run_host("NonZero", "", 13, node, [np.float32(2)])[0], np.zeros((1, 1), np.int64))
    assert run_host("NonZero", "", 13, node, [np.float32(0)])[0].shape == (1, 0)


def test_a_failing_host_operator_names_its_inputs() -> None:
    attrs = forest("target", 1) | {"n_targets": 1}
    node = oh.make_node("TreeEnsembleRegressor", ["x0"], ["y0"], domain=ML, **attrs)
    assert isinstance(node, onnx.NodeProto)
    with pytest.raises(ModelError, match=r"x0: float32\[2, 3\]"):  # the trees read six features
        run_host("TreeEnsembleRegressor", ML, 3, node.SerializeToString(), [V.f(2, 3)])
