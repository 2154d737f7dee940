"""One case beside onnxruntime, in null mode or on a device. What is wrong is raised as a Fault."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import opalite
from opalite import knobs
from opalite.errors import OpaliteError
from opalite.ir.precision import Precision
from opalite.plan.generic_programs import generic_programs
from opalite.run.execute.strategies.linked_kernel_choice import PAIRS
from opalite.run.execute.strategies.persistent_kernel_strategy import may_link

from .case import Case, Feeds
from .judge import Fault, Oracle, compare
from .known import REFUSALS
from .null import NullSession, described_devices

MODES = ("null", "device")
LOOP_RUNS = 22
"""Runs after which launches are linked: to a step loop on PoCL, to a kernel for the whole device on NVIDIA's GPUs."""
TRIED_RUNS = 2 * PAIRS + 2
"""Further runs after which it is known whether the latter is right."""

Run = Callable[[Mapping[str, Any]], Sequence[Any]]


def check(
    case: Case, mode: str, seed: int = 0, tell: Callable[[str], None] = lambda _: None, once: bool = False
) -> str:
    """'ok', or why nothing was judged. Raises Fault.

    seed: chooses among devices, precisions and ways to run. tell: called with "oracle" before onnxruntime runs,
    and with "check" before Opalite does. once: in null mode, planned for one device in float32.
    """
    tell("oracle")
    try:
        oracle = Oracle(case.model)
        wanted = [(f, oracle.run(f)) for f in case.feeds[:1]]
    except Exception as e:  # whatever onnxruntime raises
        return f"onnxruntime refuses: {str(e)[:200]}"
    for feeds in case.feeds[1:]:
        try:
            wanted.append((feeds, oracle.run(feeds)))
        except Exception:  # other shapes need not fit
            continue
    tell("check")
    if mode == "null" and once:
        check_null_as(null_settings(seed)[0][0], Precision.FP32, case, oracle, wanted)
    else:
        (check_null if mode == "null" else check_device)(case, oracle, wanted, seed)
    return "ok"


def guarded(where: str, run: Callable[[], Any]) -> Any:
    """The result of `run`, whose exceptions are faults: refusals, and what nobody meant to raise."""
    try:
        return run()
    except Fault:
        raise
    except OpaliteError as e:
        raise Fault("refused", f"{where}: {type(e).__name__}: {e}") from e
    except Exception as e:
        tail = traceback.extract_tb(e.__traceback__)[-1]
        at = f"{Path(tail.filename).name}:{tail.lineno}"
        raise Fault(type(e).__name__, f"{where}: {e} ({at})\n{traceback.format_exc()[-1500:]}") from e


def attempt(case: Case, oracle: Oracle, number: int, feeds: Feeds, where: str, run: Callable[[Feeds], Any]) -> Any:
    """The results of `run`; None for other shapes that it refuses with reason.

    onnxruntime does not check all that operators define (the sizes of GatherND's batches, scales of a normalisation),
    and reads what is beside a tensor. So refusing other shapes than the first ones is a fault only where onnx's
    reference evaluator takes them too. Nor is it one where rounding decides on shapes, as by the branch of an If.
    """
    try:
        return guarded(f"{where}, feed {number}", lambda: run(feeds))
    except Fault as e:
        if e.kind == "refused" and oracle.shapes_move(feeds):
            return None
        known = any(sentence in e.text for sentence in REFUSALS)
        if number == 0 or e.kind != "refused" or (not known and reference_takes(case.model, feeds)):
            raise
        return None


def reference_takes(model: Any, feeds: Feeds) -> bool:
    """Whether onnx's reference evaluator runs the model."""
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            ReferenceEvaluator(model).run(None, dict(feeds))
    except Exception:  # whatever NumPy raises
        return False
    return True


