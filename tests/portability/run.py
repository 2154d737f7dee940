"""Runs the tests on one implementation, within a time, going on where an earlier run stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from .code import ROOT, commit, device_code
from .implementations import NOT_OF_DRIVERS, NOT_OF_SIMULATORS, Implementation

BAD = ("failed", "crashed", "long")
"""Outcomes to look at."""

_NICENESS = 10


def run(
    implementation: Implementation,
    python: Path,
    folder: Path,
    *,
    seconds: float,
    each: int,
    only: str,
    again: bool,
    jobs: int = 1,
) -> None:
    """Add to the implementation's results for at most `seconds`: `each` cases of a test function, 0 for all.

    `only` is an expression as pytest's -k takes it; "" for all tests. `again` runs failed tests once more. `jobs`
    processes run tests side by side.
    """
    before = folder / f"{implementation.name}.before.json"
    before.write_text(json.dumps(_known_before(implementation, folder, before, again)))
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PORTABILITY_RESULTS": str(results_file(implementation, folder)),
        "PORTABILITY_SECONDS": str(implementation.test_s),
        "PORTABILITY_EACH": str(each),
        "OPALITE_TEST_CACHE": str(folder / "cache" / implementation.name),
        "PORTABILITY_BEFORE": str(before),
        "PORTABILITY_SIZE": str(size_file(implementation, folder)),
        "PORTABILITY_CODE": commit(),
        "PORTABILITY_DIGEST": device_code(),
        "OPALITE_DEVICE": "",
        **implementation.environment,
    }
    out = {*NOT_OF_DRIVERS, *(() if implementation.models else NOT_OF_SIMULATORS)}
    files = [str(p) for p in sorted((ROOT / "tests" / "device").rglob("test_*.py")) if p.name not in out]
    if implementation.models:
        files.insert(0, str(ROOT / "tests" / "models" / "test_shared_models.py"))
    command = [str(python), "-m", "pytest", "-p", "tests.portability.watch", "-p", "no:cacheprovider"]
    # Tests are handed out one by one, the longest first, so that processes end together.
    command += ["-n", str(jobs), "--dist", "load", "--maxschedchunk", "1", "--max-worker-restart", "10000"]
    command += [*(["-k", only] if only else []), *files]
    with (folder / f"{implementation.name}.log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=_be_nice
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _known_before(implementation: Implementation, folder: Path, before: Path, again: bool) -> dict[str, Any]:
    """What the processes that test must know: tests not to be run, and the seconds that tests took, forgotten ones too.

    It is written down once: a process that takes another's place must find the same tests as that one did.
    """
    results = read_results(implementation, folder)
    seconds = json.loads(before.read_text())["seconds"] if before.exists() else {}
    seconds |= {test: row["seconds"] for test, row in results.items()}
    settled = [test for test, row in results.items() if not (again and row["outcome"] in BAD)]
    return {"settled": settled, "seconds": seconds}


def results_file(implementation: Implementation, folder: Path) -> Path:
    """One line of JSON for each test that was run."""
    return folder / f"{implementation.name}.jsonl"


def size_file(implementation: Implementation, folder: Path) -> Path:
    """How many cases and test functions there are for the implementation, as JSON."""
    return folder / f"{implementation.name}.size.json"


def read_size(implementation: Implementation, folder: Path) -> dict[str, int]:
    """`cases` and `functions`, run or not; zeros if no run began."""
    path = size_file(implementation, folder)
    return json.loads(path.read_text()) if path.exists() else {"cases": 0, "functions": 0}


def read_results(implementation: Implementation, folder: Path) -> dict[str, dict[str, Any]]:
    """What is known of each test, the last result counting."""
    path = results_file(implementation, folder)
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["test"]: row for row in rows}


def _be_nice() -> None:
    os.nice(_NICENESS)
