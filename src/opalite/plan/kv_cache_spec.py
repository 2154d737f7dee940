"""KVCacheSpec: inputs and outputs of a program that runs on in-place KV caches, as plain data.

A process that has the program in its plan cache can continue a sequence without the importer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from ..ir.growable_tensor import GrowableTensor
from ..ir.symbols import Numbers, compile_numbers
from ..lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]

LEAST = 2
"""Least value of an open size: 0 and 1 are treated specially."""


@dataclass(frozen=True)
class InputSpec:
    """Expected properties of an input: dtype and sizes.

    numbers: for each size the number of its open size, None for a fixed one. For a tensor of sizes, `shape` is fixed,
    and `numbers` and `values` describe its elements.
    """

    dtype: str
    shape: tuple[int, ...]
    numbers: tuple[int | None, ...]
    values: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cache:
    """An input in reserved memory, as in ir/growable_tensor.py."""

    axis: int
    grows: bool
    present: str
    narrow: bool = False


@dataclass(frozen=True)
class KVCacheSpec:
    """The runs of a program, or its template, on KV caches.

    open_sizes: their number; capacity: number of the open size that is the caches' capacity, -1 for none. tensors:
    inputs of the model by name; contents: inputs whose elements are sizes; fixed: inputs that must have given contents,
    as (type, shape, bytes). caches: inputs in reserved memory, among `tensors`. inputs: names of the graph's inputs, in
    order; input_output_aliases: pairs of graph input and output that share memory. lengths: of caches after a run, as
    expressions over the sizes. outputs: of the model, by name: the number of the graph's output, the name of an input,
    or a constant. array_refusal: the reason why callers may not see the caches as arrays, '' if they may.
    """

    open_sizes: int
    capacity: int
    tensors: Mapping[str, InputSpec]
    contents: Mapping[str, InputSpec]
    fixed: Mapping[str, tuple[str, tuple[int, ...], bytes]]
    caches: Mapping[str, Cache]
    inputs: tuple[str, ...]
    input_output_aliases: tuple[tuple[int, int], ...]
    lengths: Mapping[str, str]
    outputs: Mapping[str, int | str | Array] = field(repr=False)
    array_refusal: str = ""

    def sizes_of(self, feeds: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The open sizes of a run on `feeds`, arrays and GrowableTensors; None if the program does not serve it."""
        if len(feeds) != len(self.tensors) + len(self.contents) + len(self.fixed):
            return None
        found: list[int | None] = [None] * self.open_sizes

        def is_same(number: int | None, known: int, size: int) -> bool:
            if number is None:
                return size == known
            if found[number] is None:
                found[number] = size
            return found[number] == size

        for name, (dtype, shape, contents) in self.fixed.items():
            value = feeds.get(name)
            if type(value) is not np.ndarray or (value.dtype.name, value.shape) != (dtype, shape):
                return None
            if value.tobytes() != contents:
                return None
        for name, wanted in self.contents.items():
            value = feeds.get(name)
            if type(value) is not np.ndarray or (value.dtype.name, value.shape) != (wanted.dtype, wanted.shape):
                return None
            if not all(map(is_same, wanted.numbers, wanted.values, value.reshape(-1).tolist())):
                return None
        for name, wanted in self.tensors.items():
            value = feeds.get(name)
            if value is None or value.dtype.name != wanted.dtype or len(value.shape) != len(wanted.shape):
                return None
            if not all(map(is_same, wanted.numbers, wanted.shape, value.shape)):
                return None
            cache = self.caches.get(name)
            if isinstance(value, GrowableTensor) != (cache is not None):
                return None
            if cache is not None:
                if Cache(value.axis, value.grows, value.present, value.narrow) != cache:
                    return None
                if value.grows and not is_same(self.capacity, 0, value.capacity):
                    return None
        sizes = tuple(-1 if size is None else size for size in found)
        return sizes if all(size >= LEAST for size in sizes) else None

    def lengths_at(self, sizes: Sequence[int]) -> dict[str, int]:
        """Length of each cache after a run at `sizes`."""
        return dict(zip(self.lengths, self._lengths(*sizes) or (), strict=True))

    @cached_property
    def _lengths(self) -> Numbers:
        return compile_numbers(self.open_sizes, (), list(self.lengths.values()))

    @property
    def has_constants(self) -> bool:
        """Whether an output of the model is a constant, which `to_json` does not support."""
        return any(isinstance(source, np.ndarray) for source in self.outputs.values())

    def to_json(self) -> dict[str, Any]:
        """The spec as plain JSON. ValueError if an output is a constant."""
        if self.has_constants:
            raise ValueError("an output is a constant")
        return {
            "open_sizes": self.open_sizes,
            "capacity": self.capacity,
            "tensors": _listed(self.tensors),
            "contents": _listed(self.contents),
            "fixed": {n: [dtype, shape, contents.hex()] for n, (dtype, shape, contents) in self.fixed.items()},
            "caches": {n: [c.axis, c.grows, c.present, c.narrow] for n, c in self.caches.items()},
            "inputs": self.inputs,
            "input_output_aliases": self.input_output_aliases,
            "lengths": dict(self.lengths),
            "outputs": dict(self.outputs),
            "array_refusal": self.array_refusal,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> KVCacheSpec:
        """The inverse of `to_json`; KeyError, TypeError or ValueError for invalid data."""
        made = cls(
            int(raw["open_sizes"]),
            int(raw["capacity"]),
            _read(raw["tensors"]),
            _read(raw["contents"]),
            {n: (dtype, tuple(shape), bytes.fromhex(text)) for n, (dtype, shape, text) in raw["fixed"].items()},
            {n: Cache(int(c[0]), bool(c[1]), str(c[2]), bool(c[3])) for n, c in raw["caches"].items()},
            tuple(map(str, raw["inputs"])),
            tuple((int(i), int(o)) for i, o in raw["input_output_aliases"]),
            {n: str(text) for n, text in raw["lengths"].items()},
            {n: source if isinstance(source, str) else int(source) for n, source in raw["outputs"].items()},
            str(raw["array_refusal"]),
        )
        _ = made._lengths  # ValueError for an invalid expression
        return made


def _listed(arriving: Mapping[str, InputSpec]) -> dict[str, Any]:
    return {n: [a.dtype, a.shape, a.numbers, a.values] for n, a in arriving.items()}


def _read(raw: Mapping[str, Any]) -> dict[str, InputSpec]:
    return {n: InputSpec(str(a[0]), *(tuple(part) for part in a[1:])) for n, a in raw.items()}
