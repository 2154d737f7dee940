"""What a result of the portability suite is of, and when it counts as stale."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.portability import code, matrix
from tests.portability.implementations import IMPLEMENTATIONS

MODEL = "tests/models/test_shared_models.py::test_outputs_match[mosaic]"
OTHER = "tests/device/kernels/test_softmax.py::test_rows[1]"
SHORT = {"cases": 0, "functions": 0}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a file in each folder that counts, and one in another."""
    for folder in (*code.FOLDERS, "src/opalite/plan"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("1\n")
    git(tmp_path, "init", "-q")
    record(tmp_path)
    return tmp_path


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True)


def record(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "x")


def test_the_digest_follows_what_decides_kernels_and_nothing_else(checkout: Path) -> None:
    first, commit = code.device_code(checkout), code.commit(checkout)
    assert re.fullmatch("[0-9a-f]{12}", first)
    assert code.last_change(checkout) == commit
    (checkout / "src/opalite/plan/a.py").write_text("2\n")
    assert (code.commit(checkout), code.device_code(checkout)) == (commit + "+", first)
    record(checkout)
    assert code.device_code(checkout) == first
    assert code.last_change(checkout) == commit != code.commit(checkout)
    for folder in code.FOLDERS:
        before = code.device_code(checkout)
        (checkout / folder / "a.py").write_text("2\n")
        assert code.device_code(checkout) == ""  # of no commit
        record(checkout)
        assert code.device_code(checkout) not in ("", before)
        assert code.last_change(checkout) == code.commit(checkout)
    git(checkout, "commit", "-q", "--amend", "-m", "another name")
    after = code.device_code(checkout)
    git(checkout, "commit", "-q", "--amend", "-m", "and another")
    assert code.device_code(checkout) == after


def test_outside_a_checkout_nothing_is_fresh(tmp_path: Path) -> None:
    assert code.device_code(tmp_path) == code.commit(tmp_path) == ""
    assert code.is_stale({"digests": [""]}, "")


@pytest.mark.parametrize("digests, stale", [(["a"], False), (["b"], True), (["a", "b"], True), ([], True)])
def test_a_cell_is_fresh_if_all_of_it_is(digests: list[str], stale: bool) -> None:
    assert code.is_stale({"digests": digests}, "a") is stale
    data = {"x": {"rows": {"row": {"passed": 1, "digests": digests}}}}
    assert code.stale_cells(data, "a") == ([("x", "row")] if stale else [])


def test_a_short_run_renews_its_rows_alone() -> None:
    pocl = IMPLEMENTATIONS[0]

    def result(outcome: str, of: str) -> dict[str, Any]:
        return {"outcome": outcome, "seconds": 1, "text": "E Error: x", "code": of, "digest": of, "date": "2026-11-27"}

    old = {MODEL: result("failed", "old"), OTHER: result("failed", "old")}
    before = matrix.summarize(pocl, old, "", {"cases": 9, "functions": 4})
    now = matrix.merged(before, matrix.summarize(pocl, {MODEL: result("passed", "new")}, "", SHORT))
    assert now["rows"]["model mosaic"] == {"passed": 1, "commits": ["new"], "digests": ["new"]}
    assert now["rows"]["softmax"] == before["rows"]["softmax"]
    assert [bad["test"] for bad in now["bad"]] == [OTHER]
    assert (now["cases"], now["seconds"], now["runs"]) == (before["cases"], before["seconds"], before["runs"])
    skipped = matrix.merged(now, matrix.summarize(pocl, {}, "no mirror", SHORT))
    assert skipped["rows"] == now["rows"]
    assert skipped["skipped"] == "no mirror"


def test_the_page_says_what_the_data_says() -> None:
    """Each cell names its commits, and those are called stale that are of other code than the page was written at."""
    page, data = matrix.PAGE.read_text(encoding="utf-8"), matrix.load()
    written = re.search(r"\(digest `(\w*)`\), and (\d+) of (\d+) cells were stale", " ".join(page.split()))
    assert written is not None
    digest = written[1]
    stale = code.stale_cells(data, digest)
    assert (int(written[2]), int(written[3])) == (len(stale), sum(len(c["rows"]) for c in data.values()))
    there = [name for name, column in data.items() if column["rows"]]
    rows = dict(re.findall(r"^\| ([^|]+) \|(.*)\|$", page.partition("| tests |")[2], re.MULTILINE))
    for row in {row for c in data.values() for row in c["rows"]}:
        cells = [cell.strip() for cell in rows[row].split("|")]
        for name, cell in zip(there, cells, strict=True):
            held = data[name]["rows"].get(row)
            assert cell == ("" if held is None else matrix._cell(held, digest)), (row, name)
            assert (" stale @" in cell) is ((name, row) in stale)
