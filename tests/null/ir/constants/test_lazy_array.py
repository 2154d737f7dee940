"""Arrays that lie elsewhere: read when they are asked for, one at a time, and gone when nobody works with them."""

from __future__ import annotations

import gc
import mmap
import re
import weakref
from pathlib import Path

import numpy as np
import pytest

from opalite.ir import DeviceInfo
from opalite.ir.constants.lazy_array import (
    LARGE,
    SLICE,
    LazyArray,
    largest,
    page_aligned,
    page_contiguous,
    page_empty,
    page_zeros,
    read_slices,
)
from opalite.ir.dtype import DType
from opalite.ir.graph import Graph, Value
from opalite.ir.place import FLAT, IMAGE, Place, Target
from opalite.ir.tensor_type import TensorType
from opalite.kernels.launch import Weight
from opalite.layout.insert_casts import stored_array
from opalite.ops.conv import neutral_zeros
from opalite.plan.emit_program import Emitter
from opalite.plan.program import Program
from opalite.plan.weights.packed_weights import weight_form

SIDE = 512
assert SIDE * SIDE * 4 >= LARGE


class Source:
    """A StoredArray that counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.stored = LazyArray(np.dtype(np.float32), (SIDE, SIDE), self._load)

    def _load(self) -> np.ndarray:
        self.reads += 1
        return np.full((SIDE, SIDE), 3, np.float32)


def test_it_is_in_memory_as_long_as_somebody_has_it() -> None:
    source = Source()
    a = source.stored.read()
    assert source.stored.read() is a
    assert source.reads == 1
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is None
    assert source.stored.read()[0, 0] == 3
    assert source.reads == 2


def test_nobody_changes_it() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Source().stored.read()[0, 0] = 1


def test_a_value_reads_it_only_for_its_contents() -> None:
    source = Source()
    value = Value("w", TensorType(DType.FLOAT32, (SIDE, SIDE)), source.stored)
    graph = Graph("g")
    graph.outputs = [value]
    (copy,) = graph.copy().outputs
    other = Value("v", value.type)
    other.share(value)
    assert copy.is_const
    assert other.is_const
    assert source.stored.nbytes == 4 * SIDE * SIDE
    assert source.reads == 0
    data = copy.data
    assert data is not None
    assert data.sum() == 3 * SIDE * SIDE
    assert source.reads == 1


@pytest.mark.parametrize("shape", [(3, 5), (SIDE, SIDE), (1, SIDE * SIDE, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float64])
def test_large_arrays_begin_at_a_page(shape: tuple[int, ...], dtype: type) -> None:
    zeros = page_zeros(shape, dtype)
    assert not zeros.any()
    for array in (zeros, page_empty(shape, dtype), page_aligned(np.ones(shape, dtype))):
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.nbytes < LARGE or array.__array_interface__["data"][0] % 512 == 0
    turned = np.arange(np.prod(shape)).reshape(shape).astype(dtype).T
    found = page_contiguous(turned, np.float64)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, turned.astype(np.float64))
    assert page_contiguous(found) is found


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="no huge pages to ask for")
def test_larger_arrays_begin_at_a_huge_page() -> None:
    array = page_empty((3, 1 << 20), np.uint8)
    begins = array.__array_interface__["data"][0]
    assert begins % (2 << 20) == 0
    array[...] = 7
    flags: list[str] = []
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if (m := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            inside = int(m[1], 16) <= begins < int(m[2], 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line.split()
    assert "hg" in flags  # that it was asked for
    assert array.sum() == 7 * array.size


def test_emission_reads_a_constant_once() -> None:
    source = Source()
    value = Value("w", TensorType(DType.FLOAT32, (SIDE, SIDE)), source.stored)
    stored_array(value)
    assert source.reads == 1
    assert weight_form(Weight(value, "twice", lambda data: 2 * data)).made()[0, 0] == 6
    assert source.reads == 2
    assert neutral_zeros(value)
    assert source.reads == 3


def test_emission_makes_no_large_weight_whose_size_is_known() -> None:
    source = Source()
    value = Value("w", TensorType(DType.FLOAT32, (SIDE, SIDE)), source.stored)
    half = np.dtype(np.float16)

    def added(weight: Weight, late: bool = True) -> object:
        emitter = Emitter(Graph("g"), DeviceInfo(), {}, Program("p"), late=late)
        return emitter.program.weights[emitter.add_kernel_form(weight, "w")]

    weight = Weight(value, "halves", lambda data: data.astype(half), packed_type=(half, (SIDE, SIDE)))
    later = added(weight)
    assert isinstance(later, LazyArray)
    assert (later.dtype, later.shape, source.reads) == (half, (SIDE, SIDE), 0)
    assert later.read()[1, 1] == 3
    assert source.reads == 1
    assert isinstance(
        added(Weight(value, "few", lambda data: data[:2], packed_type=(np.dtype("f4"), (2, SIDE)))), np.ndarray
    )
    assert isinstance(added(weight, late=False), np.ndarray)
    wrong = added(Weight(value, "other", lambda data: data, packed_type=(half, (SIDE, SIDE))))
    assert isinstance(wrong, LazyArray)
    with pytest.raises(AssertionError, match="float32"):
        wrong.read()


def test_a_constant_as_its_place_stores_it_is_not_read_for_planning() -> None:
    source = Source()
    for place in (Place(Target.OPENCL), Place(Target.OPENCL, FLAT, DType.FLOAT16), Place(Target.OPENCL, IMAGE)):
        value = Value("w", TensorType(DType.FLOAT32, (SIDE, SIDE), place), source.stored)
        emitter = Emitter(Graph("g"), DeviceInfo(), {}, Program("p"), late=True)
        before = source.reads
        later = emitter.program.weights[emitter.slot(value)]
        assert isinstance(later, LazyArray)
        assert source.reads == before
        found = later.read()
        np.testing.assert_array_equal(found, stored_array(value))
        assert (found.dtype, found.shape) == (later.dtype, later.shape)


def test_the_largest_value_is_looked_for_once() -> None:
    source = Source()
    kind = TensorType(DType.of(source.stored), source.stored.shape)
    value, other = Value("v", kind, source.stored), Value("w", kind, source.stored)
    assert value.cached_query(largest) == other.cached_query(largest) == 3
    assert source.reads == 1
    small, same = Value("s", kind, np.ones(3, np.float32)), Value("t", kind)
    same.share(small)
    assert same.cached_query(largest) == 1
    assert small._answers == {largest: 1}
    small.data = np.zeros(3, np.float32)
    assert (small.cached_query(largest), same.cached_query(largest)) == (0, 1)
    assert largest(np.array([2.0, -np.inf, -5.0, np.nan], np.float32)) == 5
    assert largest(np.array([1.0, -7.5], np.float16)) == 7.5
    assert largest(np.array([np.inf], np.float32)) == 0
    assert largest(np.zeros((0, 3), np.float32)) == 0
    assert largest(np.array(-4.0, np.float32)) == 4


def test_of_what_is_read_by_slices_one_is_in_memory() -> None:
    whole = np.arange(200 * 16000, dtype=np.int32).reshape(-1, 1000, 16)
    asked: list[tuple[int, int]] = []

    def load_bytes(first: int, count: int) -> np.ndarray:
        asked.append((first, count))
        return whole.view(np.uint8).reshape(-1)[first : first + count].copy()

    stored = LazyArray(whole.dtype, whole.shape, lambda: pytest.fail("read whole"), load_bytes=load_bytes)
    parts = []
    previous = None
    for where, part in read_slices(stored, 7):
        np.testing.assert_array_equal(part, whole[where])
        assert part.nbytes <= SLICE
        assert not part.flags.writeable
        assert previous is None or previous() is None, "the part before is in memory still"
        parts.append(where)
        previous = weakref.ref(part)
        del part
    assert [p.start for p in parts] == [0, *(p.stop for p in parts[:-1])]
    assert parts[-1].stop == len(whole)
    assert all((p.stop - p.start) % 7 == 0 for p in parts[:-1])
    assert len(asked) == len(parts) > 2


def test_slices_of_what_somebody_has_are_parts_of_that() -> None:
    source = Source()
    held = source.stored.read()
    assert all(np.shares_memory(part, held) for _, part in read_slices(source.stored))
    assert source.reads == 1
    assert all(np.shares_memory(part, held) for _, part in read_slices(held))
    assert list(read_slices(np.empty((0, 3)))) == []
