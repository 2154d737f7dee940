"""Damaged models, bundles and caches: none may end the process, give a wrong answer or write outside its folders.

Longer than 400 lines: a command with what it does to three kinds of files.

    python -m tests.fuzz.corrupt --what onnx --seconds 600 --seed 1 [--count N] [--out FOLDER]
    python -m tests.fuzz.corrupt --what opal …
    python -m tests.fuzz.corrupt --what tflite …
    python -m tests.fuzz.corrupt --what paddle …
    python -m tests.fuzz.corrupt --what cache … [--jobs N]

Each seed damages one file, or several of a cache, and tries it in a process forked from one that has imported
everything: for each cache a new one, for files one after another, until one dies or hangs. A damaged bundle or cache
must be noticed: any answer but the right one is a fault. A damaged model is another model: its answer is compared with
onnxruntime's, but not with LiteRT's, which may die of it. Faults are kept in the folder of results, with
`results.jsonl`; the exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from opalite.importer.paddle.read.messages import message

from ..helpers.forged_bundles import mutate
from ..helpers.paddle_files import combined
from .damage import damage_bytes, damage_files, damage_proto
from .jobs import THREADS, add_arguments, run_jobs, shares

HANG_S = 300.0
MEMORY = 12 << 30  # bytes of addresses that a child may use
SLOW_S = 200.0
FAULTS = ("died", "hang", "exception", "wrong", "differs", "outside", "slow")
Feeds = Mapping[str, Any]


@dataclass
class Subject:
    """A model whose right answer is known: its bytes, feeds and outputs, and its bundle.

    ending: of its file. beside: contents of a file of the same name with another ending, such as parameters.
    """

    name: str
    model: bytes
    feeds: Feeds
    want: list[Any] = field(default_factory=list)
    bundle: bytes = b""
    files: set[str] = field(default_factory=set)  # of the cache, which its runs made
    ending: str = "onnx"
    beside: tuple[str, bytes] | None = None

    def write(self, path: Path, raw: bytes, beside: bytes | None = None) -> Path:
        """Write the model, or other contents in its place."""
        path = path.with_suffix(f".{self.ending}")
        path.write_bytes(raw)
        if self.beside is not None:
            path.with_suffix(f".{self.beside[0]}").write_bytes(self.beside[1] if beside is None else beside)
        return path


@dataclass(frozen=True)
class Finding:
    """What came of one seed."""

    seed: int
    subject: str
    what: str  # was done
    kind: str  # one of FAULTS, or what is right
    text: str = ""
    seconds: float = 0.0


def make_lite_subjects(count: int) -> list[Subject]:
    """Files of TensorFlow Lite: random graphs in floats and in integers."""
    from .tflite.graph import make_case

    found = []
    for seed in range(40):
        case = make_case(seed, 4)
        if case is not None and len(case.graph.operators) > 2 and len(found) < count:
            found.append(Subject(f"graph {seed}: {case.operators}", case.model, case.feeds, ending="tflite"))
    return found


def make_paddle_subjects() -> list[Subject]:
    """Programs of Paddle in both formats: layers with parameters, detection, a loop and a branch."""
    from .paddle_programs import PROGRAMS

    found = []
    for name, make in PROGRAMS.items():
        program = make()
        beside = None
        if program.params:
            beside = ("pdiparams", combined(program.params))
        kinds = {"json": program.pir(), "pdmodel": program.program_desc(program.blocks)}
        for ending, raw in kinds.items():
            if ending == "pdmodel" or not program.blocks:
                found.append(Subject(f"{name}.{ending}", raw, program.inputs, ending=ending, beside=beside))
    return found


def damage_program(raw: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A program that says something else."""
    if raw[:1] != b"{":
        return damage_proto(raw, rng, message("Program"))
    program = json.loads(raw)
    what = ", ".join(mutate(program["program"], rng) for _ in range(rng.choice((1, 1, 2))))
    return json.dumps(program).encode(), what


def make_subjects() -> list[Subject]:
    """Models of several kinds, each compiled in a second or two."""
    from ..helpers import small_models as small

    rng = np.random.default_rng(7)

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    made = {
        "classifier": (small.classifier(), {"x": draw(1, 3, 8, 8)}),
        "transformer": (small.transformer_block(4, 16, 2), {"x": draw(1, 4, 16)}),
        "tagger": (small.tagger(), None),
        "dense": (small.dense(), None),
        "adder": (small.adder(), {"x": draw(2, 3), "z": draw(2, 3)}),
        "determinant": (small.determinant(), {"x": draw(3, 3)}),
    }
    return [
        Subject(name, model.SerializeToString(), feeds or _feeds(model, rng)) for name, (model, feeds) in made.items()
    ]


