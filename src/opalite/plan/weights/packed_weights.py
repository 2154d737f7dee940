"""Packed weights: constants in kernels' layouts, identified by source and packing, packed on use.

A decoder's plans for prompts, single tokens and long prompts share weights. A packed weight that is already in host
memory or on the device is found by key or contents (ir/constants/lazy_array.py) and not packed again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from ...ir.constants.lazy_array import LARGE, Array, LazyArray, content_info, page_aligned, page_contiguous
from ...ir.graph import Value
from ...kernels.launch import Weight
from ...layout.insert_casts import stored_array

Kind = tuple[np.dtype[Any], tuple[int, ...]]

_lock = Lock()
_made: weakref.WeakValueDictionary[Hashable, Array] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class Form:
    """A constant in a packed form.

    key: source and packing, equal for equal arrays; None if the source has no key. kind: dtype and shape, if known in
    advance.
    """

    key: Hashable
    make: Callable[[], Array]
    kind: Kind | None

    def made(self) -> Array:
        """The packed array, page-aligned: an existing one, or a new one that is shared while it is referenced."""
        with _lock:
            found = None if self.key is None else _made.get(self.key)
        if found is not None:
            return found
        found = page_aligned(page_contiguous(self.make()))
        assert self.kind in (None, (found.dtype, found.shape)), f"{self.key}: {found.dtype} {found.shape}"
        if self.key is not None and found.nbytes >= LARGE:
            with _lock:
                _made[self.key] = found
        return found

    def stored(self, held: Array | None = None) -> LazyArray | None:
        """A large array that is packed on use; None if it is small, or its dtype and shape are unknown.

        held: the packed array, kept until it is released.
        """
        if self.key is None:
            return None
        kind = (held.dtype, held.shape) if held is not None else self.kind
        if kind is None:
            return None
        dtype, shape = kind
        later = LazyArray(dtype, shape, self.made, held, key=self.key)
        if later.nbytes < LARGE:
            return None
        later.contents.kind = kind
        return later


def weight_form(weight: Weight) -> Form:
    """A constant in a kernel's own form; equal packings use one function and one name."""
    value, fn, by_slices = weight.value, weight.fn, weight.by_slices
    how = (weight.form, value.type, weight.image, by_slices, getattr(fn, "__code__", fn))
    held = value.lazy_data

    def make() -> Array:
        whole = held if by_slices or not isinstance(held, LazyArray) else held.read()
        assert whole is not None
        return fn(whole)

    return _form(held, how, make, weight.packed_type)


def placed_form(v: Value) -> Form:
    """A constant as its place stores it."""
    layout, how = v.type.layout, ("as placed", v.type)
    shape: tuple[int, ...] = layout.storage_shape(v.shape)
    if layout.is_image:
        wide, high = layout.image_size(v.shape)
        shape = high, wide, layout.pack
    kind = (np.dtype(v.type.storage.np), shape) if v.type.nbytes >= LARGE else None
    return _form(v.lazy_data, how, lambda: stored_array(v), kind)


def _form(held: Array | LazyArray | None, how: Hashable, make: Callable[[], Array], kind: Kind | None) -> Form:
    """The Form of `held` packed by `make`; without `kind`, dtype and shape are those of earlier packings of the key."""
    if not isinstance(held, LazyArray):
        return Form(None, make, kind)
    key = (held.key, how)
    return Form(key, make, kind or content_info(key).kind)
