"""Runs the tests on one implementation, within a time, going on where an earlier run stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from .implementations import NOT_OF_DRIVERS, Implementation

ROOT = Path(__file__).parents[2]
_NICENESS = 10


def run(
    implementation: Implementation, python: Path, folder: Path, *, seconds: float, each: int, only: str, again: bool
) -> None:
    """Add to the implementation's results for at most `seconds`: `each` cases of a test function, 0 for all.

    `only` is an expression as pytest's -k takes it; "" for all tests. `again` runs failed tests once more.
    """
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PORTABILITY_RESULTS": str(results_file(implementation, folder)),
        "PORTABILITY_SECONDS": str(implementation.test_s),
        "PORTABILITY_EACH": str(each),
        "OPALITE_CACHE_DIR": str(folder / "cache" / implementation.name),
        "PORTABILITY_AGAIN": "1" if again else "",
        "OPALITE_DEVICE": "",
        **implementation.environment,
    }
    files = [str(p) for p in sorted((ROOT / "tests" / "device").glob("test_*.py")) if p.name not in NOT_OF_DRIVERS]
    if implementation.models:
        files.insert(0, str(ROOT / "tests" / "models" / "test_shared_models.py"))
    command = [str(python), "-m", "pytest", "-p", "tests.portability.watch", "-p", "no:cacheprovider"]
    command += ["-n", "1", "--max-worker-restart", "1000", *(["-k", only] if only else []), *files]
    with (folder / f"{implementation.name}.log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=_be_nice
        )
        try:
            process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as e:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(e, KeyboardInterrupt):
                raise


def results_file(implementation: Implementation, folder: Path) -> Path:
    """One line of JSON for each test that was run."""
    return folder / f"{implementation.name}.jsonl"


def read_results(implementation: Implementation, folder: Path) -> dict[str, dict[str, Any]]:
    """What is known of each test, the last result counting."""
    path = results_file(implementation, folder)
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["test"]: row for row in rows}


def _be_nice() -> None:
    os.nice(_NICENESS)
