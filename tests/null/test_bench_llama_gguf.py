"""The decoders of the benchmarks in llama.cpp's format: names, shapes and order of rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.models.llama import LLAMA_TINY
from benchmarks.models.llama_gguf import _tensors, save_gguf


def test_names_and_shapes() -> None:
    s = LLAMA_TINY
    found = _tensors(s, 0)
    assert len(found) == 9 * s.layers + 3
    assert found["blk.1.attn_k.weight"].shape == (s.kv_heads * s.head, s.width)
    assert found["blk.0.ffn_down.weight"].shape == (s.width, s.inner)
    assert found["output.weight"].shape == found["token_embd.weight"].shape == (s.words, s.width)
    assert found["output_norm.weight"].shape == (s.width,)


def test_rows_that_are_rotated_together_are_neighbours() -> None:
    """The first of a head's rows is followed by that half a head further on."""
    s = LLAMA_TINY
    whole, alone = (_tensors(replace(s, layers=n), 0)["blk.0.attn_q.weight"] for n in (2, 1))
    np.testing.assert_array_equal(whole, alone)
    rows = whole.reshape(s.heads, s.head // 2, 2, s.width).swapaxes(1, 2).reshape(whole.shape)
    assert not np.array_equal(rows, whole)
    np.testing.assert_array_equal(rows[:2], whole[[0, 2]])


def test_what_is_not_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are not written"):
        save_gguf(replace(LLAMA_TINY, tied=True), tmp_path / "model.gguf")


@pytest.mark.parametrize("kind", ["F32", "Q4_0"])
def test_a_file_comes_back(tmp_path: Path, kind: str) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    path = save_gguf(replace(LLAMA_TINY, width=64, inner=160), tmp_path / "model.gguf", kind)
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    want = _tensors(LLAMA_TINY, 0)
    assert tensors.keys() == want.keys()
    for name, array in want.items():
        got = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type).reshape(array.shape)
        bound = 0 if kind == "F32" or array.ndim == 1 or name == "token_embd.weight" else np.abs(array).max() / 7
        assert np.abs(got - array).max() <= bound
