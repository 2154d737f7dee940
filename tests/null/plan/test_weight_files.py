"""Large constants in files of their own: read when they are wanted, and checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opalite.errors import BundleError
from opalite.ir.content import content_key
from opalite.plan.sums import byte_sum
from opalite.plan.weight_files import WeightFiles


def test_an_array_comes_back(tmp_path: Path) -> None:
    array = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    key, files = content_key(array), WeightFiles(tmp_path / "weights")
    files.keep(key, array)
    (path,) = files.folder.iterdir()
    written = path.stat().st_ino
    files.keep(key, array)
    assert path.stat().st_ino == written
    found = files.find(key, array.dtype, array.shape, byte_sum(array))
    np.testing.assert_array_equal(found.read(), array)
    assert found.read().ctypes.data % 512 == 0


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "named"])
def test_damage_is_an_error(tmp_path: Path, harm: str) -> None:
    array = np.arange(1000, dtype=np.int32)
    key, files = content_key(array), WeightFiles(tmp_path)
    files.keep(key, array)
    path = tmp_path / f"{key}.weight"
    raw = bytearray(path.read_bytes())
    raw[17] ^= 1
    if harm == "cut":
        path.write_bytes(raw[:-1])
    elif harm == "changed":
        path.write_bytes(raw)
    elif harm == "gone":
        path.unlink()
    else:
        key = "../" + key
    with pytest.raises(BundleError):
        files.find(key, array.dtype, array.shape, byte_sum(array)).read()
    if harm == "changed":
        assert not path.exists(), "it would be found again"