def _feeds(model: Any, rng: Any) -> Feeds:
    constants = {t.name for t in model.graph.initializer}
    found = {}
    for v in model.graph.input:
        if v.name not in constants:
            shape = [d.dim_value or 1 for d in v.type.tensor_type.shape.dim]
            found[v.name] = rng.standard_normal(shape, np.float32)
    return found


class Campaign:
    """Seeds of one kind of file, in `folder`, where faults are kept."""

    def __init__(self, what: str, folder: Path, *, names: Sequence[str] = (), tunes: bool = False) -> None:
        """what: 'onnx', 'opal', 'tflite', 'paddle' or 'cache'. names: of ONNX models; without them all, and more
        .tflite files. tunes: whether the cache holds tuning."""
        self.what = what
        self.folder = folder
        self._tunes = tunes
        self._batch = 1 if what == "cache" else 100  # of a cache a new process is to be asked
        self._box = folder / "box"  # all that a child may write to
        self._template = folder / "template"
        self.found: list[Finding] = []
        for name in ("home/.cache", "tmp", "here", "files", "cache"):
            (self._box / name).mkdir(parents=True, exist_ok=True)
        self._template.mkdir(exist_ok=True)
        if what == "paddle":
            self.subjects = make_paddle_subjects()
        elif what == "tflite":
            self.subjects = make_lite_subjects(2 if names else 6)
        else:
            self.subjects = [s for s in make_subjects() if not names or s.name in names]

    def prepare(self) -> None:
        """Find the right answers, make the bundles, and fill the cache, as processes that found programs there do."""
        for subject in self.subjects:
            before = _files(self._template)
            for _ in range(2 if self.what == "cache" else 1):  # a process that finds programs makes files of PoCL's
                self._prepare(subject)
            subject.files = _files(self._template) - before
        shutil.copytree(self._template, self._box / "cache", symlinks=True, dirs_exist_ok=True)

    def _prepare(self, subject: Subject) -> None:
        answer, modules = self.folder / "answer.npz", self.folder / "modules"
        status = self._in_child(lambda: self._learn(subject, answer, modules), self._template)
        assert status == "", f"{subject.name} cannot be prepared: {status}"
        for name in modules.read_text().split():  # so that no child has to import them
            importlib.import_module(name)
        with np.load(answer) as found:
            subject.want = [found[f"arr_{n}"] for n in range(len(found.files))]
        bundle = self.folder / "subject.opal"
        subject.bundle = bundle.read_bytes() if bundle.exists() else b""
        bundle.unlink(missing_ok=True)

    def _learn(self, subject: Subject, answer: Path, modules: Path) -> None:
        """A child's part: the right answer, what else the campaign needs, and which modules that took."""
        import opalite

        model = subject.model if subject.beside is None else subject.write(self.folder / "subject", subject.model)
        session = opalite.InferenceSession(model, precision="fp32")
        np.savez(answer, *session.run(None, subject.feeds))
        if self.what == "opal":
            shapes = {name: np.shape(value) for name, value in subject.feeds.items()}
            opalite.compile(subject.model, self.folder / "subject.opal", shapes=shapes, precision="fp32")
        if self.what == "cache" and self._tunes and subject.name in ("classifier", "dense"):
            opalite.InferenceSession(subject.model, precision="fp32").tune(subject.feeds, "fast")
            opalite.InferenceSession(subject.model, precision="fp32").run(None, subject.feeds)
        modules.write_text(" ".join(name for name in sys.modules if name.partition(".")[0] in ("opalite", "pyopencl")))

    def run(self, seed: int, count: int, seconds: float = 1e9) -> None:
        """Seeds from `seed` on, until they are run or the time is up."""
        until, last = time.monotonic() + seconds, seed + count
        results = self.folder / "results.jsonl"
        while seed < last and time.monotonic() < until:
            batch = range(seed, min(last, seed + self._batch))
            said = results.stat().st_size if results.exists() else 0
            status = self._in_child(lambda b=batch: self._work(b, until), self._box / "cache", results)
            with results.open("rb") as f:
                f.seek(said)
                found = [Finding(**json.loads(line)) for line in f]
            if status:  # the seed that has no result
                seed += len(found)
                subject, what, path = self._make(seed)
                found.append(Finding(seed, subject.name, what, status.split(" ", 1)[0], status))
                self._keep(seed, path)
                with results.open("a") as f:
                    f.write(json.dumps(found[-1].__dict__) + "\n")
                seed += 1
            else:
                seed += len(found)
                if not found:
                    break
            self.found += found

    def _work(self, seeds: range, until: float) -> None:
        """A child's part: seeds one after another."""
        with (self.folder / "results.jsonl").open("a") as results:
            for seed in seeds:
                if time.monotonic() > until:
                    break
                subject, what, path = self._make(seed)
                before = self._listing()
                started = time.monotonic()
                kind, text = self._judge(subject, path)
                spent = round(time.monotonic() - started, 2)
                if outside := sorted(self._listing() ^ before):
                    kind, text = "outside", ", ".join(outside[:9])
                    self._clean(before)
                if spent > SLOW_S and kind not in FAULTS:
                    kind = "slow"
                if kind in FAULTS:
                    self._keep(seed, path)
                results.write(json.dumps(Finding(seed, subject.name, what, kind, text, spent).__dict__) + "\n")
                results.flush()

    def _make(self, seed: int) -> tuple[Subject, str, Path]:
        """(whose file is damaged, how, where it is) of a seed."""
        rng = random.Random(f"{self.what} {seed}")
        subject = rng.choice([s for s in self.subjects if s.bundle or self.what != "opal"])
        other = rng.choice(self.subjects)
        path = self._box / "files" / "case.opal"
        raw, what, beside = subject.model, "", None
        if self.what == "cache":
            shutil.rmtree(self._box / "cache", ignore_errors=True)
            shutil.copytree(self._template, self._box / "cache", symlinks=True)
            what = damage_files(self._box / "cache", rng, subject.files if rng.random() < 0.25 else ())
        elif self.what == "opal":
            raw, what = damage_bytes(subject.bundle, other.bundle, rng)
        elif self.what == "onnx" and rng.random() < 0.5:
            raw, what = damage_proto(subject.model, rng)
        elif self.what == "paddle" and subject.beside is not None and rng.random() < 0.2:
            beside, what = damage_bytes(subject.beside[1], subject.model, rng)
        elif self.what == "paddle" and rng.random() < 0.6:
            raw, what = damage_program(subject.model, rng)
        else:
            raw, what = damage_bytes(subject.model, other.model, rng)
        if self.what == "opal":
            path.write_bytes(raw)
        else:
            path = subject.write(path, raw, beside)
        return subject, what, path

    def _judge(self, subject: Subject, path: Path) -> tuple[str, str]:
        """(kind, text) of a damaged file."""
        import opalite

        try:
            session = opalite.InferenceSession(path, precision="fp32")
            got = session.run(None, subject.feeds)
        except opalite.OpaliteError as e:
            said = str(e)
            if self.what == "cache":
                return "wrong", f"a damaged cache refuses a good model: {said}"
            return "refused", f"{type(e).__name__}: {said[:300]}"
        except Exception:
            return "exception", traceback.format_exc()[-1500:]
        if len(got) == len(subject.want) and all(map(_equal, got, subject.want)):
            return "right", ""
        if self.what in ("tflite", "paddle"):
            return "another model", ""
        if self.what != "onnx":
            return "wrong", _differences(got, subject.want)
        return _as_others(path, subject.feeds, got)

    def _in_child(self, work: Callable[[], Any], cache: Path, progress: Path | None = None) -> str:
        """Do `work` in a forked process; "" or how it ended. It hangs if the file `progress` does not change."""
        errors = self.folder / "stderr"
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self._enter(cache, errors)
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        changed, seen = time.monotonic(), None
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            now = progress.stat().st_mtime_ns if progress is not None and progress.exists() else None
            if now != seen:
                changed, seen = time.monotonic(), now
            if time.monotonic() > changed + HANG_S:
                os.kill(pid, signal.SIGABRT)  # which has it say where it is
                time.sleep(1)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return f"hang for {HANG_S:.0f} s: {errors.read_text(errors='replace')[-3000:]}"
            time.sleep(0.005)
        if status:
            how = f"signal {status & 127}" if status & 127 else f"exit status {status >> 8}"
            return f"died by {how}: {errors.read_text(errors='replace')[-1500:]}"
        return ""

    def _enter(self, cache: Path, errors: Path) -> None:
        """Give the process a world of its own."""
        import resource

        descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.chdir(self._box / "here")
        threads = {THREADS: os.environ[THREADS]} if THREADS in os.environ else {}
        for name in [n for n in os.environ if n.startswith(("OPALITE_", "POCL_", "XDG_"))]:
            del os.environ[name]
        os.environ |= {
            "HOME": str(self._box / "home"),
            "TMPDIR": str(self._box / "tmp"),
            "OPALITE_CACHE_DIR": str(cache),
            "OPALITE_PLAN_CACHE": "1",
            "OPALITE_BUILD_THREADS": "1",
            "POCL_AFFINITY": "0",
            **threads,
        }
        tempfile.tempdir = None
        faulthandler.enable(descriptor)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def _listing(self) -> set[str]:
        """Every path that children have no business with; pyopencl has a cache in the home folder."""
        found = (p for name in ("home", "here", "files") for p in (self._box / name).rglob("*"))
        return {str(p.relative_to(self._box)) for p in found if "pytools" not in p.parts}

    def _clean(self, before: set[str]) -> None:
        for path in self._listing() - before:
            where = self._box / path
            shutil.rmtree(where, ignore_errors=True) if where.is_dir() else where.unlink(missing_ok=True)

    def _keep(self, seed: int, path: Path) -> None:
        cache = self._box / "cache"
        kept = self.folder / f"fault-{self.what}-{seed}"
        if self.what == "cache":
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(cache, kept, symlinks=True)
        else:
            shutil.copy(path, kept.with_suffix(path.suffix))

    @property
    def faults(self) -> list[Finding]:
        """Seeds that must not have ended as they did."""
        return [f for f in self.found if f.kind in FAULTS]


