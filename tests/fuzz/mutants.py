"""Does the fuzzer find what was mended? Each mend of mends.py is taken out, and graphs are run until one shows it.

python -m tests.fuzz.mutants [--only NAME] [--seed S] [--count N] [--plain]
python -m tests.fuzz.mutants --cases

Null mode. Graphs are made of what the mend concerns above all (its `focus`); with --plain they are those that campaigns
run. A graph that shows a fault must pass with the mend in its place. --cases runs the mends' regression cases instead.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, ModuleType
from typing import Any

from .mends import MENDS, Edit, Mend
from .registry import Focus

CASES = Path(__file__).parent / "cases"
FIRST, LARGEST = 25, 400
"""Graphs of the first chunk; each next one has twice as many, up to LARGEST."""


class _Loader(SourceFileLoader):
    """Compiles a module with edits."""

    edits: Sequence[Edit] = ()

    def get_code(self, fullname: str) -> CodeType:
        source = edited(Path(self.path).read_text(encoding="utf-8"), self.edits)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the modules of opalite that have edits."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits: dict[str, list[Edit]] = {}
        for edit in edits:
            self._edits.setdefault(f"opalite.{edit.module}", []).append(edit)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._edits:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None, f"there is no module {name}"
        assert spec.origin is not None, f"{name} has no source"
        loader = _Loader(name, spec.origin)
        loader.edits = self._edits[name]
        return importlib.util.spec_from_file_location(name, spec.origin, loader=loader)


def edited(source: str, edits: Sequence[Edit]) -> str:
    """`source` with the edits made, each at the one place where its text stands."""
    for edit in edits:
        count = source.count(edit.old)
        assert count == 1, f"{edit.module} has {count} times, not once: {edit.old!r}; mends.py must follow the source"
        source = source.replace(edit.old, edit.new)
    return source


def take_out(mend: Mend) -> None:
    """Let this process import opalite without the mend. It must not be imported yet."""
    there = [e.module for e in mend.edits if f"opalite.{e.module}" in sys.modules]
    assert not there, f"imported already: {there}"
    sys.meta_path.insert(0, _Finder(mend.edits))


def operators_of(graph: Any) -> Iterator[str]:
    """The operators of a GraphProto and of the graphs inside."""
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from operators_of(inner)


def draw(folder: Path, seeds: range, focus: Focus | None = None) -> None:
    """Write the graph of each seed into the folder, with a list of their operators, SEED.json."""
    from .builder import make_case

    for seed in seeds:
        (folder / "at").write_text(str(seed))
        case = make_case(seed, focus=focus)
        if case is not None:
            case.save(folder / str(seed))
            (folder / f"{seed}.json").write_text(json.dumps(sorted(set(operators_of(case.model.graph)))))


def draw_apart(folder: Path, seeds: range, mend: Mend | None) -> None:
    """As `draw` with the mend's focus, in a process of its own: onnxruntime, which runs what is drawn, may end it."""
    while seeds:
        command = [sys.executable, "-m", "tests.fuzz.mutants", "--draw", str(folder), "--seed", str(seeds.start)]
        command += ["--count", str(len(seeds)), *(["--only", mend.name] if mend is not None else [])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return
        assert done.returncode < 0, done.stderr[-2000:]
        seeds = range(int((folder / "at").read_text()) + 1, seeds.stop)


def run(folder: Path, seeds: range, mend: Mend | None, operators: Sequence[str]) -> dict[str, Any] | None:
    """The first fault that this process finds with the mend taken out: seed, kind and text. None if there is none."""
    if mend is not None:
        take_out(mend)
    from .case import Case
    from .check import check
    from .judge import Fault

    for seed in seeds:
        path = folder / f"{seed}.json"
        if not path.exists() or (operators and not set(operators) & set(json.loads(path.read_text()))):
            continue
        (folder / "at").write_text(str(seed))
        try:
            check(Case.load(folder / str(seed)), "null", seed)
        except Fault as e:
            return {"seed": seed, "kind": e.kind, "text": e.text}
    return None


def run_case(mend: Mend, out: bool) -> dict[str, Any] | None:
    """The fault of the mend's own regression case in null mode, for any fixture. out: with the mend taken out."""
    if out:
        take_out(mend)
    from opalite.ir.precision import Precision

    from .case import Case
    from .check import check_null_as
    from .judge import Fault, Oracle
    from .null import described_devices

    case = Case.load(CASES / f"{mend.case}.py")
    oracle = Oracle(case.model)
    wanted = [(f, oracle.run(f)) for f in case.feeds]
    for name in described_devices():
        for precision in (Precision.FP32, Precision.FP16):
            try:
                check_null_as(name, precision, case, oracle, wanted)
            except Fault as e:
                return {"seed": -1, "kind": e.kind, "text": e.text}
    return None


def find(folder: Path, seeds: range, mend: Mend | None, operators: Sequence[str] = ()) -> dict[str, Any] | None:
    """As `run`, in a process of its own, whose death is a fault too."""
    command = ["--child", str(folder), "--seed", str(seeds.start), "--count", str(len(seeds))]
    command += [*(["--only", mend.name] if mend is not None else []), "--operators", ",".join(operators)]
    return _in_child(command, folder)


def find_by_case(mend: Mend, out: bool = True) -> dict[str, Any] | None:
    """As `run_case`, in a process of its own."""
    return _in_child(["--case", "out" if out else "in", "--only", mend.name], None)


def _in_child(options: Sequence[str], folder: Path | None) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "tests.fuzz.mutants", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode < 0:
        at = -1 if folder is None else int((folder / "at").read_text())
        return {"seed": at, "kind": "died", "text": f"the process ended by signal {-done.returncode}"}
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1])
    return found