def null_settings(seed: int) -> list[tuple[str, Precision]]:
    """Two devices and precisions, so that consecutive seeds meet all."""
    names = list(described_devices())
    n = len(names)
    both = [Precision.FP32, Precision.FP16]
    if (seed // n) % 2:
        both.reverse()
    return [(names[seed % n], both[0]), (names[(seed * 7 + seed // n + 3) % n], both[1])]


def check_null(case: Case, oracle: Oracle, wanted: Sequence[tuple[Feeds, list[Any]]], seed: int) -> None:
    """Planned for two fixtures, for the second with symbols for open dimensions; rewritten graphs by the references."""
    (name, precision), (other, other_precision) = null_settings(seed)
    check_null_as(name, precision, case, oracle, wanted)
    check_null_as(other, other_precision, case, oracle, wanted, symbols=len(wanted) > 1)


def check_null_as(
    name: str,
    precision: Precision,
    case: Case,
    oracle: Oracle,
    wanted: Sequence[tuple[Feeds, list[Any]]],
    symbols: bool = False,
) -> None:
    """Planned for the fixture `name`. symbols: as NullSession has it."""
    where = f"planned for {name} in {precision.value}{' with symbols' if symbols else ''}"
    raw = case.model.SerializeToString()
    session = guarded(where, lambda: NullSession(raw, described_devices()[name], precision, symbols))
    for i, (feeds, want) in enumerate(wanted):
        got = attempt(case, oracle, i, feeds, where, session.run)
        if got is None:
            continue
        half = precision is Precision.FP16
        oracle.judge(feeds, want, [_plain(g) for g in got], f"{where}, feed {i}", half)


def check_device(case: Case, oracle: Oracle, wanted: Sequence[tuple[Feeds, list[Any]]], seed: int) -> None:
    """A session on the device: other feeds, the first one again, other memory layouts; by seed also a bundle, a kept
    plan, a step loop, or half storage.

    The first run may go through general programs, which add in another order: what is compared bit for bit is what the
    programs made for the graph answer, once the session has settled.
    """
    raw = case.model.SerializeToString()
    first, want = wanted[0]
    session = guarded("opening", lambda: opalite.InferenceSession(raw, precision="fp32"))
    general = [s.parts for s in generic_programs(session.runtime.info)]
    is_ready = knobs.get("OPALITE_TIERS") and not session.runtime.programs.missing(general)
    got = attempt(case, oracle, 0, first, "first run", lambda f: session.run(None, f))
    if got is None:
        return
    oracle.judge(first, want, got, "first run")
    if is_ready and (built := session.stats().programs_built):
        raise Fault("built", f"the first run waited for {built} programs, though all general ones were there")
    answered, copy = got, [np.array(g) for g in got]
    if not guarded("settling", lambda: session.settle(120)):
        raise Fault("settle", "programs were still being built after 120 s")
    kept = [np.array(g) for g in guarded("settled", lambda: session.run(None, first))]
    oracle.judge(first, want, kept, "settled")
    for i, (feeds, other) in enumerate(wanted[1:], 1):
        if (found := attempt(case, oracle, i, feeds, "plain", lambda f: session.run(None, f))) is not None:
            oracle.judge(feeds, other, found, f"feed {i}")
    rng = np.random.default_rng(seed)
    strange = {n: other_layout(a, rng) for n, a in first.items()}
    same(
        kept,
        guarded("another memory layout", lambda: session.run(None, strange)),
        "the same inputs in another memory layout",
    )
    same(kept, guarded("again", lambda: session.run(None, first)), "the first inputs again")
    same(copy, answered, "what the first run returned, after the others")
    more = {3: check_bundle, 7: check_kept_plan, 11: check_loop, 14: check_half}.get(seed % 16)
    if more is not None:
        more(raw, case, oracle, wanted, kept)


def check_bundle(
    raw: bytes, case: Case, oracle: Oracle, wanted: Sequence[tuple[Feeds, list[Any]]], kept: Sequence[Any]
) -> None:
    """Compiled ahead of time; models that cannot be are passed over, if for the reason that bundles have.

    A body is unrolled there if the number of trips follows from a size, so that what one trip hands to the next is
    rounded elsewhere.
    """
    first, want = wanted[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.opal"
        try:
            opalite.compile(raw, path, shapes={n: a.shape for n, a in first.items()}, precision="fp32")
        except opalite.errors.BundleError:
            return
        except Exception as e:
            raise Fault("bundle", f"compiling: {type(e).__name__}: {e}") from e
        got = guarded("a bundle", lambda: opalite.InferenceSession(path).run(None, first))
        if any(node.op_type in ("Loop", "Scan") for node in case.model.graph.node):
            oracle.judge(first, want, got, "a bundle")
        else:
            same(kept, got, "a bundle")


def check_kept_plan(
    raw: bytes, case: Case, oracle: Oracle, wanted: Sequence[tuple[Feeds, list[Any]]], kept: Sequence[Any]
) -> None:
    """Two sessions on one file with the plan cache on: the second starts from the first one's plan."""
    with tempfile.TemporaryDirectory() as folder, plans_kept():
        path = Path(folder) / "model.onnx"
        path.write_bytes(raw)
        for number in range(2):
            session = guarded("a kept plan", lambda: opalite.InferenceSession(path, precision="fp32"))
            for i, (feeds, want) in enumerate(wanted):
                where = f"session {number} of a kept plan"
                if (got := attempt(case, oracle, i, feeds, where, lambda f: session.run(None, f))) is not None:  # noqa: B023
                    oracle.judge(feeds, want, got, f"{where}, feed {i}")


class plans_kept:  # noqa: N801  (a context manager)
    """Switches the plan cache on."""

    def __enter__(self) -> None:
        import os

        self.before = os.environ.get("OPALITE_PLAN_CACHE")
        os.environ["OPALITE_PLAN_CACHE"] = "1"

    def __exit__(self, *_: object) -> None:
        import os

        if self.before is None:
            del os.environ["OPALITE_PLAN_CACHE"]
        else:
            os.environ["OPALITE_PLAN_CACHE"] = self.before


def check_loop(
    raw: bytes, case: Case, oracle: Oracle, wanted: Sequence[tuple[Feeds, list[Any]]], kept: Sequence[Any]
) -> None:
    """Run often enough to become a step loop, or launches that are linked, which then serve all feeds."""
    session = opalite.InferenceSession(raw, precision="fp32")
    for _ in range(LOOP_RUNS):
        guarded("before the loop", lambda: session.run(None, wanted[0][0]))
    guarded("linking the loop", lambda: session.settle(120))
    if may_link(session.runtime):
        for _ in range(TRIED_RUNS):
            guarded("linked", lambda: session.run(None, wanted[0][0]))
        if wrong := next((line for line in str(session.explain()).splitlines() if "linked kernel" in line), ""):
            raise Fault("linked", wrong.strip())
    for number in range(6):
        feeds, want = wanted[number % len(wanted)]
        where = f"run {number} of the step loop"
        if (
            got := attempt(case, oracle, number % len(wanted), feeds, where, lambda f: session.run(None, f))
        ) is not None:
            oracle.judge(feeds, want, got, where)


def check_half(
    raw: bytes, case: Case, oracle: Oracle, wanted: Sequence[tuple[Feeds, list[Any]]], kept: Sequence[Any]
) -> None:
    """Half storage, by the tolerance of halves."""
    session = guarded("opening in fp16", lambda: opalite.InferenceSession(raw, precision="fp16"))
    for i, (feeds, want) in enumerate(wanted):
        if (got := attempt(case, oracle, i, feeds, "fp16", lambda f: session.run(None, f))) is not None:
            oracle.judge(feeds, want, got, f"fp16, feed {i}", half=True)


def other_layout(a: Any, rng: Any) -> Any:
    """The same array with other strides, read-only or misaligned."""
    kind = int(rng.integers(5))
    if a.ndim == 0 or kind == 0:
        return a
    if kind == 1:
        return np.asfortranarray(a)
    if kind == 2:
        wide = np.zeros(tuple(2 * n for n in a.shape), a.dtype)
        view = wide[tuple(slice(0, 2 * n, 2) for n in a.shape)]
        view[...] = a
        return view
    if kind == 3:
        found = a[::-1].copy()[::-1]
        found.flags.writeable = False
        return found
    room = np.zeros(a.nbytes + 1, np.uint8)
    view = room[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def same(kept: Sequence[Any], got: Sequence[Any], what: str) -> None:
    """Fault unless the results are equal bit for bit."""
    for i, (a, b) in enumerate(zip(kept, got, strict=True)):
        b = np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            difference = compare(a, b)
            raise Fault("again", f"{what}: output {i} {difference.text if difference else 'differs in bits'}")


def _plain(value: Any) -> Any:
    return value if isinstance(value, list) else np.asarray(value)
