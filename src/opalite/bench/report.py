"""Results of measurements as JSON."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .compare import Comparison
from .throughput import Throughput


def milliseconds(seconds: float) -> str:
    """Three significant digits or more."""
    ms = seconds * 1e3
    digits = 0 if ms >= 100 else 1 if ms >= 10 else 2 if ms >= 1 else 3
    return f"{ms:.{digits}f}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """All measurements in seconds, with the machine they were made on."""
    first = comparison.engines[0]
    engines = []
    for m in comparison.engines:
        ratio = comparison.ratio(m, first)
        taken = {s.round for s in m.accepted}
        engines.append(
            {
                "engine": m.engine,
                "version": m.version,
                "device": m.device,
                "load_s": m.load_s,
                "first_s": m.first_s,
                "memory": m.memory,
                "run_s": asdict(m.run_s),
                "ratio": None if ratio is None else asdict(ratio),
                "difference": m.difference,
                "slices": [
                    {"median_s": s.median, "runs": len(s.times), "probe_s": s.probe_s, "accepted": s.round in taken}
                    for s in m.slices
                ],
            }
        )
    return _record(comparison, calm_probe_s=comparison.calm_s, engines=engines)


def throughput_json(found: Throughput) -> dict[str, Any]:
    """All measurements of modes, in seconds and inferences per second, with the machine."""
    modes = [
        {
            **asdict(y.mode),
            "version": y.version,
            "device": y.device,
            "rate": asdict(y.rate),
            "gain": found.gain(y),
            "latency_s": {f"p{q}": y.latency_s(q) for q in (50, 90, 99)},
            "difference": y.difference,
            "stretches": [
                {"rate": s.rate, "runs": len(s.times), "probe_s": s.probe_s, "accepted": s in y.accepted}
                for s in y.slices
            ],
        }
        for y in found.modes
    ]
    return _record(found, best=asdict(found.best.mode), modes=modes)


def _record(found: Comparison | Throughput, **measured: Any) -> dict[str, Any]:
    head = {"model": Path(found.model).stem, "plan": asdict(found.plan), "machine": machine()}
    return {**head, **measured, "failed": found.failed}


def machine() -> dict[str, Any]:
    """Processor, cores, system and Python version."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }
