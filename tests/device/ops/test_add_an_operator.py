"""docs/add-an-operator.md, followed line by line in a copy of the checkout."""

from __future__ import annotations

from pathlib import Path

from opalite.cl.runtime import Runtime

from ...helpers.pages import follow


def test_the_page_holds(rt: Runtime, tmp_path: Path) -> None:
    fused, tests, rolled = follow("add-an-operator.md", tmp_path, rt.info.id)
    assert fused == "1 launch computes both\n"
    assert "passed" in tests
    assert rolled.startswith("Roll runs on the host: no kernel is registered")
