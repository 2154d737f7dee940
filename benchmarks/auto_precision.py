"""Measures the decisions of precision 'auto' on models with known answers, beside fp32 and fp16.


    python -m benchmarks.auto_precision FOLDER [MODEL ...] --device gpu --json benchmarks/results/auto.json

FOLDER holds NAME.onnx and NAME.npz with arrays in:INPUT and out:OUTPUT (and NAME.case2.npz, inputs that the decision
did not see). Errors are the largest difference of an output from the expected one, as a share of its largest magnitude.
`auto` is the worst answer of all runs, the first included; `auto/32` its distance from fp32's. Times are medians of
alternating runs in milliseconds. OPALITE_TRY_HALF=1 shows the decisions on a CPU, where times are meaningless.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import opalite
from opalite.ir.precision import Precision
from opalite.ir.tolerances import relative_difference

RUNS = 20
Case = tuple[dict[str, Any], dict[str, Any]]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", help="names; all of the folder if none is given")
    parser.add_argument("--device")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--rounds", type=int, default=30, help="of timing")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def read_case(path: Path) -> Case:
    """(inputs, expected outputs) by name."""
    with np.load(path) as archive:
        arrays = {k: archive[k] for k in archive.files}
    return tuple({k[len(p) :]: a for k, a in arrays.items() if k.startswith(p)} for p in ("in:", "out:"))  # type: ignore[return-value]


def worst(session: opalite.InferenceSession, got: Sequence[Any], want: Mapping[str, Any]) -> float:
    """The largest difference of a tensor of `got` from what is expected."""
    pairs = [(g, want[o.name]) for g, o in zip(got, session.get_outputs(), strict=True) if o.name in want]
    return max((relative_difference(np.asarray(g), w) for g, w in pairs), default=0.0)


def distance(got: Sequence[Any], want: Sequence[Any]) -> float:
    """The largest difference of a tensor of `got` from `want`."""
    tensors = [(g, w) for g, w in zip(got, want, strict=True) if isinstance(w, np.ndarray) and w.dtype.kind != "O"]
    return max((relative_difference(g, w) for g, w in tensors), default=0.0)


def measure(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One model: errors on its cases, times on the first of them, and the decision."""
    cases = [read_case(p) for p in sorted(path.parent.glob(f"{path.stem}.npz"))]
    cases += [read_case(p) for p in sorted(path.parent.glob(f"{path.stem}.case*.npz"))]
    feeds = cases[0][0]

    def open_session(precision: str) -> opalite.InferenceSession:
        return opalite.InferenceSession(
            path,
            device=options.device,
            precision=precision,
            tolerance=options.tolerance if precision == "auto" else None,
        )

    row: dict[str, Any] = {"model": path.stem}
    with open_session("fp32") as wide, open_session("fp16") as half, open_session("auto") as auto:
        row["fp32"] = max(worst(wide, wide.run(None, f), w) for f, w in cases)
        row["fp16"] = max(worst(half, half.run(None, f), w) for f, w in cases)
        reference = [wide.run(None, f) for f, _ in cases]
        started = time.perf_counter()
        answers = [(0, auto.run(None, feeds))]
        row["first_s"] = time.perf_counter() - started
        auto.settle()
        row["decided_s"] = time.perf_counter() - started
        for _ in range(RUNS):
            answers += [(i, auto.run(None, f)) for i, (f, _) in enumerate(cases)]
        auto.settle()
        answers += [(i, auto.run(None, f)) for i, (f, _) in enumerate(cases)]
        row["auto"] = max(worst(auto, got, cases[i][1]) for i, got in answers)
        row["auto_fp32"] = max(distance(got, reference[i]) for i, got in answers)
        sessions = {"fp32": wide, "fp16": half, "auto": auto}
        for session in sessions.values():
            for _ in range(3):
                session.run(None, feeds)
            session.settle()
        times: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(options.rounds):
            for name, session in sessions.items():
                started = time.perf_counter()
                session.run(None, feeds)
                times[name].append(1e3 * (time.perf_counter() - started))
        row["ms"] = {name: median(values) for name, values in times.items()}
        policy = auto.precision_policy
        row["decision"] = "fp32" if policy.precision is Precision.FP32 else f"fp16, {len(policy.fp32)} nodes in fp32"
        row["why"] = auto.explain_precision()
        row["overflowed"] = half.overflowed
    with open_session("auto") as again:
        started = time.perf_counter()
        row["again"] = worst(again, again.run(None, feeds), cases[0][1])
        row["again_s"] = time.perf_counter() - started
        row["kept"] = any("kept in the cache" in line for line in again.explain_precision())
    return row


def main() -> None:
    options = parse_options()
    names = options.models or sorted(p.stem for p in options.folder.glob("*.onnx"))
    rows = []
    head = (
        f"{'model':24} {'fp32':>8} {'fp16':>8} {'auto':>8} {'auto/32':>8}  {'fp32 ms':>8} {'fp16 ms':>8} {'auto ms':>8}"
    )
    print(f"tolerance {options.tolerance:g}\n{head}  decided in s, decision")
    for name in names:
        try:
            row = measure(options.folder / f"{name}.onnx", options)
        except opalite.OpaliteError as e:
            print(f"{name:24} {e}", flush=True)
            continue
        rows.append(row)
        errors = " ".join(f"{row[k]:8.1e}" for k in ("fp32", "fp16", "auto", "auto_fp32"))
        times = " ".join(f"{row['ms'][k]:8.3f}" for k in ("fp32", "fp16", "auto"))
        print(f"{name:24} {errors}  {times}  {row['decided_s']:.1f}, {row['decision']}", flush=True)
        print(*(f"    {line}" for line in row["why"]), sep="\n")
        print(f"    a later session: {'kept' if row['kept'] else 'NOT KEPT'}, first run {row['again_s']:.2f} s")
    beyond = [r["model"] for r in rows if r["auto_fp32"] > options.tolerance]
    print(f"{len(rows)} models; answers of auto beyond {options.tolerance:g} of fp32's: {', '.join(beyond) or 'none'}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
