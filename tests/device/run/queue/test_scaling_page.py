"""The Python of docs/scaling.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ....docs.scene import classifier

PAGE = Path(__file__).parents[4] / "docs" / "scaling.md"
_ALL = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
BLOCKS = [b for b in _ALL if "opalite.ray" not in b]  # those are run in tests/device/ray


@pytest.mark.parametrize("text, lines", [*zip(BLOCKS, (1, 40), strict=True)])
def test_a_block_runs(
    text: str, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.onnx").write_bytes(classifier().SerializeToString())
    monkeypatch.chdir(tmp_path)
    exec(compile(text, str(PAGE), "exec"), {"__name__": "__main__"})
    assert len(capsys.readouterr().out.splitlines()) == lines
