"""The text of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from opalite.kernels import kernel_sources


def test_common_declarations_stand_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin every program; a kernel's file that includes them too does not repeat them."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "common.cl").write_text("typedef float REAL;\n#ifndef EPILOGUE_PARAMS\n#endif\n")
    (tmp_path / "include" / "more.cl").write_text('#include "include/common.cl"\n#define MORE\n')
    (tmp_path / "mine.cl").write_text('#include "include/common.cl"\n#include "include/more.cl"\nkernel void f() {}\n')
    monkeypatch.setattr(kernel_sources, "FOLDER", tmp_path)
    monkeypatch.setattr(kernel_sources, "read_source", kernel_sources.read_source.__wrapped__)
    monkeypatch.setattr(kernel_sources, "_common", kernel_sources._common.__wrapped__)
    text = kernel_sources.program_text("mine.cl")
    assert text.count("typedef float REAL;") == 1
    assert "#define MORE" in text
    assert "#include" not in text


@pytest.mark.parametrize(
    "source, options, expected",
    [
        ("conv/implicit_gemm_mma_staged.cl", "-DACC_HALF=1", "matrix"),
        ("matmul/matmul_wgmma.cl", "", "matrix"),
        ("attention/flash_mma.cl", "", "matrix"),
        ("integer/conv_dot4_gpu.cl", "-DDOT=2 -DSTORAGE=8", "dot"),
        ("integer/conv_dot4_gpu.cl", "-DDOT=0 -DSTORAGE=8", "fp32"),
        ("integer/conv_vnni.cl", "-DDOTS=2", "dot"),
        ("quantized/dot_low_bit_int8.cl", "-DDOTS=0", "fp32"),
        ("conv/row_major_vectors.cl", "-DACC_HALF=1 -DSTORAGE=1", "fp16"),
        ("conv/row_major_vectors.cl", "-DSTORAGE=1", "fp32"),
        ("of/another/package.cl", "", "fp32"),
    ],
)
def test_the_arithmetic_follows_from_the_files_of_a_program(source: str, options: str, expected: str) -> None:
    assert kernel_sources.arithmetic_of(source, options) == expected