def search(mend: Mend, seed: int, count: int, folder: Path, focused: bool = True) -> dict[str, Any] | None:
    """The first fault among the graphs of `count` seeds from `seed` on, with the mend taken out; None where no graph
    shows one. focused: graphs are made of what the mend concerns above all; else they are those of campaigns."""
    start, chunk = seed, FIRST
    while start < seed + count:
        seeds = range(start, min(start + chunk, seed + count))
        draw_apart(folder, seeds, mend if focused else None)
        left = seeds
        while left and (found := find(folder, left, mend, mend.operators)) is not None:
            at = found["seed"]
            same = find(folder, range(at, at + 1), None)
            if same is None:
                return {**found, "graphs": at - seed + 1}
            print(f"{mend.name}: seed {at} has a fault with the mend in its place too: {same['text'][:300]}")
            left = range(at + 1, seeds.stop)
        start, chunk = seeds.stop, min(2 * chunk, LARGEST)
    return None


def main() -> int:
    p = argparse.ArgumentParser(
        prog="python -m tests.fuzz.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--only", choices=[m.name for m in MENDS], metavar="NAME", help="one mend; --list has the names")
    p.add_argument("--list", action="store_true", help="print the mends")
    p.add_argument("--seed", type=int, default=1, help="the first seed")
    p.add_argument("--count", type=int, default=3000, help="the most graphs that are run for a mend")
    p.add_argument("--plain", action="store_true", help="the graphs of campaigns, not those that the mend concerns")
    p.add_argument("--cases", action="store_true", help="the regression cases instead of random graphs")
    p.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    p.add_argument("--draw", type=Path, help=argparse.SUPPRESS)
    p.add_argument("--case", choices=["in", "out"], help=argparse.SUPPRESS)
    p.add_argument("--operators", default="", help=argparse.SUPPRESS)
    a = p.parse_args()
    mends = [m for m in MENDS if a.only in (None, m.name)]
    if a.list:
        print("\n".join(f"{m.name:34} {m.fault}" for m in mends))
        return 0
    os.environ.setdefault("OPALITE_PLAN_CACHE", "0")
    if a.draw is not None:
        draw(a.draw, range(a.seed, a.seed + a.count), mends[0].focus if a.only else None)
        return 0
    if a.child is not None or a.case is not None:
        faulthandler.enable()
        with contextlib.redirect_stdout(sys.stderr):
            if a.case is not None:
                found = run_case(mends[0], a.case == "out")
            else:
                operators = [o for o in a.operators.split(",") if o]
                found = run(a.child, range(a.seed, a.seed + a.count), mends[0] if a.only else None, operators)
        print(json.dumps(found))
        return 0
    started, missed = time.time(), 0
    how = "by its case" if a.cases else "among the graphs of campaigns" if a.plain else "among graphs made for it"
    for mend in mends:
        with TemporaryDirectory(prefix="opalite-mutants-") as folder:
            result = find_by_case(mend) if a.cases else search(mend, a.seed, a.count, Path(folder), not a.plain)
        missed += result is None
        told = "not found" if a.cases else f"not found in {a.count} graphs"
        if result is not None:
            line = result["text"].splitlines()[0][:140]
            after = "" if a.cases else f" after {result['graphs']} graphs (seed {result['seed']})"
            told = f"found{after}: {result['kind']}: {line}"
        print(f"{mend.name}: {mend.fault}\n    {told}", flush=True)
    print(f"{len(mends) - missed} of {len(mends)} found {how}, in {time.time() - started:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
