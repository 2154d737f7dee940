"""Checking what a caller feeds to a model, before anything is compiled for it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..ir.dtype import DType
from .model import Model
from .protos import ValueInfo
from .walker import dtype_of, is_tensor


def check_feeds(model: Model, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """`feeds` in the order of the model's inputs, Python numbers and lists made arrays of the declared type.

    InputError says which input is unknown, missing, or of wrong dtype, rank or size.
    """
    infos = model.input_infos
    for name in feeds:
        if name not in infos:
            close = difflib.get_close_matches(str(name), infos, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"its inputs are {_listed(infos)}"
            raise InputError(f"'{model.name}' has no input '{name}'; {hint}")
    missing = [v.name for v in model.inputs if v.name not in feeds and v.kind != "optional"]
    if missing:
        raise InputError(f"'{model.name}' needs {_listed(missing)}, which the feeds lack; given: {_listed(feeds)}")
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
    if declared.kind == "tensor":
        return _check_tensor(info.name, declared, value)
    if declared.kind == "unknown":
        return value
    raise InputError(f"input '{info.name}' is of type {declared.onnx_type}, which cannot be fed")


def _check_tensor(name: str, info: ValueInfo, value: Any) -> Any:
    if isinstance(value, np.ndarray) and info.dtype is not None and value.dtype == info.dtype.np:
        if info.shape is not None:
            _check_shape(name, info.shape, value.shape, info)
        return value
    if value is None:
        raise InputError(f"input '{name}' is None; a tensor {_expected(info)} is expected")
    if not is_tensor(value):
        value = _to_array(name, info, value)
    try:
        dtype = dtype_of(value)
    except (ValueError, TypeError):
        raise InputError(f"input '{name}' has dtype {value.dtype}; {_expected(info)} is expected") from None
    if info.dtype is not None and dtype is not info.dtype:
        fix = f"pass x.astype(np.{info.dtype.np.name})" if info.dtype is not DType.STRING else "pass an array of str"
        raise InputError(f"input '{name}' is {info.dtype.np.name}, got {dtype.np.name}: {fix}")
    if info.shape is not None:
        _check_shape(name, info.shape, tuple(value.shape), info)
    if dtype is DType.STRING and isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return value.astype(object)
    return value


def _check_shape(name: str, want: Sequence[int | str | None], got: tuple[int, ...], info: ValueInfo) -> None:
    if not want and all(d == 1 for d in got):
        return  # one element for a scalar: exporters and callers mix these up, and onnxruntime lets them
    if len(want) != len(got):
        raise InputError(f"input '{name}' has rank {len(want)} ({_expected(info)}), got shape {got} of rank {len(got)}")
    for axis, (w, g) in enumerate(zip(want, got, strict=True)):
        if isinstance(w, int) and w != g:
            raise InputError(f"input '{name}' has size {w} along axis {axis} ({_expected(info)}), got shape {got}")


def _to_array(name: str, info: ValueInfo, value: Any) -> Any:
    try:
        return np.asarray(value, None if info.dtype is None else info.dtype.np)
    except (ValueError, TypeError, OverflowError) as e:
        raise InputError(f"input '{name}' cannot be made an array of {_expected(info)}: {e}") from e


def _expected(info: ValueInfo) -> str:
    dims = "?" if info.shape is None else ", ".join("?" if d is None else str(d) for d in info.shape)
    return f"{info.dtype.np.name if info.dtype is not None else 'any dtype'}[{dims}]"


def _listed(names: Any) -> str:
    quoted = [f"'{n}'" for n in names]
    return ", ".join(quoted[:12]) + (f" and {len(quoted) - 12} more" if len(quoted) > 12 else "") or "none"


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
