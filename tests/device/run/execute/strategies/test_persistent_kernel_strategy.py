"""Linked kernels are chosen if they are correct and faster, and given up if a group waited in vain.

Kernels are linked for NVIDIA's GPUs alone (tests/null/ptx tests the linker). Test doubles replace them here, so that
the selection is tested on every device: single launches that report the requested outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.run.execute import executable
from opalite.run.execute.strategies import (
    link_stretches,
    linked_kernel_choice,
    linked_ptx_kernels,
    persistent_kernel_strategy,
)

from .....helpers.decoders import KINDS, Decoder, feeds_of
from .....helpers.linked_double import Double, double
from .....helpers.small_models import classifier, noise

X = {"x": noise(1, 3, 8, 8)}
OTHER = {"x": noise(1, 3, 8, 8, seed=5)}
__all__ = ["double"]
REAL = linked_ptx_kernels.LinkedKernels, link_stretches.StretchLinker
ENOUGH = 1 + 2 * linked_kernel_choice.PAIRS


Open = Callable[..., opalite.InferenceSession]


@pytest.fixture
def open_session(rt: Runtime) -> Open:
    def make(model: Any = None) -> opalite.InferenceSession:
        model = classifier((1, 3, 8, 8)) if model is None else model
        raw = model if isinstance(model, bytes) else model.SerializeToString()
        return opalite.InferenceSession(raw, device=rt.info.id, precision="fp32")

    return make


def settled(session: opalite.InferenceSession, feeds: Mapping[str, Any] = X) -> Any:
    """The first results, after as many runs as the decision takes."""
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
    assert double.made[0].asked > 1 + linked_kernel_choice.PAIRS
    assert "linked into one kernel whose groups stay for all steps" in queueing(session)
    asked = double.made[0].asked
    session.replay()
    assert double.made[0].asked == asked, "nothing is handed out"
    other = session.run(None, OTHER)[0]
    np.testing.assert_array_equal(other, open_session().run(None, OTHER)[0])


@pytest.mark.parametrize("run", [0, 1, 5, ENOUGH - 1 - linked_kernel_choice.PAIRS, 20])
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
    assert "gave other bits than single launches" in queueing(session)


def test_slower(open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_kernel_choice, "GAIN", 0.0)
    session = open_session()
    settled(session)
    session.run(None, X)
    assert session.last_trace.strategy == "queue"
    assert "enqueued one by one: linked, a run takes" in queueing(session)


def test_long_launches(open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_kernel_choice, "LONG_S", 1e-9)
    monkeypatch.setattr(linked_kernel_choice, "WORTH_RUNS", 4)
    session = open_session()
    settled(session)
    assert not double.made, "seconds of compiling are not spent on them"
    assert "which linking would not shorten" in queueing(session)


def test_what_cannot_be_linked(open_session: Open, double: type[Double]) -> None:
    double.Linker.refuses = "no two launches follow each other that can be linked"
    session = open_session()
    settled(session)
    assert session.last_trace.strategy == "queue"
    assert "enqueued one by one: no two launches follow each other" in queueing(session)


def test_bound_values(open_session: Open, double: type[Double]) -> None:
    session = open_session()
    want = settled(session)
    given = opalite.OrtValue.ortvalue_from_numpy(OTHER["x"], "opencl")
    other = open_session().run(None, OTHER)[0]
    np.testing.assert_array_equal(session.run(None, {"x": given})[0], other)
    assert session.last_trace.strategy == "persistent"
    np.testing.assert_array_equal(session.run(None, X)[0], want)
    assert session.last_trace.strategy == "persistent"
    assert [len(bound) for bound in double.made[0].bindings] == [0, 1, 0]


def test_bound_values_are_timed_too(open_session: Open, double: type[Double]) -> None:
    session = open_session()
    want = open_session().run(None, X)[0]
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(X["x"], session.device))
    binding.bind_output(session.get_outputs()[0].name, "opencl")
    for _ in range(ENOUGH + 10):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)
        session.settle(60)
    assert session.last_trace.strategy == "persistent"


def test_values_that_linked_kernels_cannot_access(open_session: Open, double: type[Double]) -> None:
    """Launches one by one serve these runs."""
    session = open_session()
    settled(session)
    double.made[0].bind = lambda bound: not bound  # type: ignore[method-assign, assignment]
    other = open_session().run(None, OTHER)[0]
    given = opalite.OrtValue.ortvalue_from_numpy(OTHER["x"], "opencl")
    np.testing.assert_array_equal(session.run(None, {"x": given})[0], other)
    assert session.last_trace.strategy == "queue"
    np.testing.assert_array_equal(session.run(None, OTHER)[0], other)
    assert session.last_trace.strategy == "persistent"


@pytest.mark.parametrize("forgets", [False, True])
def test_outputs_on_the_device_do_not_prevent_linking(
    rt: Runtime, double: type[Double], monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """Outputs are bound. A failed trial keeps the single launches' values."""
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


