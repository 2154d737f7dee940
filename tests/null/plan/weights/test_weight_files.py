"""Large constants in files of their own: read when they are wanted, and checked."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from opalite.errors import BundleError
from opalite.ir.constants.lazy_array import content_key
from opalite.plan.weights import weight_files
from opalite.plan.weights.weight_files import WeightFiles, byte_sum


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


@pytest.mark.skipif(os.name != "posix", reason="mapped files cannot be removed")
def test_a_table_whose_rows_are_picked_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    key, files = content_key(array), WeightFiles(tmp_path)
    files.keep(key, array)
    monkeypatch.setattr(weight_files, "MAPPED", array.nbytes)
    monkeypatch.setattr(weight_files, "_read", lambda *args: pytest.fail("it is read"))
    found = files.find(key, array.dtype, array.shape, byte_sum(array), picked=True).read()
    assert found.ctypes.data % 512 == 0
    (path,) = files.folder.iterdir()
    path.unlink()
    np.testing.assert_array_equal(found, array)
    files.keep(key, array)
    other = files.find(key, array.dtype, array.shape, byte_sum(array))
    with pytest.raises(pytest.fail.Exception):
        other.read()


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "named"])
def test_damage_is_an_error(tmp_path: Path, harm: str, mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_files, "MAPPED", 0)
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
        files.find(key, array.dtype, array.shape, byte_sum(array), picked=mapped).read()
    if harm == "changed":
        assert not path.exists(), "it would be found again"
