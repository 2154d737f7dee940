"""The short form: five shared models on every implementation that is installed, and a user's way on whole machines.

It is a gate: what fails, crashes or takes too long is a failure. Results are kept as those of the whole suite are.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .code import ROOT, commit, device_code
from .implementations import IMPLEMENTATIONS, Implementation, RootSource
from .roots import Root, steps

NAMES = ("mnist_cntk", "silero_vad_16k", "mobilenetv2_fp32", "mobilenetv2_qdq_int8", "tashkeel_transformer")
EMULATED = (*NAMES[:-1], "resnet20_cifar")
"""Where each instruction is emulated, a transformer would take most of the time."""

MODELS = ROOT.parent / "shared" / "models"
_TEST = "tests/models/test_shared_models.py::test_outputs_match[{}]"
_SHORT = Path(__file__).parent / "short.py"


def is_installed(implementation: Implementation, folder: Path) -> bool:
    """Whether it was fetched before."""
    if isinstance(implementation.source, RootSource):
        return Root(implementation.source, folder, MODELS).is_installed
    return (folder / implementation.name / "bin" / "python").exists()


def run_short(implementation: Implementation, python: Path | None, folder: Path, seconds: float) -> dict[str, Any]:
    """Results by test, as `run.read_results` gives them. `python` sees the implementation; None for a whole machine."""
    found: dict[str, Any] = {}
    told = {"code": commit(), "digest": device_code(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    end = time.monotonic() + seconds
    for test, result in _results(implementation, python, folder, end):
        found[test] = result | told
    return found


def _results(
    implementation: Implementation, python: Path | None, folder: Path, end: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(implementation.source, RootSource):
        environment = os.environ | {
            "PYTHONPATH": str(ROOT / "src"),
            "OPALITE_CACHE_DIR": str(folder / "cache" / f"short-{implementation.name}"),
            "OPALITE_DEVICE": "",
            **implementation.environment,
        }
        yield from _models([str(python), str(_SHORT), str(MODELS)], NAMES, environment, end)
        return
    root = Root(implementation.source, folder, MODELS)
    try:
        root.prepare()
    except (OSError, subprocess.SubprocessError) as e:
        said = f"E Error: {' '.join((getattr(e, 'stderr', '') or str(e)).split())[-300:]}"
        yield "machine::packages install", {"outcome": "failed", "text": said, "seconds": 0.0}
        return
    words, environment = root.command("python", "/mnt/checkout/tests/portability/short.py", "/mnt/models")
    yield from _models(words, NAMES if implementation.source.emulator is None else EMULATED, environment, end)
    if implementation.source.emulator is None:
        with tempfile.TemporaryDirectory() as scratch:
            for step, took, said in steps(root, MODELS, Path(scratch)):
                outcome = "failed" if said else "passed"
                yield f"machine::{step}", {"outcome": outcome, "text": said, "seconds": round(took, 2)}


def _models(
    command: Sequence[str], names: Sequence[str], environment: dict[str, str], end: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """One process a model, so that what ends one of them says nothing of the others."""
    for name in names:
        started, outcome, text = time.monotonic(), "crashed", ""
        left = max(end - started, 1.0)
        try:
            done = subprocess.run(
                [*command, name], capture_output=True, text=True, errors="replace", env=environment, timeout=left
            )
        except subprocess.TimeoutExpired:
            outcome = "long"
        else:
            lines = [line for line in done.stdout.splitlines() if line.startswith('{"model"')]
            if lines and done.returncode == 0:
                row = json.loads(lines[-1])
                outcome, text = row["outcome"], row["text"]
            else:
                text = f"E Error: status {done.returncode}: {' '.join(done.stderr.split())[-200:]}"
        seconds = round(time.monotonic() - started, 2)
        yield _TEST.format(name), {"outcome": outcome, "text": text, "seconds": seconds}


def chosen(only: Sequence[str] | None) -> list[Implementation]:
    """The implementations of the short form: simulators run no models."""
    return [i for i in IMPLEMENTATIONS if i.models and (not only or i.name in only)]
