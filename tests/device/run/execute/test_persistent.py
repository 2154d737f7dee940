"""Runs through linked kernels: taken where they are right and faster, left where one group waited in vain.

Kernels are linked for NVIDIA's GPUs alone (tests/null/ptx tests what is linked). Doubles stand in their place here, so
that what decides about them is tested on every device: plain launches that say of themselves what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

import opalite
from opalite.cl.launch import PreparedLaunch
from opalite.cl.runtime import Runtime
from opalite.plan.program import Storage
from opalite.run.execute import executable, linked, persistent
from opalite.run.execute.linked import LinkError, Place
from opalite.run.execute.number_table import NumberTable

from ....helpers.decoders import KINDS, Decoder, feeds_of
from ....helpers.small_models import classifier, noise

X = {"x": noise(1, 3, 8, 8)}
OTHER = {"x": noise(1, 3, 8, 8, seed=5)}
REAL = linked.Linked
ENOUGH = 1 + 2 * persistent.PAIRS


class Double:
    """In the place of `Linked`: the launches themselves, without the last where it `forgets` that.

    fails: of the runs to come, whether a group waits in vain; no more than these are asked about.
    """

    forgets = False
    made: list[Double]
    refuses = ""

    def __init__(
        self,
        rt: Runtime,
        program: Any,
        prepared: Mapping[int, PreparedLaunch],
        built: Any,
        places: Any,
        table: NumberTable | None = None,
        linked: Any = None,
    ) -> None:
        if self.refuses:
            raise LinkError(self.refuses)
        self.program, self.prepared, self.table = program, prepared, table
        self.launches = {i: [launch] for i, launch in prepared.items()}
        if self.forgets:
            self.launches[max(self.launches)] = []
        self.kernels, self.steps = 1, len(prepared)
        self.fails: list[bool] = []
        self.asked = 0
        self.made.append(self)

        self._rt = rt
        buffers = [s for s in program.slots if s.image is None]
        lasting = [s for s in buffers if s.storage is Storage.RESERVED]
        kept = [places[s.id] for s in lasting]
        self._lasting = [Place(p.whole, p.first, min(p.last, p.whole.size)) for p in kept]
        self._memory = [places[s.id] for s in buffers if s.storage is not Storage.STATIC and s not in lasting]

    def read_table(self) -> None:
        """Do as kernels do that read their numbers from the table."""
        table = self.table
        if table is None:
            return
        cells = np.empty(table.buffer.size, np.uint8)
        self._rt.read(table.buffer, cells)
        for (step, arg), number in table.args.items():
            dtype = self.program.steps[step].args[arg].value.dtype
            assert number.nbytes == dtype.itemsize
            self.prepared[step].set_arg(arg, cells[number.at : number.at + number.nbytes].view(dtype)[0])
        for step, at in table.counts.items():
            launch = self.prepared[step]
            counts = cells[at : at + 12].view(np.uint32).tolist()
            launch.group = self.program.steps[step].group
            launch.grid = tuple(n * g for n, g in zip(counts, launch.group, strict=False))  # type: ignore[arg-type]

    def lasting(self) -> list[Any]:
        found = [np.empty(p.last - p.first, np.uint8) for p in self._lasting]
        for p, array in zip(self._lasting, found, strict=True):
            self._rt.read(p.whole, array, p.first)
        return found

    def put_back(self, lasting: list[Any]) -> None:
        for p, array in zip(self._lasting, lasting, strict=True):
            self._rt.write(p.whole, array, p.first)

    def spoil(self) -> None:
        for place in self._memory:
            self._rt.fill(place.whole, 0x5A, place.last - place.first, place.first)
        self._rt.finish()

    def ask(self) -> None:
        self.asked += 1

    def has_failed(self) -> bool:
        return bool(self.fails) and self.fails.pop(0)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> type[Double]:
    """Linking is possible, and what is linked counts as faster."""
    monkeypatch.setenv("OPALITE_STEP_LOOP", "0")
    monkeypatch.setenv("OPALITE_RECORD", "0")
    monkeypatch.setattr(executable, "may_link", lambda rt: True)
    monkeypatch.setattr(persistent, "WORTH_RUNS", 2)
    monkeypatch.setattr(persistent, "GAIN", 1e9)
    monkeypatch.setattr(persistent, "LONG_S", 1e9)
    own = type("OfThisTest", (Double,), {"made": []})
    monkeypatch.setattr(linked, "Linked", own)
    enqueue = persistent.Persistent._enqueue

    def read_and_enqueue(self: Any, recording: Any) -> bool:
        self.kernels.read_table()
        return enqueue(self, self.prepared.rt.record(recording.launches))

    monkeypatch.setattr(persistent.Persistent, "_enqueue", read_and_enqueue)
    return own


Open = Callable[..., opalite.InferenceSession]


@pytest.fixture
def open_session(rt: Runtime) -> Open:
    def make(model: Any = None) -> opalite.InferenceSession:
        model = classifier((1, 3, 8, 8)) if model is None else model
        raw = model if isinstance(model, bytes) else model.SerializeToString()
        return opalite.InferenceSession(raw, device=rt.info.id, precision="fp32")

    return make


def settled(session: opalite.InferenceSession, feeds: Mapping[str, Any] = X) -> Any:
    """The first results, after as many runs as it takes to decide."""
    want = session.run(None, feeds)[0]
    for _ in range(3):
        session.run(None, feeds)
    assert session.settle(60)
    for _ in range(ENOUGH):
        np.testing.assert_array_equal(session.run(None, feeds)[0], want)
    return want


def queueing(session: opalite.InferenceSession) -> str:
    return next(line for line in str(session.explain()).splitlines() if "launches:" in line)


def test_taken(open_session: Open, double: type[Double]) -> None:
    session = open_session()
    want = settled(session)
    np.testing.assert_array_equal(session.run(None, X)[0], want)
    assert session.last_trace.strategy == "persistent"
    assert double.made[0].asked > 1 + persistent.PAIRS
    assert "linked into one kernel whose groups stay for all steps" in queueing(session)
    asked = double.made[0].asked
    session.replay()
    assert double.made[0].asked == asked, "nothing is handed out"
    other = session.run(None, OTHER)[0]
    np.testing.assert_array_equal(other, open_session().run(None, OTHER)[0])


@pytest.mark.parametrize("run", [0, 1, 5, ENOUGH - 1 - persistent.PAIRS, 20])
def test_a_group_waited_in_vain(run: int, open_session: Open, double: type[Double]) -> None:
    session = open_session()
    want = session.run(None, X)[0]
    for _ in range(3):
        session.run(None, X)
    assert session.settle(60)
    double.made[0].fails = [False] * run + [True]
    # A run that failed leaves anything behind: what it gave is not what the caller gets.
    for _ in range(ENOUGH + 10):
        np.testing.assert_array_equal(session.run(None, X)[0], want)
    assert session.last_trace.strategy == "queue"
    assert "the device did not run all groups of the linked kernel at once" in queueing(session)
    assert not double.made[0].fails


def test_a_failed_run_is_done_again(open_session: Open, double: type[Double]) -> None:
    session = open_session()
    settled(session)
    kernels = double.made[0]
    want = open_session().run(None, OTHER)[0]
    kernels.fails = [True]
    np.testing.assert_array_equal(session.run(None, OTHER)[0], want)
    assert session.last_trace.strategy == "queue"
    session.replay()
    np.testing.assert_array_equal(session.run(None, OTHER)[0], want)


def test_a_failed_replay_is_told_by_the_next_run(open_session: Open, double: type[Double]) -> None:
    session = open_session()
    settled(session)
    session.run(None, X)
    double.made[0].fails = [True]
    session.replay()
    want = open_session().run(None, OTHER)[0]
    np.testing.assert_array_equal(session.run(None, OTHER)[0], want)
    assert session.last_trace.strategy == "queue"


def test_other_results(open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch) -> None:
    double.forgets = True
    session = open_session()
    for _ in range(4):
        session.run(None, X)
    assert session.settle(60)
    want = open_session().run(None, OTHER)[0]
    for _ in range(ENOUGH):  # the first one with other contents than the output's memory has
        np.testing.assert_array_equal(session.run(None, OTHER)[0], want)
    assert session.last_trace.strategy == "queue"
    assert "results of other bits" in queueing(session)


def test_slower(open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent, "GAIN", 0.0)
    session = open_session()
    settled(session)
    session.run(None, X)
    assert session.last_trace.strategy == "queue"
    assert "enqueued one by one: linked, a run takes" in queueing(session)


def test_long_launches(open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent, "LONG_S", 1e-9)
    monkeypatch.setattr(persistent, "WORTH_RUNS", 4)
    session = open_session()
    settled(session)
    assert not double.made, "seconds of compiling are not spent on them"
    assert "which linking would not shorten" in queueing(session)


def test_what_cannot_be_linked(open_session: Open, double: type[Double]) -> None:
    double.refuses = "no two launches follow each other that can be linked"
    session = open_session()
    settled(session)
    assert session.last_trace.strategy == "queue"
    assert "enqueued one by one: no two launches follow each other" in queueing(session)


def test_bound_values_go_by_plain_launches(open_session: Open, double: type[Double]) -> None:
    session = open_session()
    want = settled(session)
    session.run(None, X)
    assert session.last_trace.strategy == "persistent"
    given = opalite.OrtValue.ortvalue_from_numpy(OTHER["x"], "opencl")
    other = open_session().run(None, OTHER)[0]
    np.testing.assert_array_equal(session.run(None, {"x": given})[0], other)
    np.testing.assert_array_equal(session.run(None, X)[0], want)


@pytest.mark.parametrize("forgets", [False, True])
def test_small_outputs_that_stay_do_not_keep_launches_apart(
    rt: Runtime, double: type[Double], monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """They are copied behind the launches; a trial that fails leaves the plain run's values."""
    double.forgets = forgets
    tokens = [7 * i % 97 for i in range(ENOUGH + 10)]
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        wanted = session.state(reserve=80)
        want = [wanted.run(feeds_of("llama", np.array([[t]]), i))[0] for i, t in enumerate(tokens)]
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        state = session.state(reserve=80)
        for i, token in enumerate(tokens):
            found = state.run(feeds_of("llama", np.array([[token]]), i), ["logits"], on_device=True)[0]
            np.testing.assert_array_equal(found.numpy(), want[i])
            session.settle(60)
        assert session.last_trace.strategy == ("queue" if forgets else "persistent")


