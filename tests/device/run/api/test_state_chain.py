"""state.chain: runs of which each takes outputs of the one before it, one by one or ahead of the host.

Runs go ahead on devices with memory of their own alone. Here others are made to be such, so that all of it is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.memory import host_memory
from opalite.cl.runtime import Runtime
from opalite.errors import InputError
from opalite.run.execute.strategies import inflight_runs
from opalite.run.execute.strategies.launch_parameter_buffer import MAX_IN_FLIGHT

from ....helpers.decoders import KINDS, feeds_of
from ....helpers.linked_double import Double, double

__all__ = ["double"]
TOKEN = "logits/argmax"
LINKS = {"input_ids": TOKEN}


@pytest.fixture(params=[False, True], ids=["written", "carried"])
def apart(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A device whose memory the host does not reach, and values are written to, or carried by launches."""
    monkeypatch.setattr(Runtime, "supports_inline_upload", request.param)
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    monkeypatch.setattr(host_memory, "shares_memory", lambda *_: False)
    monkeypatch.setattr(Runtime, "shares_memory", property(lambda _: False))


Open = Callable[..., opalite.InferenceSession]


@pytest.fixture
def open_session(rt: Runtime) -> Open:
    def make(kind: str = "llama", **options: Any) -> opalite.InferenceSession:
        told = opalite.SessionOptions()
        told.add_session_config_entry("opalite.argmax", "logits")
        return opalite.InferenceSession(KINDS[kind](), told, device=rt.info.id, **{"precision": "fp32", **options})

    return make


def begun(session: opalite.InferenceSession, kind: str = "llama", **options: Any) -> tuple[opalite.State, Any]:
    """A state that has read a prompt, and the token after it."""
    state = session.state(**options)
    return state, state.run(feeds_of(kind, [[5, 6, 7, 8]], 0), [TOKEN])[0]


def steps(state: opalite.State, token: Any, count: int, kind: str = "llama") -> list[dict[str, Any]]:
    """Feeds of so many runs."""
    feeds = [feeds_of(kind, token, len(state) + i) for i in range(count)]
    for later in feeds[1:]:
        del later["input_ids"]
    return feeds


