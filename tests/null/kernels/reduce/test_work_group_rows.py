"""How many elements of a row a work-item takes at once."""

from __future__ import annotations

import pytest

from opalite.ir.device.device_info import DeviceInfo
from opalite.kernels.reduce.work_group_rows import row_width

CPU = DeviceInfo(name="cpu", kind="cpu", native_float_width=16)
GPU = DeviceInfo(name="gpu", kind="gpu")


@pytest.mark.parametrize(("columns", "lanes"), [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (16, 16), (1000, 16)])
def test_short_rows_fill_their_vectors(columns: int, lanes: int) -> None:
    assert row_width(columns, CPU) == lanes
    assert row_width(columns, GPU) == 2
