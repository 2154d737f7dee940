"""Campaigns of random graphs, and the shrinking of what they find: see docs/fuzzing.md.

python -m tests.fuzz --seconds 600 --seed 1 [--mode null|device] [--count N] [--out FOLDER] [--shrink]
python -m tests.fuzz --mode device --count 3000 --seed 1 --jobs 16
python -m tests.fuzz --loosen --seconds 600 --seed 1 [--mode null|device]
python -m tests.fuzz --saved --seconds 600 --seed 1 [--mode null|device]
python -m tests.fuzz --case FOLDER/null-17.onnx [--mode null|device] [--shrink]
python -m tests.fuzz [--loosen] --show SEED
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from pathlib import Path

from .jobs import add_arguments


def main() -> int:
    p = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument("--mode", choices=["null", "device"], default="null", help="without OpenCL, or on a device")
    p.add_argument("--seed", type=int, default=0, help="the first seed")
    p.add_argument("--count", type=int, help="how many seeds; without it, as many as --seconds allows")
    p.add_argument("--seconds", type=float, help="when to stop; 60 without --count")
    p.add_argument("--nodes", type=int, default=30, help="the most nodes of a graph")
    p.add_argument("--out", type=Path, help="folder of results and failing cases; a new one in the system's by default")
    p.add_argument("--shrink", action="store_true", help="shrink what fails, and print it")
    p.add_argument("--shrink-seconds", type=float, default=120, help="how long each may take")
    p.add_argument("--case", type=Path, help="run one case: a .py, or NAME.onnx with NAME.npz")
    p.add_argument("--show", type=int, metavar="SEED", help="print the graph of a seed")
    p.add_argument("--hang", type=float, default=120, help="seconds without progress that count as hanging")
    p.add_argument("--loosen", action="store_true", help="small models changed into what onnxruntime still runs")
    p.add_argument("--saved", action="store_true", help="graphs as onnxruntime's optimiser saves them")
    add_arguments(p)
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--until", type=float, default=0, help=argparse.SUPPRESS)
    a = p.parse_args()
    faulthandler.enable()
    os.environ.setdefault("OPALITE_PLAN_CACHE", "0")
    if a.show is not None:
        return show(a.show, a.nodes, a.loosen)
    if a.case is not None:
        return one_case(a.case, a.mode, a.seed, a.shrink_seconds if a.shrink else 0)
    return campaign(a)


def show(seed: int, nodes: int, loosen: bool) -> int:
    from .builder import make_case
    from .case import case_text
    from .loosen import make_loose_case

    found = make_loose_case(seed) if loosen else make_case(seed, nodes)
    told = f"Seed {seed}: {found.model.doc_string}." if loosen and found is not None else f"Seed {seed}."
    print("no graph" if found is None else case_text(found, told))
    return 0


def one_case(path: Path, mode: str, seed: int, shrink_seconds: float) -> int:
    from .case import Case
    from .check import check
    from .judge import Fault

    if not seed and (number := path.stem.rsplit("-", 1)[-1]).isdigit():
        seed = int(number)  # the settings that the campaign chose by it
    if shrink_seconds:
        from .shrink import shrink_file

        print(shrink_file(path, mode, seed, shrink_seconds))
        return 1
    try:
        print(check(Case.load(path), mode, seed))
    except Fault as e:
        print(e)
        return 1
    return 0


def campaign(a: argparse.Namespace) -> int:
    import tempfile

    from .campaign import Campaign, run_campaign, summarise, work
    from .jobs import run_jobs, shares

    seconds = a.seconds if a.seconds is not None else 1e9 if a.count is not None else 60.0
    folder = a.out or Path(tempfile.mkdtemp(prefix="opalite-fuzz-"))
    count = a.count if a.count is not None else 10**9
    what = Campaign(a.mode, a.seed, count, folder, seconds, a.nodes, a.hang, a.loosen, a.saved)
    if a.child:
        work(what, a.until)
        return 0
    if a.jobs > 1 and a.count is None:
        raise SystemExit("--jobs needs --count, which it shares out")
    if a.jobs > 1:
        options = ["--mode", a.mode, "--seconds", str(seconds), "--nodes", str(a.nodes), "--hang", str(a.hang)]
        options += ["--loosen"] if a.loosen else []
        options += ["--saved"] if a.saved else []
        started = time.time()
        run_jobs("tests.fuzz", options, shares(a.seed, count, a.jobs), folder, a.threads)
        found = summarise(what.results, time.time() - started)
    else:
        found = run_campaign(what)
    for record in found.faults:
        print(f"seed {record['seed']}: {record['kind']}: {record['text'].splitlines()[0][:300]}")
    if a.shrink and found.faults:
        from .shrink import shrink_file

        for record in found.faults:
            path = next(folder.rglob(f"{a.mode}-{record['seed']}.onnx"), None)
            if path is not None:
                print(shrink_file(path, a.mode, record["seed"], a.shrink_seconds))
    kinds = ", ".join(f"{n} {kind}" for kind, n in found.kinds.most_common())
    print(f"{found.seeds} graphs in {found.seconds:.0f} s ({a.mode} mode, seeds from {a.seed}): {kinds or 'none'}")
    print(f"{len(found.faults)} faults; results in {folder}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
