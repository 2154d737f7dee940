"""Operators and kernels of other packages in a test: modules in files, which are forgotten at its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from opalite.ir import load_plugins
from opalite.kernels import kernel
from opalite.kernels.kernel_sources import read_source
from opalite.ops import all_ops, operator
from opalite.ops.model_names import MODEL_NAMES

ROLL = '''
import numpy as np

from opalite.kernel import STORAGE, Case, Kernel, Launch, Operator, need, register_kernel, register_operator, tensor


@register_operator(domain="com.example")
class Roll(Operator):
    """Elements moved along an axis."""

    axis: int
    shift: int = 1

    def check_shape(self, ins):
        need(0 <= self.axis < tensor(ins, 0, "x").rank, f"axis {self.axis} is not an axis of {ins[0]}")

    def reference(self, arrays):
        return [np.roll(arrays[0], self.shift, self.axis)]


@register_kernel
class RollFlat(Kernel):
    """One work-item an element."""

    op = "Roll"
    space = {"WIDE": (1, 2)}

    def launch(self, p, params):
        x, y, op = p.node.x, p.node.y, p.node.as_(Roll)
        n, inner = x.shape[op.axis], 1
        for d in x.shape[op.axis + 1 :]:
            inner *= d
        args = {"x": x, "y": y, "n": n, "inner": inner, "shift": op.shift % n, "count": y.type.count}
        return [Launch("roll", args, (y.type.count,), defines={"STORAGE": STORAGE[y.type.storage], "PACK": 1})]


CASES = [Case(Roll(axis=1, shift=2), ["f32[3,7,5]"])]
'''
ROLL_CL = """
kernel void roll(global const REAL *x, global REAL *y, int n, int inner, int shift, int count) {
    const int at = get_global_id(0);
    if (at >= count) return;
    const int i = at / inner % n;
    STORE(y, at, LOAD(x, at + ((i - shift + n) % n - i) * inner));
}
"""


def write_roll(
    folder: Path, name: str = "roll_of_test", *, py: tuple[str, str] = ("", ""), cl: tuple[str, str] = ("", "")
) -> Path:
    """A module with an operator and a kernel, and its OpenCL C; `py` and `cl`: a text and its replacement."""
    assert py[0] in ROLL
    assert cl[0] in ROLL_CL
    path = folder / f"{name}.py"
    path.write_text(ROLL.replace(*py) if py[0] else ROLL)
    path.with_suffix(".cl").write_text(ROLL_CL.replace(*cl) if cl[0] else ROLL_CL)
    return path


@pytest.fixture
def registers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the test registers is forgotten at its end."""
    all_ops()
    modules = set(sys.modules)
    held: list[dict[Any, Any]] = [kernel._KERNELS, operator._OPS, MODEL_NAMES, load_plugins.failures]
    before = [{key: copy(value) for key, value in one.items()} for one in held]
    for name in ("_files", "_providers"):
        monkeypatch.setattr(load_plugins, name, {})
    monkeypatch.setattr(load_plugins, "_loaded", None)
    yield
    for one, kept in zip(held, before, strict=True):
        one.clear()
        one.update(kept)
    for name in set(sys.modules) - modules:
        if not name.startswith("opalite"):
            del sys.modules[name]
    read_source.cache_clear()
