"""Dynamic dimensions: selection of the input sizes that become symbols, and the signature that selects a segment.

A dimension that the model declares as dynamic becomes a symbol. Dimensions of one name share a symbol if their sizes
agree; otherwise each axis gets its own. Undeclared dimensions (inputs of loop bodies, results of host tasks) are static
at first and become dynamic once their size changes. Sizes 0 and 1 are always static.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Array, DType
from ...ir.feeds import dtype_of, is_tensor
from ...ir.growable_tensor import GrowableTensor
from ...ir.symbols import Trace, hint_of, is_symbolic_int

RESERVED = "positions reserved"
"""Name of the size of growable memory, in messages."""

MOST_CONTENTS = 64
"""Largest number of elements of an integer tensor whose elements become symbols."""


@dataclass(frozen=True)
class DynamicDim:
    """A dynamic dimension. name: dimensions of one name share a symbol if their sizes agree."""

    name: str = ""


STATIC_DIM = None
DimSpec = Sequence["DynamicDim | None"]
"""For each axis: a DynamicDim, or None for a static dimension."""


def symbolic_dims(shape: Sequence[int]) -> DimSpec:
    """Return the dimensions of a value that segments share: dynamic if they are symbolic."""
    return [DynamicDim(d.text) if is_symbolic_int(d) else STATIC_DIM for d in shape]


def declared_dims(shape: Iterable[int | str | None]) -> DimSpec:
    """Return the dimensions that a model declares: dynamic unless they are numbers."""
    return [STATIC_DIM if isinstance(d, int) else DynamicDim(d or "") for d in shape]


@dataclass(frozen=True)
class InputSignature:
    """Signature of the incoming values of a stage. key: selects segments, together with guards.

    sizes: the values of the symbols, in order. places: for each symbol, its description for messages. shapes: by tensor
    name, for each axis the number of its symbol, or None. contents: the same for the elements of size tensors.
    reserved: tensors in growable memory, by name; capacity: the number of the symbol for the positions that this memory
    has room for.
    """

    key: Any
    sizes: tuple[int, ...]
    labels: tuple[str, ...]
    shapes: Mapping[str, tuple[int | None, ...]]
    contents: Mapping[str, tuple[int | None, ...]]
    reserved: Mapping[str, GrowableTensor] = field(default_factory=dict)
    capacity: int = -1

    def symbols(self, trace: Trace) -> list[int]:
        """Create a symbol of `trace` for each size."""
        return [trace.symbol(size, label) for size, label in zip(self.sizes, self.labels, strict=True)]


class DynamicDims:
    """The dynamic dimensions of the incoming values of one stage."""

    def __init__(self, declared: Mapping[str, DimSpec], contents: frozenset[str], automatic: bool) -> None:
        """Initialise from declarations; learns: undeclared dimensions become dynamic when their size changes.

        declared: by tensor name; contents: tensors whose elements are sizes.
        """
        self._declared = declared
        self._contents = contents
        self._automatic = automatic
        self._seen: dict[tuple[str, int], int] = {}
        self._changed: set[tuple[str, int]] = set()

    @property
    def contents(self) -> frozenset[str]:
        """Tensors whose elements are sizes."""
        return self._contents

    def with_contents(self, names: Iterable[str]) -> DynamicDims:
        """Return a copy in which the elements of these tensors are sizes too."""
        return DynamicDims(self._declared, self._contents.union(names), self._automatic)

    def signature_of(
        self, incoming: Sequence[str], values: Mapping[str, Any], keys: Mapping[str, Any]
    ) -> InputSignature:
        """Return the signature of `values`; `keys` are the contents of values that select by contents.

        Tensors of sizes must be arrays.
        """
        tensors = {n: values[n] for n in incoming if n not in keys and is_tensor(values[n])}
        named = self._consistent_names(tensors)
        numbers: dict[Any, int] = {}
        sizes: list[int] = []
        labels: list[str] = []

        def number(group: Any, size: int, label: str) -> int:
            if group not in numbers:
                numbers[group] = len(sizes)
                sizes.append(size)
                labels.append(label)
            return numbers[group]

        parts: list[Any] = []
        shapes: dict[str, tuple[int | None, ...]] = {}
        contents: dict[str, tuple[int | None, ...]] = {}
        reserved: dict[str, GrowableTensor] = {}
        capacity = -1
        for n in incoming:
            value = values[n]
            if n in keys:
                parts.append(keys[n])
            elif not is_tensor(value):
                parts.append("none" if value is None else "list")
            elif n in self._contents:
                flat = np.asarray(value).reshape(-1).tolist()
                found = tuple(
                    number((n, i, ""), v, f"element {i} of '{n}'") if v > 1 else None for i, v in enumerate(flat)
                )
                contents[n] = found
                fixed = tuple(v if k is None else "size" for k, v in zip(found, flat, strict=True))
                parts.append((dtype_of(value), tuple(value.shape), fixed))
            else:
                axes = []
                for axis, size in enumerate(value.shape):
                    # Exporters may declare the row size of a cache as dynamic; kernels need it static.
                    is_row = isinstance(value, GrowableTensor) and axis > value.axis
                    group = None if is_row else self._group(n, axis, size, named)
                    axes.append(None if group is None else number(group, size, _label(n, axis, group)))
                shapes[n] = tuple(axes)
                parts.append(
                    (dtype_of(value), tuple(d if k is None else -k - 1 for k, d in zip(axes, value.shape, strict=True)))
                )
                if isinstance(value, GrowableTensor):
                    if value.grows:
                        capacity = number((RESERVED,), value.capacity, RESERVED)
                    parts.append((RESERVED, value.axis, value.grows, value.narrow))
                    reserved[n] = value
        return InputSignature(tuple(parts), tuple(sizes), tuple(labels), shapes, contents, reserved, capacity)

    def _consistent_names(self, tensors: Mapping[str, Any]) -> set[str]:
        """Return the dimension names for which all tensors have the same size."""
        found: dict[str, set[int]] = {}
        for n, value in tensors.items():
            declared = self._declared.get(n)
            if declared is not None and len(declared) == len(value.shape):
                for dim, size in zip(declared, value.shape, strict=True):
                    if dim is not None and dim.name:
                        found.setdefault(dim.name, set()).add(size)
        return {name for name, given in found.items() if len(given) == 1}

    def _group(self, n: str, axis: int, size: int, named: set[str]) -> Any:
        """Return the identity of the symbol of an axis; None if the axis is static."""
        declared = self._declared.get(n)
        if declared is None or len(declared) <= axis:
            if not self._is_dynamic(n, axis, size) or size < 2:
                return None
            return n, axis, ""
        dim = declared[axis]
        if dim is None or size < 2:
            return None
        return dim.name if dim.name in named else (n, axis, dim.name)

    def _is_dynamic(self, n: str, axis: int, size: int) -> bool:
        if not self._automatic:
            return False
        label = (n, axis)
        if self._seen.setdefault(label, size) != size:
            self._changed.add(label)
        return label in self._changed


def _label(n: str, axis: int, group: Any) -> str:
    name = group if isinstance(group, str) else group[2]
    return f"axis {axis} of '{n}'" + (f" ({name})" if name else "")


def may_hold_sizes(dtype: DType, shape: Sequence[int]) -> bool:
    """Whether the elements of a tensor may become symbols: few integers."""
    return dtype in (DType.INT32, DType.INT64) and hint_of(math.prod(shape)) <= MOST_CONTENTS


ALL_STATIC = DynamicDims({}, frozenset(), automatic=False)
"""All dimensions are static."""


# Incoming values: arrays, or types alone if a model is imported without data


class ContentsNeededError(ShapeError):
    """Shapes depend on contents, but only types were fed."""


def as_array(name: str, value: Any) -> Array:
    """Return the contents of a value as an array; ContentsNeededError if only its type was given."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__array__"):
        raise ContentsNeededError(
            f"shapes of the model depend on the contents of '{name}': give an array, not only its type"
        )
    return np.asarray(value)
