"""Lines of users' files in compiler output: mapped where the compiler counts the whole program's, else left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from opalite.cl.programs.own_lines import own_lines
from opalite.kernels.kernel_sources import program_text, read_source

SOURCE = """#include "part.cl"
kernel void roll(global const REAL *x, global REAL *y, int count) {
    const int at = get_global_id(0);
    if (at >= cuont) return;
    STORE(y, at, part(x, at));
}
"""
PART = "ACC part(global const REAL *x, int at) { return LOAD(x, at) * scael; }\n"
# As NVIDIA's driver writes them, in its versions of today and of OpenCL 1.0.
NVIDIA = """<kernel>:{a}:15: error: use of undeclared identifier 'cuont'; did you mean 'count'?
    if (at >= cuont) return;
              ^~~~~
              count
<kernel>:{b}:60: error: use of undeclared identifier 'scael'
<kernel>:{c}:9: note: expanded from macro 'LOAD'
"""


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "roll.cl"
    path.write_text(SOURCE)
    (tmp_path / "part.cl").write_text(PART)
    read_source.cache_clear()
    return program_text(str(path))


def line_of(text: str, part: str) -> int:
    return next(i for i, row in enumerate(text.splitlines(), 1) if part in row)


@pytest.mark.parametrize("name", ["<kernel>", "", "/tmp/comgr-1/input/CompileSource"])
def test_lines_of_the_program_become_those_of_the_files(text: str, name: str) -> None:
    numbers = {"a": line_of(text, "cuont"), "b": line_of(text, "scael"), "c": line_of(text, "define LOAD")}
    assert numbers["a"] > 100, "the types of every kernel come first"
    log = NVIDIA.format(**numbers).replace("<kernel>", name)
    found = own_lines(log, text).splitlines()
    assert found[0] == "roll.cl:4:15: error: use of undeclared identifier 'cuont'; did you mean 'count'?"
    assert found[1:4] == log.splitlines()[1:4]
    assert found[4] == "part.cl:1:60: error: use of undeclared identifier 'scael'"
    assert found[5] == log.splitlines()[5], "a line of Opalite's own"


def test_compilers_that_follow_line_directives_are_left_alone(text: str) -> None:
    pocl = "error: roll.cl:4:15: use of undeclared identifier 'cuont'\n"
    clang = f"roll.cl:{line_of(text, 'cuont')}:15: error: no\n/home/me/roll.cl:{line_of(text, 'cuont')}: error: no\n"
    far = "<kernel>:99999:1: error: expected '}'\nptxas application ptx input, line 34; error : no\n"
    for log in (pocl, clang, far, ""):
        assert own_lines(log, text) == log
    assert own_lines(log := "<kernel>:2:1: error: no", "int a;\n#line 1\nint b") == log, "no file is named"
