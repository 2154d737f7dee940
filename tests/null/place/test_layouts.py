"""Layouts are asked by kind: a kind that a kernel does not know is refused, never taken for another."""

from __future__ import annotations

from enum import Enum
from typing import Any, cast

import numpy as np
import pytest

from opalite.ir import FLAT, IMAGE, DType, Layout, LayoutKind, Node, TensorType, Value, packed
from opalite.ir.place import OPENCL
from opalite.kernels.packing import pack_array, unpack_array
from opalite.kernels.registry import kernels_for
from opalite.ops.elementwise import PlaceCast
from opalite.place.pick import is_free_cast

from .test_image_plans import ADRENO, load

CPU = load("pocl_avx512")


class Later(Enum):
    """A kind of layout that comes later."""

    CHANNELS_LAST = "channels-last buffer"


NEW = Layout(cast(LayoutKind, Later.CHANNELS_LAST), 4)


def test_names_and_kinds() -> None:
    kinds = {FLAT: "is_row_major", packed(8): "is_packed", IMAGE: "is_image"}
    for layout, name in kinds.items():
        assert [n for n in kinds.values() if getattr(layout, n)] == [name]
    assert packed(1) == FLAT
    assert [str(x) for x in (*kinds, NEW)] == ["NCHW", "NC8HW8", "IMAGE2D", "channels-last buffer"]


def test_an_unknown_kind_has_no_blocks_and_no_storage() -> None:
    assert [NEW.is_row_major, NEW.is_packed, NEW.is_image] == [False] * 3
    array = np.zeros((1, 4, 2, 2), np.float32)
    asked: list[Any] = [
        lambda: NEW.pack,
        lambda: NEW.storage_shape(array.shape),
        lambda: pack_array(array, NEW),
        lambda: unpack_array(array, array.shape, NEW),
        lambda: TensorType(DType.FLOAT32, array.shape, OPENCL.with_layout(NEW)).nbytes,
    ]
    for ask in asked:
        with pytest.raises(ValueError, match="layout channels-last buffer is none of row-major buffer, channel-packed"):
            ask()
    assert not is_free_cast((1, 4, 1, 1), FLAT, NEW)


@pytest.mark.parametrize("other", [FLAT, packed(16), IMAGE])
def test_casts_refuse_it(other: Layout) -> None:
    for pair in ((NEW, other), (other, NEW)):
        x, y = (Value("", TensorType(DType.FLOAT32, (1, 8, 5, 5), OPENCL.with_layout(one))) for one in pair)
        node = Node(PlaceCast(), [x], [y])
        for kernel in kernels_for("PlaceCast"):
            assert kernel.refuse(kernel.problem(node, ADRENO)), f"{kernel.name} takes {pair[0]} to {pair[1]}"
