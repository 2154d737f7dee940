"""Kernels that another package registers: plans made with them serve nobody who has not registered them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnx import helper
from opalite.cl.runtime import Runtime

from ....helpers.small_models import make_model, port

SOURCE = """kernel void answer(global const REAL *x, global REAL *y, int count) {
    const int i = get_global_id(0);
    if (i < count) y[i] = ANSWER;
}
"""
THEIRS = """
from opalite.kernel import STORAGE, Kernel, Launch, register_kernel

@register_kernel
class Answer(Kernel):
    op, source = "Softmax", "answer.cl"

    def seconds(self, p, cost):
        return 0.0

    def launch(self, p, params):
        y = p.node.y
        args = dict(x=p.node.x, y=y, count=y.type.count)
        defines = dict(STORAGE=STORAGE[y.type.storage], PACK=1, ANSWER="42")
        return [Launch("answer", args, (y.type.count,), defines=defines)]
"""
RUN = """
import sys
import numpy as np
import opalite
from opalite.cache.hit_counters import process_counts
{before}
x = np.array([[1, 2, 3]], np.float32)
session = opalite.InferenceSession(sys.argv[1], device=sys.argv[2])
{between}
print(*session.run(None, dict(x=x))[0].ravel(), process_counts()["plans"].hits)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.onnx"
    built = make_model([helper.make_node("Softmax", ["x"], ["y"])], [port("x", [1, 3])], [port("y", [1, 3])])
    path.write_bytes(built.SerializeToString())
    (tmp_path / "answer.cl").write_text(SOURCE)
    (tmp_path / "theirs.py").write_text(THEIRS)
    return path


def run(model: Path, rt: Runtime, before: str = "", between: str = "") -> tuple[np.ndarray, bool]:
    """The result of a process of its own, and whether it found a plan."""
    folders = [str(model.parent), *(p for p in sys.path if p)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folders),
        "OPALITE_CACHE_DIR": str(model.parent / "cache"),
        "OPALITE_PLAN_CACHE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # Python knows a changed file by its size and second alone
    }
    code = RUN.format(before=before, between=between)
    done = subprocess.run(
        [sys.executable, "-c", code, str(model), rt.info.id], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *values, hits = map(float, done.stdout.split())
    return np.array(values, np.float32), hits > 0


def test_a_kernel_that_is_gone_leaves_no_plan_behind(model: Path, rt: Runtime) -> None:
    right = np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum()
    theirs, found = run(model, rt, "import theirs")
    np.testing.assert_array_equal(theirs, 42)
    assert not found
    for expected in (False, True):
        own, found = run(model, rt)
        np.testing.assert_allclose(own, right, rtol=1e-5)
        assert found is expected
    theirs, found = run(model, rt, "import theirs")
    np.testing.assert_array_equal(theirs, 42)
    assert found


def test_a_kernel_that_has_changed_is_another(model: Path, rt: Runtime) -> None:
    run(model, rt, "import theirs")
    path = model.parent / "theirs.py"
    path.write_text(path.read_text().replace('"42"', '"17"'))
    theirs, found = run(model, rt, "import theirs")
    np.testing.assert_array_equal(theirs, 17)
    assert not found
    source = model.parent / "answer.cl"
    source.write_text(source.read_text().replace("= ANSWER", "= ANSWER + 1"))
    theirs, found = run(model, rt, "import theirs")
    np.testing.assert_array_equal(theirs, 18)
    assert not found


def test_a_kernel_registered_after_the_session_was_opened(model: Path, rt: Runtime) -> None:
    theirs, _ = run(model, rt, between="import theirs")
    np.testing.assert_array_equal(theirs, 42)
    own, found = run(model, rt)
    assert abs(own.sum() - 1) < 1e-5
    assert not found
