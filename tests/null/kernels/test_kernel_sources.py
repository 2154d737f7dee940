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
    monkeypatch.setattr(kernel_sources, "_FOLDER", tmp_path)
    monkeypatch.setattr(kernel_sources, "read_source", kernel_sources.read_source.__wrapped__)
    monkeypatch.setattr(kernel_sources, "_common", kernel_sources._common.__wrapped__)
    text = kernel_sources.program_text("mine.cl")
    assert text.count("typedef float REAL;") == 1
    assert "#define MORE" in text
    assert "#include" not in text