def test_what_was_faster_is_taken_where_caches_lie_elsewhere(rt: Runtime, double: type[Double]) -> None:
    """After one trial, without being timed again."""
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        state = session.state(reserve=300)

        def steps(count: int) -> list[str]:
            found = []
            for _ in range(count):
                state.run(feeds_of("llama", np.array([[5]]), len(state)))
                session.settle(60)
                found.append(session.last_trace.strategy)
            return found

        assert steps(ENOUGH + 20)[-1] == "persistent"
        made = len(double.made)
        state = state.fork()
        assert steps(5)[-1] == "persistent"
        assert len(double.made) == made + 1


def test_each_size_has_its_own(open_session: Open, double: type[Double]) -> None:
    session = open_session(classifier())
    small = settled(session)
    big = {"x": noise(2, 3, 9, 7)}
    want = settled(session, big)
    session.run(None, big)
    assert session.last_trace.strategy == "persistent"
    np.testing.assert_array_equal(session.run(None, X)[0], small)
    np.testing.assert_array_equal(session.run(None, big)[0], want)
    assert len(double.made) == 2


def test_memory_that_lasts_from_run_to_run_is_left_alone(open_session: Open, double: type[Double]) -> None:
    """A trial would write it twice, and spoil it in between."""
    net = Decoder(opset=24)
    starts = net.input("at", 7, (1,))
    x = net.input("x", 1, (1, 2, 1, 4))
    cache = net.input("cache_k", 1, (1, 2, 64, 4))
    net.output(net.op("TensorScatter", cache, x, starts, axis=2), "cache_k_out", (1, 2, 64, 4))
    net.output(net.op("Mul", x, x), "y", (1, 2, 1, 4))
    session = open_session(net.model("cache"))
    state = session.state()
    want = np.zeros((1, 2, 64, 4), np.float32)
    for i in range(ENOUGH + 10):
        want[0, :, i] = i + 1
        state.run({"x": np.full((1, 2, 1, 4), i + 1, np.float32), "at": np.array([i])})
        assert session.settle(60)
    assert not state.copies
    np.testing.assert_array_equal(state.arrays()["cache_k"], want)


