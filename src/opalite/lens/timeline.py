"""Timeline of the median run, and the times of steps over typical runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..cl.queue.event_times import LaunchTimes
from ..plan.program import DownloadStep, LaunchStep, Step, UploadStep
from ..run.report.profile import Profile
from .program_parts import ProgramParts


def add_times(found: ProgramParts, profile: Profile | None) -> None:
    """Replace the estimates of steps and nodes by the means of typical runs. None: of a plan, which keeps them."""
    if profile is None:
        return
    runs = set(profile.typical_runs or range(len(profile.wall_s)))
    totals: dict[int, list[float]] = {}
    for run, step, times in _steps(profile):
        if run in runs and id(step) in found.numbers:
            totals.setdefault(found.numbers[id(step)], []).append(times.end - times.start)
    for number, raw in enumerate(found.steps):
        seconds = totals.get(number, [])
        raw["ms"] = _ms(sum(seconds) / max(len(runs), 1)) if seconds else None
        raw["times"] = max(round(len(seconds) / max(len(runs), 1)), 1)
    tasks: dict[str, float] = {}  # seconds by label; a loop's are those of its steps
    for other in profile.others:
        if isinstance(other.what, str) and not other.is_loop and other.run in runs:
            tasks[other.what] = tasks.get(other.what, 0.0) + other.times.seconds
    for node in found.nodes:
        node["ms"] = sum(found.steps[s]["ms"] or 0.0 for s in node["steps"])
        if node["part"] is None:
            node["ms"] = _ms(tasks.get(node["name"], 0.0) / max(len(runs), 1))


def timeline(found: ProgramParts, profile: Profile | None) -> dict[str, Any]:
    """The events of the median run in order; of a plan, its launches one after the other."""
    if profile is None or not profile.wall_s:
        return _planned(found)
    run = (profile.typical_runs or (0,))[0]
    raw = [(times, _event(found, step)) for at, step, times in _steps(profile) if at == run]
    raw += [
        (r.times, {"step": None, "kind": "loop" if r.is_loop else "host", "name": r.what})
        for r in profile.others
        if r.run == run and isinstance(r.what, str)
    ]
    start = min((times.start for times, _ in raw), default=0.0)
    raw.sort(key=lambda item: (item[0].start, -item[0].end))
    events, open_until = [], list[float]()
    for times, event in raw:
        while open_until and open_until[-1] <= times.start:
            open_until.pop()
        at = {"start_ms": _ms(times.start - start), "ms": _ms(times.end - times.start), "depth": len(open_until)}
        events.append(event | at)
        if event["kind"] == "loop" or event["step"] is None:
            open_until.append(times.end)
    found_ms = {"ms": _ms(max((t.end for t, _ in raw), default=start) - start), "run_ms": _ms(profile.wall_s[run])}
    return {"is_measured": True, **found_ms, "events": events}


def _planned(found: ProgramParts) -> dict[str, Any]:
    events, clock = [], 0.0
    for number, step in enumerate(found.steps):
        taken = step["ms"] or 0.0
        at = {"start_ms": _ms(clock / 1e3), "ms": taken, "depth": 0}
        events.append({"step": number, "kind": step["kind"], "name": step["name"]} | at)
        clock += taken
    return {"is_measured": False, "ms": _ms(clock / 1e3), "run_ms": None, "events": events}


def _steps(profile: Profile) -> Iterable[tuple[int, Step, LaunchTimes]]:
    """(run, step, times) of launches and of other steps."""
    for r in profile.records:
        yield r.run, r.step, r.times
    for o in profile.others:
        if not isinstance(o.what, str):
            yield o.run, o.what, o.times


def _event(found: ProgramParts, step: Step) -> dict[str, Any]:
    kinds = {LaunchStep: "launch", UploadStep: "upload", DownloadStep: "download"}
    return {"step": found.numbers.get(id(step)), "kind": kinds.get(type(step), "host"), "name": step.node}


def _ms(seconds: float) -> float:
    return float(f"{1e3 * seconds:.6g}")
