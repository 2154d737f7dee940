"""Mends that are taken out: every edit fits the source, and graphs find some of the faults again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

import opalite

from .mends import MENDS, Edit
from .mutants import draw, edited, find, find_by_case

FOUND_AT = {"concat_of_nothing": 1, "window_beyond_the_input": 2, "hardmax_of_nothing": 19}
"""Seeds of graphs with the mend's focus that show the fault."""


@pytest.mark.parametrize("mend", MENDS, ids=lambda m: m.name)
def test_every_edit_fits_the_source(mend) -> None:  # type: ignore[no-untyped-def]
    modules: dict[str, list[Edit]] = {}
    for edit in mend.edits:
        modules.setdefault(edit.module, []).append(edit)
    for module, edits in modules.items():
        path = Path(opalite.__file__).parent / f"{module.replace('.', '/')}.py"
        compile(edited(path.read_text(encoding="utf-8"), edits), str(path), "exec")


@pytest.mark.parametrize("mend", MENDS, ids=lambda m: m.name)
def test_a_fault_shows_in_its_case_with_its_mend_taken_out(mend) -> None:  # type: ignore[no-untyped-def]
    """With it in place test_cases.py runs them."""
    assert find_by_case(mend) is not None


@pytest.mark.parametrize("name", FOUND_AT)
def test_a_fault_is_found_with_its_mend_taken_out_only(name: str, tmp_path: Path) -> None:
    (mend,) = (m for m in MENDS if m.name == name)
    seeds = range(FOUND_AT[name], FOUND_AT[name] + 1)
    draw(tmp_path, seeds, mend.focus)
    assert find(tmp_path, seeds, None) is None
    found = find(tmp_path, seeds, mend, mend.operators)
    assert found is not None
    assert found["seed"] == seeds.start


def test_an_edit_that_fits_no_more_is_told() -> None:
    with pytest.raises(AssertionError, match="0 times, not once"):
        edited("x = 1\n", [Edit("ops.pool", "x = 2", "x = 3")])
