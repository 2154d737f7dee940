"""Does the fuzzer find what was mended? Each mend of mends.py is taken out, and graphs are run until one shows it.

python -m tests.fuzz.mutants [--only NAME] [--seed S] [--count N]

Null mode, the same graphs for all. A graph that shows a fault must pass with the mend in its place.
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

FIRST = 200
"""Graphs of the first chunk; each next one has twice as many."""


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


def draw(folder: Path, seeds: range) -> None:
    """Write the graph of each seed into the folder, with a list of their operators, SEED.json."""
    from .builder import make_case

    for seed in seeds:
        case = make_case(seed)
        if case is not None:
            case.save(folder / str(seed))
            (folder / f"{seed}.json").write_text(json.dumps(sorted(set(operators_of(case.model.graph)))))


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


def find(folder: Path, seeds: range, mend: Mend | None, operators: Sequence[str] = ()) -> dict[str, Any] | None:
    """As `run`, in a process of its own, whose death is a fault too."""
    command = [sys.executable, "-m", "tests.fuzz.mutants", "--child", str(folder), "--seed", str(seeds.start)]
    command += ["--count", str(len(seeds)), *(["--only", mend.name] if mend is not None else [])]
    command += ["--operators", ",".join(operators)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode < 0:
        at = int((folder / "at").read_text())
        return {"seed": at, "kind": "died", "text": f"the process ended by signal {-done.returncode}"}
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1])
    return found


def search(mends: Sequence[Mend], seed: int, count: int, folder: Path) -> Iterator[tuple[Mend, dict[str, Any] | None]]:
    """Each mend with the first fault among the graphs of `count` seeds from `seed` on, None where no graph shows it."""
    open_, start, chunk = list(mends), seed, FIRST
    while open_ and start < seed + count:
        seeds = range(start, min(start + chunk, seed + count))
        draw(folder, seeds)
        for mend in list(open_):
            found = find(folder, seeds, mend, mend.operators)
            if found is not None:
                at = found["seed"]
                same = find(folder, range(at, at + 1), None)
                assert same is None, f"seed {at} has a fault with the mend in its place too: {same}"
                open_.remove(mend)
                yield mend, {**found, "graphs": at - seed + 1}
        start, chunk = seeds.stop, 2 * chunk
    yield from ((mend, None) for mend in open_)


def main() -> int:
    p = argparse.ArgumentParser(
        prog="python -m tests.fuzz.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--only", choices=[m.name for m in MENDS], metavar="NAME", help="one mend; --list has the names")
    p.add_argument("--list", action="store_true", help="print the mends")
    p.add_argument("--seed", type=int, default=1, help="the first seed")
    p.add_argument("--count", type=int, default=3000, help="the most graphs that are run for a mend")
    p.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    p.add_argument("--operators", default="", help=argparse.SUPPRESS)
    a = p.parse_args()
    mends = [m for m in MENDS if a.only in (None, m.name)]
    if a.list:
        print("\n".join(f"{m.name:34} {m.fault}" for m in mends))
        return 0
    os.environ.setdefault("OPALITE_PLANS", "0")
    if a.child is not None:
        faulthandler.enable()
        seeds = range(a.seed, a.seed + a.count)
        operators = [o for o in a.operators.split(",") if o]
        with contextlib.redirect_stdout(sys.stderr):
            found = run(a.child, seeds, mends[0] if a.only else None, operators)
        print(json.dumps(found))
        return 0
    started, missed = time.time(), 0
    with TemporaryDirectory(prefix="opalite-mutants-") as folder:
        for mend, result in search(mends, a.seed, a.count, Path(folder)):
            missed += result is None
            told = f"not found in {a.count} graphs"
            if result is not None:
                line = result["text"].splitlines()[0][:140]
                told = f"found after {result['graphs']} graphs (seed {result['seed']}): {result['kind']}: {line}"
            print(f"{mend.name}: {mend.fault}\n    {told}", flush=True)
    print(f"{len(mends) - missed} of {len(mends)} found, from seed {a.seed}, in {time.time() - started:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
