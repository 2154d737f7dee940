"""The command of the suite: see the package's docstring."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from .code import device_code, last_change, stale_cells
from .gate import MODELS, NAMES, chosen, is_installed, run_short
from .implementations import IMPLEMENTATIONS, Implementation, RootSource
from .install import Unavailable, install
from .matrix import PAGE, load, save, summarize
from .roots import Root
from .run import ROOT, read_results, read_size, results_file, run

_GATE_S = 600.0  # of the short form


def main() -> int:
    """0 if every test that was run passed, was skipped, or fails by its driver's fault."""
    names = [i.name for i in IMPLEMENTATIONS]
    parser = argparse.ArgumentParser(prog="python -m tests.portability", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="this implementation; may be given again")
    parser.add_argument("--quick", action="store_true", help="one case of each test function and kernel")
    parser.add_argument("--each", type=int, default=0, help="so many cases of each test function and kernel; 0: all")
    parser.add_argument("--minutes", type=float, default=60.0, help="for each implementation, at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--tests", default="", help="tests to run, as pytest's -k takes them")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "portability", help="of drivers and results")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    parser.add_argument("--again", action="store_true", help="run again what failed, crashed or took too long")
    parser.add_argument("--report", action="store_true", help="run nothing, write the page from the results")
    parser.add_argument("--short", action="store_true", help="five models on everything that is installed: a gate")
    parser.add_argument("--install", action="store_true", help="fetch what is missing, run nothing")
    parser.add_argument("--stale", action="store_true", help="list what is older than kernels/, cl/ or pocl/")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the processes that test
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    if options.stale:
        return tell_stale()
    if options.install:
        for implementation in [i for i in IMPLEMENTATIONS if not options.only or i.name in options.only]:
            print(f"{implementation.title}: {prepare(implementation, folder)[1] or 'is there'}", flush=True)
        return 0
    if options.short:
        return run_gate(options.only, folder)
    found = {}
    whole = [i for i in IMPLEMENTATIONS if not isinstance(i.source, RootSource)]
    for implementation in [i for i in whole if not options.only or i.name in options.only]:
        if options.report and not results_file(implementation, folder).exists():
            continue
        reason = ""
        if options.fresh:
            results_file(implementation, folder).unlink(missing_ok=True)
        start = time.monotonic()
        if not options.report:
            print(f"{implementation.title} ...", flush=True)
            try:
                python = install(implementation, folder)
            except Unavailable as e:
                reason = str(e)
            else:
                seconds = 60 * options.minutes - (time.monotonic() - start)
                each = 1 if options.quick else options.each
                run(
                    implementation,
                    python,
                    folder,
                    seconds=max(seconds, 1),
                    each=each,
                    only=options.tests,
                    again=options.again,
                    jobs=options.jobs,
                )
        results = {} if reason else read_results(implementation, folder)
        size = read_size(implementation, folder)
        found[implementation.name] = summary = summarize(implementation, results, reason, size)
        told = f"skipped: {reason}" if reason else f"{len(results)} tests known, {len(summary['bad'])} to look at"
        print(f"{implementation.title}: {told}", flush=True)
    save(found)
    print(f"{PAGE} is written")
    return 1 if any(summary["bad"] for summary in found.values()) else 0


def prepare(implementation: Implementation, folder: Path) -> tuple[Path | None, str]:
    """The Python that sees an implementation, fetched where it is missing, None for a whole machine; why there is none,
    or "".
    """
    try:
        if not isinstance(implementation.source, RootSource):
            return install(implementation, folder), ""
        Root(implementation.source, folder, MODELS).install()
    except (Unavailable, OSError, subprocess.SubprocessError) as e:
        return None, str(getattr(e, "stderr", "") or e).strip()[-300:]
    return None, ""


def run_gate(only: list[str] | None, folder: Path) -> int:
    """The short form: 0 if there was something to run and all of it is right."""
    end, found = time.monotonic() + _GATE_S, {}
    passed = failed = 0
    for implementation in chosen(only):
        if not is_installed(implementation, folder):
            print(f"{implementation.title}: not installed", flush=True)
            continue
        python, reason = prepare(implementation, folder)
        started = time.monotonic()
        results = {} if reason else run_short(implementation, python, folder, max(end - started, 1.0))
        found[implementation.name] = summary = summarize(implementation, results, reason, {"cases": 0, "functions": 0})
        bad = len(summary["bad"]) + bool(reason)
        passed, failed = passed + len(results), failed + bad
        told = f"skipped: {reason}" if reason else f"{len(results)} run, {bad} to look at"
        print(f"{implementation.title}: {told}, {time.monotonic() - started:.0f} s", flush=True)
        for row in summary["bad"]:
            print(f"    {row['test']} {row['outcome']}: {row['said']}", flush=True)
    if not found:
        print("nothing is installed: python -m tests.portability --install", flush=True)
        return 1
    save(found)
    print(f"{PAGE} is written: {passed} results, {failed} to look at")
    return 1 if failed or not passed else 0


def tell_stale() -> int:
    """0 if every model of the short form was run at the code of today on all implementations with results."""
    data, code = load(), device_code()
    stale = stale_cells(data, code)
    rows = {f"model {name}" for name in NAMES}
    short = [(name, row) for name, row in stale if row in rows and name in {i.name for i in chosen(None)}]
    print(f"kernels/, cl/ and pocl/ were last changed by {last_change()} (digest {code or 'of no commit'})")
    print(
        f"{len(stale)} of {sum(len(c['rows']) for c in data.values())} cells are older, {len(short)} of the short form"
    )
    for name, row in short:
        print(f"    {name}: {row}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
