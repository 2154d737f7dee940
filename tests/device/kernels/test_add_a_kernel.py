"""docs/add-a-kernel.md, followed line by line in a copy of the checkout."""

from __future__ import annotations

import re
from pathlib import Path

from opalite.cl.runtime import Runtime

from ...helpers.pages import follow


def test_the_page_holds(rt: Runtime, tmp_path: Path) -> None:
    said = follow("add-a-kernel.md", tmp_path, rt.info.id)
    assert "RollKernel Roll() of f32[1,64,50]: 6 passed" in said[2]
    assert "RollKernel Roll() of f32[1,64,50]: 6 passed" in said[3]
    assert re.search(r"\* MySoftmax +NCHW", said[9])
    assert said[10].count("agrees with the reference") == 3  # 8 does not divide 12
    passed = re.search(r"(\d+) passed", said[11])
    assert passed
    assert int(passed[1]) >= 5  # the kernel refuses the other cases
