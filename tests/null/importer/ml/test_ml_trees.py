"""Tree ensembles of ai.onnx.ml against onnxruntime, by the importer and the operators' references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx import numpy_helper
from opalite.errors import ModelError, ShapeError

from ....helpers.forests import ALL_MODES, forest, typed_forest
from ..oracles import ML, assert_same, by_ort, imported

Array = np.ndarray[Any, Any]


def rows(count: int = 40, dtype: Any = np.float32) -> Array:
    """Normal numbers, small integers that equal thresholds, and some NaN among floats."""
    rng = np.random.default_rng(count)
    x = np.where(rng.random((count, 4)) < 0.3, rng.integers(-2, 3, (count, 4)), rng.standard_normal((count, 4)))
    if np.dtype(dtype).kind == "f":
        x[rng.random(x.shape) < 0.1] = np.nan
    return x.astype(dtype)


def check(op: str, x: Array, outputs: tuple[int, ...], host: bool = False, ml: int = 3, **attrs: Any) -> None:
    args: Any = (op, [x], outputs)
    got = imported(*args, domain=ML, ml=ml, may_use_host=host, **attrs)
    assert_same(got, by_ort(*args, domain=ML, ml=ml, **attrs), tol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [("BRANCH_LEQ",), ALL_MODES])
def test_regressor(aggregate: str, modes: tuple[str, ...], dtype: Any) -> None:
    attrs = forest("target", [0], modes=modes) | {"n_targets": 1, "base_values": [0.5]}
    check("TreeEnsembleRegressor", rows(dtype=dtype), (0,), aggregate_function=aggregate, **attrs)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_regressor_of_many_targets(transform: str) -> None:
    attrs = forest("target", [0, 1, 2]) | {"n_targets": 3, "base_values": [0.5, -1.0, 0.25]}
    check("TreeEnsembleRegressor", rows(), (0,), post_transform=transform, **attrs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_classifier_of_many_classes(transform: str, dtype: Any) -> None:
    attrs = forest("class", [0, 1, 2], modes=ALL_MODES) | {"classlabels_int64s": [4, 9, 7], "post_transform": transform}
    check("TreeEnsembleClassifier", rows(dtype=dtype), (0, 1), **attrs)


def test_classes_that_no_leaf_names_are_never_chosen() -> None:
    attrs = forest("class", [0, 2], shift=-5.0) | {"classlabels_int64s": [4, 9, 7]}
    check("TreeEnsembleClassifier", rows(), (0, 1), **attrs)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("base", [[], [0.25]])
@pytest.mark.parametrize("named", [[0], [1], [0, 1]])
def test_classifier_of_two_classes(named: list[int], base: list[float], positive: bool, transform: str) -> None:
    """Weights of the first class only count for the second; the threshold is 0 or 0.5."""
    attrs = forest("class", named, positive=positive) | {"classlabels_int64s": [0, 1], "post_transform": transform}
    check("TreeEnsembleClassifier", rows(), (0, 1), **attrs, **({"base_values": base} if base else {}))


def test_string_labels() -> None:
    attrs = forest("class", [0, 1, 2]) | {"classlabels_strings": ["ant", "bee", "cat"]}
    check("TreeEnsembleClassifier", rows(), (0, 1), host=True, **attrs)


@pytest.mark.parametrize("count", [0, 1])
def test_no_rows_and_one(count: int) -> None:
    check("TreeEnsembleClassifier", rows(count), (0, 1), **forest("class", [0, 1, 2]), classlabels_int64s=[1, 2, 3])
    check("TreeEnsembleRegressor", rows(count), (0,), **forest("target", [0]), n_targets=1)


def test_thresholds_in_double() -> None:
    attrs = forest("target", [0, 1])
    for name in ("nodes_values", "target_weights"):
        attrs[f"{name}_as_tensor"] = numpy_helper.from_array(np.asarray(attrs.pop(name)) + 1e-12, name)
    check("TreeEnsembleRegressor", rows(dtype=np.float64), (0,), **attrs, n_targets=2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ensemble_of_version_5(dtype: Any, seed: int) -> None:
    """Modes include set membership."""
    attrs = typed_forest(seed, dtype) | {"aggregate_function": seed % 4, "n_targets": 1 + seed % 2}
    check("TreeEnsemble", rows(dtype=dtype), (0,), ml=5, **attrs)


def test_what_does_not_fit_is_named() -> None:
    attrs = forest("target", [0], trees=1) | {"n_targets": 1}
    with pytest.raises(ShapeError, match="feature 3"):
        imported("TreeEnsembleRegressor", [rows()[:, :2]], domain=ML, **attrs)
    around = attrs | {"nodes_truenodeids": [0] * len(attrs["nodes_truenodeids"])}
    with pytest.raises(ModelError, match="is circular"):
        imported("TreeEnsembleRegressor", [rows()], domain=ML, **around)
    astray = attrs | {"nodes_truenodeids": [99] * len(attrs["nodes_truenodeids"])}
    with pytest.raises(ModelError, match="node 99 of tree 0"):
        imported("TreeEnsembleRegressor", [rows()], domain=ML, **astray)