def decode(session: opalite.InferenceSession, steps: int, reserve: int) -> tuple[list[Any], set[str]]:
    """Logits of some tokens one by one, and the strategies of their runs."""
    state, logits, strategies = session.state(reserve=reserve), [], set()
    for i in range(steps):
        logits.append(state.run(feeds_of("llama", np.array([[7 * i % 97]]), i))[0])
        trace = session.last_timing
        assert trace is not None
        strategies.add(trace.strategy)
        if i % 10 == 9:
            session.settle()  # what is linked beside runs
    return logits, strategies


def test_tokens_after_a_cache(rt: Runtime, double: type[Double], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths move from run to run, and caches to larger memory; linked kernels read numbers from a table."""
    model = KINDS["llama"]()
    with opalite.InferenceSession(model, device=rt.info.id, precision="fp32") as session:
        got, strategies = decode(session, 110, 80)
    assert any(d.table is not None for d in double.made), "what is linked again reads from a table"
    assert strategies >= {"queue", "persistent"}
    monkeypatch.setattr(executable, "may_link", lambda rt: False)
    with opalite.InferenceSession(model, device=rt.info.id, precision="fp32") as session:
        wanted, strategies = decode(session, 110, 80)
    assert "persistent" not in strategies
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_step_that_is_left_out_leaves_the_cache_right(rt: Runtime, double: type[Double]) -> None:
    """The trial of linked kernels, which forget the last launch, finds other results, and puts the cache back."""
    double.forgets = True
    model = KINDS["llama"]()
    with opalite.InferenceSession(model, device=rt.info.id, precision="fp32") as session:
        got, strategies = decode(session, 60, 80)
    assert double.made
    assert "persistent" not in strategies
    peer = onnxruntime.InferenceSession(model)
    past = {i.name: np.zeros((1, 2, 0, 16), np.float32) for i in peer.get_inputs() if i.name.startswith("past")}
    for i, logits in enumerate(got):
        want, *present = peer.run(None, {**feeds_of("llama", np.array([[7 * i % 97]]), i), **past})
        past = dict(zip(past, present, strict=True))
        np.testing.assert_allclose(logits, want, atol=1e-4)


def test_on_unless_turned_off(monkeypatch: pytest.MonkeyPatch, rt: Runtime) -> None:
    monkeypatch.delenv("OPALITE_PERSISTENT", raising=False)
    assert persistent.may_link(rt) == (rt.info.family == "nvidia")
    monkeypatch.setenv("OPALITE_PERSISTENT", "0")
    assert not persistent.may_link(rt)


def test_where_programs_are_no_ptx(
    open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch, rt: Runtime
) -> None:
    if rt.info.family == "nvidia":
        pytest.skip("they are PTX here")
    monkeypatch.setattr(linked, "Linked", REAL)
    session = open_session()
    settled(session)
    assert session.last_trace.strategy == "queue"
    assert "the driver does not give its PTX" in queueing(session)


def test_on_gpus_that_link(rt: Runtime, open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PERSISTENT", "1")
    if not persistent.may_link(rt):
        pytest.skip(f"kernels are not linked on {rt.info.name}")
    monkeypatch.setattr(persistent, "WORTH_RUNS", 2)
    monkeypatch.setattr(persistent, "GAIN", 1e9)
    monkeypatch.setattr(persistent, "LONG_S", 1e9)
    session = open_session()
    settled(session)
    session.run(None, X)
    assert session.last_trace.strategy == "persistent", queueing(session)
    monkeypatch.setenv("OPALITE_PERSISTENT", "0")
    plain = open_session()
    for feeds in (X, OTHER):
        np.testing.assert_array_equal(session.run(None, feeds)[0], plain.run(None, feeds)[0])
