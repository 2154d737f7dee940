"""Feeds: checks of the arrays that a caller passes as model inputs, before anything is compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import BindingError, InputError, MissingInputError
from .dtype import DType

Dims = Sequence["int | str | None"]
"""A declared shape: sizes, symbols, and None where nothing is known."""


def is_tensor(value: Any) -> bool:
    """Whether a value is an array, or has `shape` and `dtype` as an array does."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def dtype_of(value: Any) -> DType:
    """Element type of an array or array-like value."""
    return value.dtype if isinstance(value.dtype, DType) else DType.of(value.dtype)


def check_names(who: str, known: Collection[str], required: Iterable[str], given: Collection[Any]) -> None:
    """Check input names: MissingInputError for an absent required name, InputError for an unknown one.

    who: the model's name in messages.
    """
    unknown = [name for name in given if name not in known]
    missing = [name for name in required if name not in given]
    hint = ""
    if unknown:
        import difflib

        close = difflib.get_close_matches(str(unknown[0]), known, 1)
        hint = f"'{who}' has no input '{unknown[0]}'; " + (
            f"did you mean '{close[0]}'?" if close else f"its inputs are {_listed(known)}"
        )
    if missing:
        detail = f": {hint}" if hint else f"; given: {_listed(given)}"
        raise MissingInputError(f"'{who}' needs {_listed(missing)}, which the feeds lack{detail}")
    if unknown:
        raise InputError(hint)


def check_tensor(name: str, dtype: DType | None, shape: Dims | None, value: Any) -> Any:
    """`value` as an array of this type and shape: Python numbers and lists are converted.

    dtype, shape: None if open. Device values and type-only values are returned unchanged. InputError if the value does
    not fit.
    """
    if isinstance(value, np.ndarray) and dtype is not None and value.dtype == dtype.np:
        _check_shape(name, dtype, shape, value.shape)
        return _all_text(value) if dtype is DType.STRING else value
    if value is None:
        raise InputError(f"input '{name}' is None; a tensor {_expected(dtype, shape)} is expected")
    if not is_tensor(value):
        try:
            value = np.asarray(value, None if dtype is None else dtype.np)
        except (ValueError, TypeError, OverflowError) as e:
            raise BindingError(f"input '{name}' cannot be made an array of {_expected(dtype, shape)}: {e}") from e
    if dtype is DType.STRING and isinstance(value, np.ndarray) and value.dtype.kind in "SV":
        value = _decoded(name, value)
    try:
        got = dtype_of(value)
    except (ValueError, TypeError):
        raise InputError(f"input '{name}' has dtype {value.dtype}; {_expected(dtype, shape)} is expected") from None
    if dtype is not None and got is not dtype:
        fix = f"pass x.astype(np.{dtype.np.name})" if dtype is not DType.STRING else "pass an array of str"
        raise InputError(f"input '{name}' is {dtype_name(dtype)}, got {dtype_name(got)}: {fix}")
    _check_shape(name, dtype, shape, tuple(value.shape))
    if got is DType.STRING and isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return value.astype(object)
    return value


def _all_text(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Object elements as str."""
    if all(isinstance(v, str) for v in value.flat):
        return value
    found = np.empty(value.size, object)
    found[:] = [v if isinstance(v, str) else str(v) for v in value.flat]
    return found.reshape(value.shape)


def _decoded(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bytes decoded as UTF-8. Elements of a void type are decoded whole, zero bytes included."""
    try:
        texts = [bytes(v).decode() for v in value.reshape(-1)]
    except UnicodeDecodeError as e:
        raise BindingError(f"input '{name}' is text, got bytes that are no UTF-8: {e}") from e
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(value.shape)


def dtype_name(dtype: DType) -> str:
    """The NumPy name of an element type; 'string' for text."""
    return "string" if dtype is DType.STRING else str(dtype.np.name)


def _check_shape(name: str, dtype: DType | None, want: Dims | None, got: tuple[int, ...]) -> None:
    if want is None or (not want and all(d == 1 for d in got)):
        return  # one element for a scalar: onnxruntime accepts it too
    if len(want) != len(got):
        expected = _expected(dtype, want)
        raise InputError(f"input '{name}' has rank {len(want)} ({expected}), got shape {got} of rank {len(got)}")
    for axis, (w, g) in enumerate(zip(want, got, strict=True)):
        if isinstance(w, int) and w != g:
            expected = _expected(dtype, want)
            raise InputError(f"input '{name}' has size {w} along axis {axis} ({expected}), got shape {got}")


def _expected(dtype: DType | None, shape: Dims | None) -> str:
    dims = "?" if shape is None else ", ".join("?" if d is None else str(d) for d in shape)
    return f"{dtype_name(dtype) if dtype is not None else 'any dtype'}[{dims}]"


def _listed(names: Iterable[Any]) -> str:
    quoted = [f"'{n}'" for n in names]
    return ", ".join(quoted[:12]) + (f" and {len(quoted) - 12} more" if len(quoted) > 12 else "") or "none"