def one_by_one(state: opalite.State, token: Any, count: int, kind: str = "llama") -> list[Any]:
    """Logits of runs whose tokens cross the host."""
    found = []
    for _ in range(count):
        logits, token = state.run(feeds_of(kind, token, len(state)), ["logits", TOKEN])
        assert int(token[0, 0]) == int(logits[0, -1].argmax())
        found.append(logits)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_as_one_by_one(open_session: Open, kind: str) -> None:
    with open_session(kind) as session:
        state, token = begun(session, kind)
        other, _ = begun(session, kind)
        wanted = one_by_one(other, token, 9, kind)
        found = state.chain(steps(state, token, 9, kind), LINKS, ["logits"])
        np.testing.assert_array_equal([f[0] for f in found], wanted)
        assert len(state) == len(other)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("kind", ["llama", "merged", "gpt2"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_ahead_of_the_host(open_session: Open, kind: str, precision: str) -> None:
    """Through several reserves of memory."""
    with open_session(kind, precision=precision) as session:
        state, token = begun(session, kind, reserve=24)
        other, _ = begun(session, kind, reserve=24)
        went = []
        for _ in range(6):
            wanted = one_by_one(other, token, 11, kind)
            found = state.chain(steps(state, token, 11, kind), LINKS, ["logits", TOKEN])
            went.append(state.ran_multi_step)
            np.testing.assert_array_equal([f[0] for f in found], wanted)
            token = found[-1][1]
        assert any(went)
        assert len(state) == len(other) == 70
        for name, cache in state.arrays().items():
            np.testing.assert_array_equal(cache, other.arrays()[name])


@pytest.mark.usefixtures("apart")
def test_nothing_waits_between(open_session: Open) -> None:
    with open_session() as session:
        state, token = begun(session)
        token = state.chain(steps(state, token, 6), LINKS, [TOKEN])[-1][0]
        runs = session.stats().runs
        found = state.chain(steps(state, token, MAX_IN_FLIGHT), LINKS, [TOKEN])
        trace = session.last_trace
        assert (trace.waits, trace.runs, trace.strategy) == (1, MAX_IN_FLIGHT, "queue in flight")
        assert trace.bytes_down == MAX_IN_FLIGHT * 8, "the tokens alone"
        assert session.stats().runs == runs + MAX_IN_FLIGHT
        assert len({f[0].__array_interface__["data"][0] for f in found}) == MAX_IN_FLIGHT, "arrays of their own"
        state.chain(steps(state, found[-1][0], MAX_IN_FLIGHT + 3), LINKS, [TOKEN])
        assert session.last_trace.runs == 3


@pytest.mark.usefixtures("apart")
def test_after_going_back(open_session: Open) -> None:
    """Tokens that were written ahead and are not wanted are cut off."""
    with open_session() as session:
        state, token = begun(session)
        state.chain(steps(state, token, 12), LINKS, [TOKEN])
        state.truncate(6)
        other, _ = begun(session)
        first = one_by_one(other, token, 2)
        again = first[-1][0, -1].argmax().reshape(1, 1)
        found = state.chain(steps(state, again, 5), LINKS, ["logits"])
        assert state.ran_multi_step
        np.testing.assert_array_equal([f[0] for f in found], one_by_one(other, again, 5))


@pytest.mark.usefixtures("apart")
def test_alternating_states(open_session: Open) -> None:
    """Each chain follows a run on the caches of another state."""
    with open_session() as session:
        (a, token), (b, _), (c, _) = (begun(session) for _ in range(3))
        tokens = [token, token]
        wanted = one_by_one(c, token, 30)
        for begin in range(0, 30, 10):
            for i, state in enumerate((a, b)):
                found = state.chain(steps(state, tokens[i], 10), LINKS, ["logits", TOKEN])
                np.testing.assert_array_equal([f[0] for f in found], wanted[begin : begin + 10])
                tokens[i] = found[-1][1]


@pytest.mark.usefixtures("apart")
def test_through_linked_kernels(open_session: Open, double: type[Double]) -> None:
    with open_session() as session:
        state, token = begun(session, reserve=300)
        other, _ = begun(session, reserve=300)
        wanted = one_by_one(other, token, 120)
        found: list[Any] = []
        strategies = []
        for _ in range(15):
            found += state.chain(steps(state, token, 8), LINKS, ["logits", TOKEN])
            session.settle(60)
            token = found[-1][1]
            strategies.append(session.last_trace.strategy)
        assert strategies[-1] == "persistent in flight"
        np.testing.assert_array_equal([f[0] for f in found], wanted)


@pytest.mark.usefixtures("apart")
def test_one_group_waits_in_vain(open_session: Open, double: type[Double]) -> None:
    """What ran ahead is run again, launch by launch."""
    with open_session() as session:
        state, token = begun(session, reserve=300)
        for _ in range(12):
            token = state.chain(steps(state, token, 8), LINKS, [TOKEN])[-1][0]
            session.settle(60)
        assert session.last_trace.strategy == "persistent in flight"
        other = state.fork()
        other_found = one_by_one(other, token, 8)
        for _ in range(12):  # the fork's caches lie elsewhere
            kept = state.fork()
            kept.chain(steps(kept, token, 8), LINKS, [TOKEN])
        linked = double.made[-1]
        linked.fails = [True]
        found = state.chain(steps(state, token, 8), LINKS, ["logits"])
        np.testing.assert_array_equal([f[0] for f in found], other_found)


@pytest.mark.usefixtures("apart")
def test_values_that_halves_do_not_hold(open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that went ahead and gave infinities are run again, one by one."""
    real = inflight_runs.InflightRuns.finish

    def finish(self: Any) -> Any:
        found = real(self)
        assert found is not None
        for outputs in found[0][3:]:
            for i, a in enumerate(outputs):
                if isinstance(a, np.ndarray) and a.dtype.kind == "f":
                    outputs[i] = np.full_like(a, np.inf)
        return found

    with open_session(precision="fp16") as session:
        state, token = begun(session)
        token = state.chain(steps(state, token, 6), LINKS, [TOKEN])[-1][0]
        other = state.fork()
        monkeypatch.setattr(inflight_runs.InflightRuns, "finish", finish)
        found = state.chain(steps(state, token, 6), LINKS, ["logits"])
        np.testing.assert_array_equal([f[0] for f in found], one_by_one(other, token, 6))


def test_unfitting_links_raise(open_session: Open) -> None:
    with open_session() as session:
        state, token = begun(session)
        feeds = steps(state, token, 3)
        for links, what in (({"ids": TOKEN}, "'ids'"), ({"input_ids": "tokens"}, "'tokens'")):
            with pytest.raises(InputError, match=what):
                state.chain(feeds, links)
        with pytest.raises(InputError, match="attention_mask"):
            state.chain([feeds[0], {}], LINKS)
        assert len(state) == 5
        assert state.chain([], LINKS) == []