def test_kernels_serve_other_state_buffers(rt: Runtime, double: type[Double], monkeypatch: pytest.MonkeyPatch) -> None:
    """Linked kernels get other state buffers without another trial."""
    tried: list[Any] = []
    trial = linked_kernel_choice._Trial.run
    monkeypatch.setattr(linked_kernel_choice._Trial, "run", lambda self, *a: (tried.append(self), trial(self, *a))[1])
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        state = session.state(reserve=300)

        def step() -> tuple[Any, str]:
            found = state.run(feeds_of("llama", np.array([[5]]), len(state)))
            session.settle(60)
            return found[0], session.last_trace.strategy

        for _ in range(ENOUGH + 20):
            _, strategy = step()
        assert strategy == "persistent"
        made = len(double.made)
        other = state.fork()
        state, first = other, state
        found = [step() for _ in range(5)]
        state = first
        for logits, strategy in found:
            again, same = step()
            np.testing.assert_array_equal(again, logits)
            assert strategy == same == "persistent"
        assert len(double.made) == made
        assert len(tried) == 1


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


def test_a_trial_leaves_state_as_it_was(open_session: Open, double: type[Double]) -> None:
    """A trial runs twice and poisons outputs; state must not change."""
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


@pytest.mark.parametrize("leaves", [False, True])
def test_tokens_after_a_cache(rt: Runtime, double: type[Double], monkeypatch: pytest.MonkeyPatch, leaves: bool) -> None:
    """Lengths change in every run, and caches get larger buffers; linked kernels read a parameter buffer.

    Launches that are not linked get their parameters as arguments.
    """
    double.leaves = leaves
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
    """Linked kernels without the last launch give other results; their trial restores the cache."""
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
    monkeypatch.delenv("OPALITE_STRATEGY", raising=False)
    assert persistent_kernel_strategy.may_link(rt) == (rt.info.family == "nvidia")
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    assert not persistent_kernel_strategy.may_link(rt)


def test_where_programs_are_no_ptx(
    open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch, rt: Runtime
) -> None:
    if rt.info.family == "nvidia":
        pytest.skip("they are PTX here")
    monkeypatch.setattr(linked_ptx_kernels, "LinkedKernels", REAL[0])
    monkeypatch.setattr(link_stretches, "StretchLinker", REAL[1])
    session = open_session()
    settled(session)
    assert session.last_trace.strategy == "queue"
    assert "the driver does not give its PTX" in queueing(session)


def test_on_gpus_that_link(rt: Runtime, open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "persistent")
    if not persistent_kernel_strategy.may_link(rt):
        pytest.skip(f"kernels are not linked on {rt.info.name}")
    monkeypatch.setattr(linked_kernel_choice, "WORTH_RUNS", 2)
    monkeypatch.setattr(linked_kernel_choice, "GAIN", 1e9)
    monkeypatch.setattr(linked_kernel_choice, "LONG_S", 1e9)
    session = open_session()
    settled(session)
    session.run(None, X)
    assert session.last_trace.strategy == "persistent", queueing(session)
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    plain = open_session()
    for feeds in (X, OTHER):
        np.testing.assert_array_equal(session.run(None, feeds)[0], plain.run(None, feeds)[0])
