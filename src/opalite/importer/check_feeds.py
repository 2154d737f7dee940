"""Checks of the values that a caller feeds to a model, before compilation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import BindingError, InputError
from ..ir.dtype import DType
from ..ir.feeds import check_names, check_tensor
from .model import Model
from .proto.decode import ValueInfo


def check_feeds(model: Model, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return `feeds` in the order of the model's inputs, with numbers and lists converted to the declared dtype.

    InputError names an input that is unknown, missing, or of the wrong dtype, rank or size.
    """
    infos = model.input_infos
    check_names(model.name, infos, (v.name for v in model.inputs if v.kind != "optional"), feeds)
    constants = model.graph.constants
    return {n: _check(info, feeds.get(n)) for n, info in infos.items() if n in feeds or n not in constants}


def _check(info: ValueInfo, value: Any) -> Any:
    if info.kind == "optional":
        return None if value is None or info.elem is None else _check_as(info, info.elem, value)
    return _check_as(info, info, value)


def _check_as(info: ValueInfo, declared: ValueInfo, value: Any) -> Any:
    if declared.kind == "sequence":
        if not isinstance(value, (list, tuple)):
            raise InputError(f"input '{info.name}' is a sequence: give a list of arrays, not {_kind(value)}")
        elem = declared.elem
        return [v if elem is None else _check_as(info, elem, v) for v in value]
    if declared.kind == "map":
        return _check_map(info, declared, value)
    if declared.kind == "tensor":
        return check_tensor(info.name, declared.dtype, declared.shape, value)
    if declared.kind == "unknown":
        return value
    raise InputError(f"input '{info.name}' is of type {declared.onnx_type}, which cannot be fed")


def _check_map(info: ValueInfo, declared: ValueInfo, value: Any) -> dict[Any, Any]:
    """Return a dict with keys and values of the declared types."""
    if not isinstance(value, Mapping):
        raise BindingError(f"input '{info.name}' is a {declared.onnx_type}: give a dict, not {_kind(value)}")
    key, elem = declared.dtype, declared.elem
    kinds = (str,) if key is DType.STRING else (int, np.integer)
    for k in value:
        if not isinstance(k, kinds):
            raise BindingError(
                f"input '{info.name}' is a {declared.onnx_type}: its keys are "
                f"{'strings' if key is DType.STRING else 'integers'}, got {k!r}"
            )
    number = elem.dtype.np.type if elem is not None and elem.dtype is not None else np.float32
    try:
        return {(k if isinstance(k, str) else int(k)): number(v) for k, v in value.items()}
    except (TypeError, ValueError) as e:
        raise BindingError(f"input '{info.name}' is a {declared.onnx_type}, whose values must be numbers: {e}") from e


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