def _files(folder: Path) -> set[str]:
    """Files below `folder`, relative to it."""
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def _as_others(path: Path, feeds: Feeds, got: list[Any]) -> tuple[str, str]:
    """How an answer to a damaged model compares with onnxruntime's, and with onnx's reference where they differ."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    import onnx

    levels = onnxruntime.GraphOptimizationLevel
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):  # they differ where a weight is no number
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = level
        try:
            theirs = onnxruntime.InferenceSession(path.read_bytes(), options).run(None, feeds)
        except Exception as e:
            return "onnxruntime refuses", str(e)[:300]
        if len(got) == len(theirs) and all(map(_near, got, theirs)):
            return "as onnxruntime", ""
    try:
        others = ReferenceEvaluator(onnx.load(path)).run(None, feeds)
        if len(got) == len(others) and all(map(_near, got, others)):
            return "as the reference", _differences(got, theirs)
    except Exception:
        pass
    if not all(map(_is_tame, (*got, *theirs))):
        return "not finite", _differences(got, theirs)  # how far what is no number reaches is each engine's own
    return "differs", _differences(got, theirs)


def _equal(a: Any, b: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _near(a: Any, b: Any) -> bool:
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind != "f":
        return bool(np.array_equal(x, y))
    with np.errstate(all="ignore"):
        finite = y[np.isfinite(y)]
        scale = float(np.abs(finite).max()) if finite.size else 1.0
        return bool(np.allclose(x, y, rtol=2e-3, atol=1e-4 * max(scale, 1e-3), equal_nan=True))


def _is_tame(a: Any) -> bool:
    values = np.asarray(a)
    return values.dtype.kind != "f" or bool(np.all(np.abs(values.astype(np.float64)) < 1e30))


def _differences(got: list[Any], want: list[Any]) -> str:
    return "; ".join(
        f"{np.asarray(a).dtype}{np.shape(a)} {np.ravel(a)[:4]} for {np.asarray(b).dtype}{np.shape(b)} {np.ravel(b)[:4]}"
        for a, b in zip(got, want, strict=False)
        if not _near(a, b)
    )[:600]


def preload() -> None:
    """Import what children need, and start no OpenCL: then a fork is as good as a new process, and 50 times as fast.

    `Campaign.prepare` adds the modules that sessions import.
    """
    import onnx.reference  # noqa: F401
    import onnxruntime  # noqa: F401


def main() -> int:
    p = argparse.ArgumentParser(
        prog="python -m tests.fuzz.corrupt", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument("--what", choices=["onnx", "opal", "tflite", "paddle", "cache"], required=True)
    p.add_argument("--seed", type=int, default=0, help="the first seed")
    p.add_argument("--count", type=int, help="how many seeds; without it, as many as --seconds allows")
    p.add_argument("--seconds", type=float, help="when to stop; 60 without --count")
    p.add_argument("--out", type=Path, help="folder of results; a new one in the system's by default")
    p.add_argument("--tune", action="store_true", help="let the cache hold results of tuning too")
    add_arguments(p)
    a = p.parse_args()
    folder = (a.out or Path(tempfile.mkdtemp(prefix="opalite-corrupt-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    seconds = a.seconds if a.seconds is not None else 1e9 if a.count is not None else 60.0
    started = time.monotonic()
    if a.jobs > 1:
        if a.count is None:
            raise SystemExit("--jobs needs --count, which it shares out")
        options = ["--what", a.what, "--seconds", str(seconds), *(["--tune"] if a.tune else [])]
        records = run_jobs("tests.fuzz.corrupt", options, shares(a.seed, a.count, a.jobs), folder, a.threads)
        found = [Finding(**r) for r in records]
    else:
        preload()
        campaign = Campaign(a.what, folder, tunes=a.tune)
        campaign.prepare()
        campaign.run(a.seed, a.count if a.count is not None else 10**9, seconds)
        found = campaign.found
    spent = time.monotonic() - started
    print(f"{len(found)} seeds from {a.seed} on in {spent:.0f} s: {dict(Counter(f.kind for f in found))}; {folder}")
    faults = [f for f in found if f.kind in FAULTS]
    for f in faults:
        print(f"  seed {f.seed}, {f.subject}, {f.what}: {f.kind}: {' '.join(f.text.split())[-300:]}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
