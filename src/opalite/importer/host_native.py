"""ONNX operators on the host that onnx's reference implementations lack, do slowly, or take too strictly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import onnx

from ..errors import ShapeError
from .host_unique import find_unique
from .trees import Ensemble

Step = Callable[[Sequence[Any]], list[Any]]
"""One node on the host: inputs (arrays, lists or None) in order to the outputs in order."""


@lru_cache(maxsize=256)
def find_native(op_type: str, domain: str, proto: bytes) -> Step | None:
    """What runs the node `proto` (a serialised NodeProto); None where the reference implementation should."""
    make = _MAKERS.get((domain, op_type))
    return None if make is None else make(proto)


def _sequence_at(proto: bytes) -> Step:
    def run(inputs: Sequence[Any]) -> list[Any]:
        elements, position = inputs
        at = np.asarray(position)
        if at.size != 1:
            raise ShapeError(f"the position of SequenceAt must hold one element, got shape {at.shape}")
        number = int(at.reshape(()))
        if not -len(elements) <= number < len(elements):
            raise ShapeError(f"SequenceAt reads position {number} of a sequence of {len(elements)}")
        return [elements[number]]

    return run


def _nonzero(proto: bytes) -> Step:
    def run(inputs: Sequence[Any]) -> list[Any]:
        array = np.atleast_1d(np.asarray(inputs[0]))  # ONNX counts a scalar as one element
        return [np.asarray(np.nonzero(array), np.int64)]

    return run


def _unique(proto: bytes) -> Step:
    node = onnx.NodeProto.FromString(proto)
    attrs = _attributes(node)

    def run(inputs: Sequence[Any]) -> list[Any]:
        array = np.asarray(inputs[0])
        axis = attrs.get("axis")
        if axis is not None and not -array.ndim <= axis < array.ndim:
            raise ShapeError(f"Unique along axis {axis} of a tensor of shape {list(array.shape)}")
        return _named(node, find_unique(array, axis, bool(attrs.get("sorted", 1))))

    return run


def _det(proto: bytes) -> Step:
    def run(inputs: Sequence[Any]) -> list[Any]:
        array = np.asarray(inputs[0])
        if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
            raise ShapeError(f"Det needs square matrices, got shape {list(array.shape)}")
        return [np.asarray(np.linalg.det(array.astype(np.float64))).astype(array.dtype)]

    return run


def _tree_ensemble(proto: bytes) -> Step | None:
    node = onnx.NodeProto.FromString(proto)
    attrs = _attributes(node)
    ensemble = Ensemble.of(attrs, node.op_type == "TreeEnsembleClassifier")
    if ensemble is None:
        return None

    def run(inputs: Sequence[Any]) -> list[Any]:
        return _named(node, ensemble.run(np.asarray(inputs[0])))

    return run


def _zip_map(proto: bytes) -> Step | None:
    """Rows of scores as a sequence of maps from label to score."""
    node = onnx.NodeProto.FromString(proto)
    attrs = _attributes(node)
    labels: list[Any] = list(attrs.get("classlabels_strings") or attrs.get("classlabels_int64s") or ())

    def run(inputs: Sequence[Any]) -> list[Any]:
        scores = np.asarray(inputs[0])
        scores = scores.reshape(1, -1) if scores.ndim == 1 else scores
        if scores.ndim != 2 or scores.shape[1] != len(labels):
            raise ShapeError(f"ZipMap has {len(labels)} labels for scores of shape {list(scores.shape)}")
        return [[dict(zip(labels, row, strict=True)) for row in scores.tolist()]]

    return run


def _dict_vectorizer(proto: bytes) -> Step:
    """The numbers of a map in the order of a vocabulary, as one row; zero for keys that the map lacks."""
    attrs = _attributes(onnx.NodeProto.FromString(proto))
    keys: list[Any] = list(attrs.get("string_vocabulary") or attrs.get("int64_vocabulary") or ())

    def run(inputs: Sequence[Any]) -> list[Any]:
        found = inputs[0]
        if not isinstance(found, dict):
            raise ShapeError(f"DictVectorizer reads a map, got {type(found).__name__}")
        kind = np.asarray(next(iter(found.values()), np.float32(0))).dtype
        empty = "" if kind.kind in "OU" else 0
        return [np.asarray([[found.get(k, empty) for k in keys]], object if kind.kind in "OU" else kind)]

    return run


def _attributes(node: Any) -> dict[str, Any]:
    return {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}


def _named(node: Any, outputs: Sequence[Any]) -> list[Any]:
    """Of `outputs` those that the node names."""
    return [v for v, name in zip(outputs, node.output, strict=False) if name]


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [v.decode() for v in value]
    return value


_MAKERS: dict[tuple[str, str], Callable[[bytes], Step | None]] = {
    ("", "SequenceAt"): _sequence_at,
    ("", "NonZero"): _nonzero,
    ("", "Unique"): _unique,
    ("", "Det"): _det,
    ("ai.onnx.ml", "ZipMap"): _zip_map,
    ("ai.onnx.ml", "DictVectorizer"): _dict_vectorizer,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): _tree_ensemble,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): _tree_ensemble,
}
