"""A campaign: seeds one after another in a child process, which is started again when it dies or hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HANG_S = 120.0
"""Seconds after which one step of one seed counts as hanging."""


@dataclass
class Campaign:
    """What to run. folder: gets results.jsonl, and every failing case as NAME.onnx and NAME.npz. loosen: valid small
    models with something changed, rather than random graphs. saved: graphs as onnxruntime's optimiser saves them."""

    mode: str
    first_seed: int
    count: int
    folder: Path
    seconds: float = 1e9
    most_nodes: int = 30
    hang_s: float = HANG_S
    loosen: bool = False
    saved: bool = False

    @property
    def results(self) -> Path:
        return self.folder / "results.jsonl"

    @property
    def progress(self) -> Path:
        return self.folder / "progress"

    def case_path(self, seed: int) -> Path:
        return self.folder / f"{self.mode}-{seed}"


@dataclass
class Summary:
    """What a campaign found: seeds run, kinds of results, and the faults' records."""

    seeds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


def work(campaign: Campaign, until: float) -> None:
    """The child: seeds from first_seed on. Writes down what it is about to do, then what came of it."""
    from .builder import make_case
    from .check import check
    from .judge import Fault
    from .loosen import DELIBERATE, make_loose_case
    from .saved import saved_case

    for seed in range(campaign.first_seed, campaign.first_seed + campaign.count):
        if time.time() > until:
            break
        _report(campaign, seed, "generate")
        started = time.perf_counter()
        found = make_loose_case(seed) if campaign.loosen else make_case(seed, campaign.most_nodes)
        if campaign.saved and found is not None:
            found = saved_case(found, seed)
        if found is None:
            _record(campaign, seed, "no graph", "")
            continue
        path = campaign.case_path(seed)
        found.save(path)  # so that it is there if the process dies
        made = time.perf_counter()
        try:
            tell = lambda stage: _report(campaign, seed, stage)  # noqa: B023, E731
            kind, text = "ok", check(found, campaign.mode, seed, tell, campaign.loosen)
            if text != "ok":
                kind = "unjudged"
        except Fault as e:
            kind, text = e.kind, f"{found.model.doc_string}: {e.text}" if campaign.loosen else e.text
            if campaign.loosen and kind == "refused" and any(sentence in text for sentence in DELIBERATE):
                kind = "unjudged"
        if kind in ("ok", "unjudged"):
            path.with_suffix(".onnx").unlink()
            path.with_suffix(".npz").unlink()
        nodes = len(found.model.graph.node)
        times = {
            "nodes": nodes,
            "generate_s": round(made - started, 3),
            "check_s": round(time.perf_counter() - made, 3),
        }
        _record(campaign, seed, kind, text, **times)
    else:
        _report(campaign, campaign.first_seed + campaign.count, "done")
        return
    _report(campaign, seed, "done")


def run_campaign(campaign: Campaign) -> Summary:
    """The parent: restarts the child until all seeds are run or the time is up."""
    campaign.folder.mkdir(parents=True, exist_ok=True)
    campaign.results.write_text("")
    started = time.time()
    until = started + campaign.seconds
    seed, end = campaign.first_seed, campaign.first_seed + campaign.count
    while seed < end and time.time() < until:
        seed = _run_child(campaign, seed, end, until)
    return summarise(campaign.results, time.time() - started)


def _run_child(campaign: Campaign, seed: int, end: int, until: float) -> int:
    """Run a child from `seed` on; the seed to go on with."""
    _report(campaign, seed, "start")
    # A child serves a thousand seeds, so that what it keeps in memory stays bounded.
    count = min(1000, end - seed)
    command = [sys.executable, "-m", "tests.fuzz", "--child", "--mode", campaign.mode, "--seed", str(seed)]
    command += ["--count", str(count), "--out", str(campaign.folder), "--until", str(until)]
    command += ["--nodes", str(campaign.most_nodes), *(["--loosen"] if campaign.loosen else [])]
    command += ["--saved"] if campaign.saved else []
    errors = campaign.folder / "stderr"
    with errors.open("w") as err:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err)
        hung = _wait(campaign, child)
    text = campaign.progress.read_text().split()
    at, stage = int(text[0]), text[1]
    if stage == "done":
        return at
    if hung:
        kind = "oracle hangs" if stage in ("generate", "oracle") else "hang"
        _record(
            campaign, at, kind, f"no progress for {campaign.hang_s:.0f} s at '{stage}'\n{errors.read_text()[-2000:]}"
        )
    else:
        kind = "oracle dies" if stage in ("generate", "oracle") and child.returncode < 0 else "crash"
        _record(campaign, at, kind, f"exit status {child.returncode} at '{stage}'\n{errors.read_text()[-2000:]}")
    return at + 1


def _wait(campaign: Campaign, child: subprocess.Popen[bytes]) -> bool:
    """Wait for the child's end; True if it had to be killed for want of progress."""
    last, since = "", time.time()
    while child.poll() is None:
        time.sleep(0.1)
        now = campaign.progress.read_text()
        if now != last:
            last, since = now, time.time()
        elif time.time() - since > campaign.hang_s:
            child.send_signal(signal.SIGABRT)  # faulthandler prints where it is
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            return True
    return False


def _report(campaign: Campaign, seed: int, stage: str) -> None:
    temporary = campaign.progress.with_suffix(".new")
    temporary.write_text(f"{seed} {stage}")
    os.replace(temporary, campaign.progress)


def _record(campaign: Campaign, seed: int, kind: str, text: str, **more: Any) -> None:
    with campaign.results.open("a") as f:
        f.write(json.dumps({"seed": seed, "kind": kind, "text": text, **more}) + "\n")


INNOCENT = ("ok", "unjudged", "no graph", "oracle dies", "oracle hangs")
"""Results that are no fault of Opalite's."""


def summarise(results: Path, seconds: float) -> Summary:
    """What the file of results says."""
    found = Summary(seconds=seconds)
    for line in results.read_text().splitlines():
        record = json.loads(line)
        found.seeds += 1
        found.kinds[record["kind"]] += 1
        if record["kind"] not in INNOCENT:
            found.faults.append(record)
    return found
