"""The command of the suite: see the package's docstring."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from .implementations import IMPLEMENTATIONS
from .install import Unavailable, install
from .matrix import PAGE, save, summarize
from .run import ROOT, read_results, read_size, results_file, run


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
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the processes that test
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    found = {}
    for implementation in [i for i in IMPLEMENTATIONS if not options.only or i.name in options.only]:
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


if __name__ == "__main__":
    sys.exit(main())
