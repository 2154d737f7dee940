"""Linear models, support vector machines and feature scaling of ai.onnx.ml, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ModelError, OpaliteError, ShapeError

from ..oracles import ML, assert_same, by_ort, imported

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)
X = rng.standard_normal((7, 3)).astype(np.float32)
Z = np.array([[1, -2, 0], [0, 0, 0], [-3, -1, -2], [np.nan, 1, 0]], np.float32)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def check(op: str, arrays: list[Array], outputs: tuple[int, ...] = (0,), host: bool = False, **attrs: Any) -> None:
    got = imported(op, arrays, outputs, domain=ML, may_use_host=host, **attrs)
    assert_same(got, by_ort(op, arrays, outputs, domain=ML, **attrs), tol=1e-5)


def machine(per_class: list[int], kernel: str = "RBF", couples: bool = False, seed: int = 0) -> dict[str, Any]:
    """Return attributes of an SVMClassifier with random support vectors; couples: with probabilities."""
    r, k, count = np.random.default_rng(seed), len(per_class), sum(per_class)
    pairs = k * (k - 1) // 2
    attrs: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.1, 2.0],
        "vectors_per_class": per_class,
        "support_vectors": r.standard_normal(3 * count).tolist(),
        "coefficients": r.standard_normal((k - 1) * count).tolist(),
        "rho": r.standard_normal(pairs).tolist(),
        "classlabels_ints": list(range(3, 3 + k)),
    }
    if couples:
        attrs |= {"prob_a": (-np.abs(r.standard_normal(pairs))).tolist(), "prob_b": r.standard_normal(pairs).tolist()}
    return attrs


@pytest.mark.parametrize("per_class", [[2, 3], [2, 1, 3], [1, 2, 1, 2]])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("couples", [False, True])
def test_support_vectors(per_class: list[int], kernel: str, couples: bool) -> None:
    for seed in range(3):
        check("SVMClassifier", [X], (0, 1), **machine(per_class, kernel, couples, seed))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("couples", [False, True])
@pytest.mark.parametrize("per_class", [[2, 3], [2, 1, 3]])
def test_transformed_decisions(per_class: list[int], couples: bool, transform: str) -> None:
    check("SVMClassifier", [X], (0, 1), **machine(per_class, couples=couples), post_transform=transform)


@pytest.mark.parametrize("x", [X.astype(np.float64), (3 * X).astype(np.int64), X[:0], X[0], Z])
@pytest.mark.parametrize("per_class", [[2, 3], [2, 1, 3]])
def test_inputs_of_support_vectors(x: Array, per_class: list[int]) -> None:
    check("SVMClassifier", [x], (0, 1), **machine(per_class, couples=True))


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_classifier_without_support_vectors(classes: int, positive: bool) -> None:
    coefficients = np.random.default_rng(classes).standard_normal(3 * classes)
    coefficients = np.abs(coefficients) if positive else coefficients
    attrs = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "rho": [0.1, 0.2, 0.3][:classes]}
    labels = list(range(4, 4 + classes))
    check("SVMClassifier", [X], (0, 1), coefficients=coefficients.tolist(), classlabels_ints=labels, **attrs)


def test_near_points_far_from_the_origin_keep_their_distance() -> None:
    """Expanding (x - s)^2 into squares would lose the distance: 1e4^2 leaves no digit for 0.01."""
    attrs = machine([2, 2]) | {
        "support_vectors": [1e4, 1e4, 1e4, 1e4, 1e4, 1e4 + 0.5, 1e4, 1e4 + 1, 1e4, 1e4, 1e4, 1e4 - 1]
    }
    check("SVMClassifier", [(X + 1e4).astype(np.float32)], (0, 1), **attrs)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vector_regressor(kernel: str, one_class: int) -> None:
    params = {"kernel_type": kernel, "kernel_params": [0.5, 0.1, 2.5 if kernel == "RBF" else 3.0], "rho": [-0.1]}
    vectors = {"n_supports": 2, "support_vectors": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "coefficients": [0.5, -0.2]}
    check("SVMRegressor", [X], one_class=one_class, **params, **vectors)
    if kernel == "LINEAR":
        check("SVMRegressor", [X], coefficients=[0.5, -0.2, 0.1], **params)


LABELS: list[dict[str, Any]] = [
    {"classlabels_ints": [4, 7]},
    {"classlabels_ints": [0, 1]},
    {"classlabels_strings": ["a", "b"]},
    {},
]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("labels", LABELS)
def test_linear_classifier_with_one_row(labels: dict[str, Any], transform: str) -> None:
    attrs = {"coefficients": [0.1, 0.2, 0.3], "intercepts": [0.05], "post_transform": transform, **labels}
    check("LinearClassifier", [Z], (0, 1), host="classlabels_strings" in labels, **attrs)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifier_and_regressor(classes: int, transform: str) -> None:
    numbers = {"coefficients": rng.standard_normal(3 * classes).tolist(), "intercepts": [0.05, 0.1, 0.0][:classes]}
    labels = [5, 2, 3][:classes]
    for x in (X, Z, Z.astype(np.float64), Z[:0]):
        check("LinearClassifier", [x], (0, 1), classlabels_ints=labels, post_transform=transform, **numbers)
    check("LinearRegressor", [Z], targets=classes, post_transform=transform, **numbers)


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("targets", [1, 2])
def test_linear_models_take_as_many_coefficients_as_there_are_columns(targets: int, columns: int) -> None:
    """Row by row from the front, as in onnxruntime; surplus coefficients are ignored."""
    numbers = {"coefficients": [1.0, 10.0, 100.0, -1.0, 2.0, 4.0, 8.0, 16.0], "intercepts": [0.5, 0.25][:targets]}
    x = np.ascontiguousarray(X[:, :columns])
    check("LinearClassifier", [x], (0, 1), classlabels_ints=[4, 7], **numbers)
    check("LinearRegressor", [x], targets=targets, **numbers)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("x", [Z, Z[0], Z[:0], Z.astype(np.float64), np.nan_to_num(Z).astype(np.int64)])
def test_normalizer(x: Array, norm: str) -> None:
    check("Normalizer", [x], norm=norm)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_scaler_and_feature_vectorizer(dtype: Any) -> None:
    x = np.nan_to_num(Z).astype(dtype)
    check("Scaler", [x], offset=[1.0, 2.0, 3.0], scale=[1.0, 2.0, 3.0])
    check("Scaler", [x[0]], offset=[0.5], scale=[2.0])
    check("Scaler", [np.arange(12).reshape(2, 3, 2).astype(dtype)], offset=[1.0, 2.0, 3.0], scale=[1.0, 2.0, 3.0])
    check("FeatureVectorizer", [x, x[:, :2]], inputdimensions=[3, 2])


def test_imputer_and_binarizer() -> None:
    check("Imputer", [Z], imputed_value_floats=[7.0], replaced_value_float=float("nan"))
    check("Imputer", [Z], imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=0.0)
    whole = np.nan_to_num(Z).astype(np.int64)
    check("Imputer", [whole], imputed_value_int64s=[7, 8, 9], replaced_value_int64=0)
    check("Binarizer", [X], threshold=0.25)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ShapeError, match="3 features"):
        imported("Scaler", [X], domain=ML, offset=[1.0, 2.0], scale=[1.0])
    labels = {"classlabels_ints": [0, 1]}
    with pytest.raises(ShapeError, match=r"2 coefficients for 1 targets.*takes 3"):
        imported("LinearClassifier", [X], (0, 1), domain=ML, coefficients=[0.0] * 2, intercepts=[0.0], **labels)
    with pytest.raises(ShapeError, match="7 coefficients, which is no multiple of its 2 classes"):
        imported("LinearClassifier", [X], (0, 1), domain=ML, coefficients=[0.0] * 7, intercepts=[0.0] * 2, **labels)
    with pytest.raises(ModelError, match="imputed_value_int64s"):
        imported("Imputer", [X.astype(np.int64)], domain=ML, imputed_value_floats=[1.0])
    with pytest.raises(OpaliteError, match="support_vectors"):
        imported("SVMClassifier", [X[:, :2]], (0, 1), domain=ML, **machine([2, 2]))
    with pytest.raises(OpaliteError, match="kernel_type 'CUBIC'"):
        imported("SVMClassifier", [X], (0, 1), domain=ML, **(machine([2, 2]) | {"kernel_type": "CUBIC"}))
