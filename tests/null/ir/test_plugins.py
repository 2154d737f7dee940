"""Registered code of other packages: its digest changes with the code and with nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opalite.ir import DeviceInfo, plugins
from opalite.ir.plugins import foreign_state, watch


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(plugins, "_listings", [])
    found: list[Any] = []
    watch(lambda: found)
    return found


def defined(text: str, name: str = "made") -> Any:
    """What `text`, a module of another package without a file, defines as `name`."""
    scope: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(text, "<elsewhere>", "exec"), scope)
    return scope[name]


def state(entries: list[Any], *registered: Any) -> str:
    entries[:] = registered
    return foreign_state()


def test_nothing_of_others_is_no_state(entries: list[Any]) -> None:
    assert state(entries) == ""
    assert state(entries, watch, DeviceInfo, DeviceInfo()) == ""


def test_the_code_counts_and_its_place_does_not(entries: list[Any]) -> None:
    body = (
        "class made:\n    source = {source!r}\n    def launch(self, n={n}):\n        return [n * {k} for _ in 'ab']\n"
    )
    same = {"source": "a.cl", "n": 1, "k": 2}
    first = state(entries, defined(body.format(**same))())
    assert first != ""
    assert state(entries, defined("\n\n" + body.format(**same))()) == first
    others = [{"source": "b.cl"}, {"n": 3}, {"k": 42}]
    states = {state(entries, defined(body.format(**same | other))()) for other in others}
    assert len(states | {first}) == 4


def test_order_is_nothing_and_number_is(entries: list[Any]) -> None:
    a, b = defined("def made(x): return x"), defined("def made(x): return -x")
    both = state(entries, a, b)
    assert state(entries, b, a) == both
    assert len({both, state(entries, a), state(entries, b)}) == 3


def test_what_a_closure_holds_counts(entries: list[Any]) -> None:
    text = "def outer(k):\n    def inner(x): return x * k\n    return inner\nmade = outer({})"
    assert state(entries, defined(text.format(2))) != state(entries, defined(text.format(3)))


def test_a_source_elsewhere_counts_by_its_contents(entries: list[Any], tmp_path: Path) -> None:
    source = tmp_path / "softmax.cl"
    source.write_text("y[i] = x[i];")
    made = defined(f"class made:\n    source = {str(source)!r}\n")()
    before = state(entries, made)
    source.write_text("y[i] = 42;")
    assert state(entries, made) != before


def test_helpers_in_the_same_file_count(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, {folder!r})\n"
        "from opalite.ir import plugins\nimport theirs\nplugins.watch(lambda: [theirs.entry])\n"
        "print(plugins.foreign_state())\n"
    )
    said = []
    for value in (1, 42, 42):
        (tmp_path / "theirs.py").write_text(f"def helper():\n    return {value:4}\ndef entry():\n    return helper()\n")
        done = subprocess.run(
            [sys.executable, "-B", "-c", code.format(folder=str(tmp_path))], capture_output=True, text=True, check=True
        )
        said.append(done.stdout)
    assert said[0] != said[1] == said[2]


def test_own_kernels_operators_and_importers_are_no_others() -> None:
    code = (
        "import opalite.kernels, opalite.importer.walk.node_context as r, opalite.importer.host.numpy_ops as n\n"
        "r.load_handlers(); n._load()\n"
        "from opalite.ir import plugins\n"
        "print(len(plugins._listings), sum(1 for e in plugins._listings for _ in e()) > 200)\n"
        "assert plugins.foreign_state() == ''\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["4", "True"]), done.stderr
