"""Growing KV caches as arrays of plain runs: they stay on the device, and contents are those that the caller sees."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime

from .....helpers import decoders
from .....helpers.decoders import KINDS, feeds_of
from .test_model_state import PROMPT, expected

Past = dict[str, Any]
GROWING = [kind for kind in KINDS if kind not in ("scattered", "merged")]


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's memory is not the host's, which gets mirrors."""
    monkeypatch.setattr(Runtime, "shares_memory", property(lambda rt: False))


def open_session(rt: Runtime, model: bytes, *, views: bool = True, precision: str = "fp32") -> opalite.InferenceSession:
    options = opalite.SessionOptions()
    if not views:
        options.add_session_config_entry("opalite.cache_views", "0")
    return opalite.InferenceSession(model, options, device=rt.info.id, precision=precision)


def empty(session: opalite.InferenceSession, batch: int = 1) -> Past:
    """Caches before the first run."""
    shapes = {a.name: a.shape for a in session.get_inputs() if a.name.startswith("past")}
    names = {"batch_size": batch}
    dtypes = {a.name: a.dtype for a in session.get_inputs()}
    return {
        n: np.zeros([d if isinstance(d, int) else names.get(d, 0) for d in s], dtypes[n].np) for n, s in shapes.items()
    }


def step(session: opalite.InferenceSession, kind: str, ids: Any, past: Past) -> tuple[Any, Past]:
    """Logits and the next caches of a run."""
    held = next(a.shape[-2] for a in past.values())
    logits, *presents = session.run(None, {**feeds_of(kind, ids, held), **past})
    return logits, dict(zip(past, presents, strict=True))


def tokens_of(session: opalite.InferenceSession, kind: str, steps: int, past: Past | None = None) -> list[int]:
    """Greedy tokens from a prompt."""
    ids, found, past = [PROMPT], [], past or empty(session)
    for _ in range(steps):
        logits, past = step(session, kind, ids, past)
        found.append(int(logits[0, -1].argmax()))
        ids = [found[-1:]]
    return found


def stays(session: opalite.InferenceSession, past: Past) -> bool:
    """Whether the last run has copied no caches to the device."""
    return session.last_trace.bytes_up < sum(a.nbytes for a in past.values())


@pytest.mark.parametrize("kind", GROWING)
def test_greedy_tokens_are_onnxruntimes(rt: Runtime, kind: str) -> None:
    model = KINDS[kind]()
    session = open_session(rt, model)
    assert tokens_of(session, kind, 32) == expected(model, kind, PROMPT, 32)[0]


def test_bound_to_host_memory(rt: Runtime) -> None:
    model = decoders.llama(layers=1)
    session = open_session(rt, model)
    binding = session.io_binding()
    past = {n: opalite.OrtValue.ortvalue_from_numpy(a) for n, a in empty(session).items()}
    ids, found, held = [PROMPT * 20], [], 0
    for _ in range(12):
        for name, array in feeds_of("llama", ids, held).items():
            binding.bind_cpu_input(name, array)
        for name, value in past.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        fed = past
        session.run_with_iobinding(binding)
        logits, *presents = binding.get_outputs()
        held += len(ids[0])
        found.append(int(logits.numpy()[0, -1].argmax()))
        past, ids = dict(zip(past, presents, strict=True)), [found[-1:]]
    assert found == expected(model, "llama", PROMPT * 20, 12)[0]
    assert stays(session, {n: v.numpy() for n, v in fed.items()})


def test_an_address_is_of_memory_without_gaps(rt: Runtime) -> None:
    session = open_session(rt, decoders.llama(layers=1))
    _, past = step(session, "llama", [PROMPT], empty(session))
    for array in past.values():
        value = opalite.OrtValue(array)
        memory = (ctypes.c_float * array.size).from_address(value.data_ptr())
        np.testing.assert_array_equal(np.frombuffer(memory, np.float32), array.ravel())


@pytest.mark.parametrize("kind", GROWING)
def test_caches_stay_on_the_device(rt: Runtime, kind: str) -> None:
    session = open_session(rt, KINDS[kind](layers=1))
    past = empty(session)
    for i in range(6):
        _, past = step(session, kind, [[3]] if i else [PROMPT * 20], past)
    fed = past
    step(session, kind, [[3]], past)
    assert stays(session, fed)


def test_one_token_after_the_other_from_an_empty_cache(rt: Runtime) -> None:
    session, other = (open_session(rt, decoders.llama(layers=1), views=v) for v in (True, False))
    ours, theirs = empty(session), empty(other)
    for i in range(6):
        found, ours = step(session, "llama", [[i + 1]], ours)
        wanted, theirs = step(other, "llama", [[i + 1]], theirs)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], atol=1e-5)


def test_caches_grow_past_their_memory(rt: Runtime) -> None:
    model = decoders.llama(layers=1)
    session = open_session(rt, model)
    assert tokens_of(session, "llama", 300) == expected(model, "llama", PROMPT, 300)[0]
    assert session._array_caches is not None


def test_an_older_array_is_a_branch(rt: Runtime) -> None:
    session = open_session(rt, decoders.llama(layers=1))
    _, first = step(session, "llama", [PROMPT], empty(session))
    kept = {n: a.copy() for n, a in first.items()}
    wanted, left = step(session, "llama", [[7]], first)
    _, right = step(session, "llama", [[9]], first)
    shown = {n: a.copy() for n, a in right.items()}
    found, again = step(session, "llama", [[7]], first)
    np.testing.assert_array_equal(found, wanted)
    for name in first:
        np.testing.assert_array_equal(first[name], kept[name])
        np.testing.assert_array_equal(left[name], again[name])
        np.testing.assert_array_equal(right[name], shown[name])
    on_left, _ = step(session, "llama", [[4]], left)
    on_right, _ = step(session, "llama", [[4]], right)
    assert not np.array_equal(on_left, on_right)


def test_positions_may_be_cut_off(rt: Runtime) -> None:
    session = open_session(rt, decoders.llama(layers=1))
    _, first = step(session, "llama", [PROMPT], empty(session))
    wanted, longer = step(session, "llama", [[7]], first)
    for token in (1, 2):
        _, longer = step(session, "llama", [[token]], longer)
    del first
    found, _ = step(session, "llama", [[7]], {n: a[:, :, : len(PROMPT)] for n, a in longer.items()})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("way", ["copy", "in place"])
@pytest.mark.parametrize("steps", [3, 257])
def test_changed_contents_count(rt: Runtime, way: str, steps: int) -> None:
    """Also where larger memory has been prepared before the change."""
    session, other = (open_session(rt, decoders.llama(layers=1), views=v) for v in (True, False))
    past, theirs = empty(session), empty(other)
    for i in range(steps - len(PROMPT) if steps > 9 else steps):
        ids = [[i % 50 + 1]] if i else [PROMPT]
        _, past = step(session, "llama", ids, past)
    theirs = {n: a.copy() for n, a in past.items()}
    for caches in (past, theirs):
        for name, array in caches.items():
            if way == "copy" or (caches is past and not array.flags.writeable):
                caches[name] = array * np.float32(0.5)
            else:
                array *= np.float32(0.5)
    for token in (4, 9, 11):
        found, past = step(session, "llama", [[token]], past)
        wanted, theirs = step(other, "llama", [[token]], theirs)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_arrays_that_went_on_are_not_changed(rt: Runtime) -> None:
    """A run may have taken over their memory."""
    session = open_session(rt, decoders.llama(layers=1))
    _, first = step(session, "llama", [PROMPT], empty(session))
    step(session, "llama", [[7]], first)
    with pytest.raises(ValueError, match="read-only"):
        next(iter(first.values()))[...] = 0


def test_reordered_beams(rt: Runtime) -> None:
    session, other = (open_session(rt, decoders.llama(layers=1), views=v) for v in (True, False))
    beams = 3
    found, ours = step(session, "llama", [PROMPT] * beams, empty(session, beams))
    _, theirs = step(other, "llama", [PROMPT] * beams, empty(other, beams))
    for i in range(8):
        order = [(2 * i) % beams, 1, i % beams]
        ids = [[i + 1], [i + 2], [i + 3]]
        found, ours = step(session, "llama", ids, {n: np.take(a, order, 0) for n, a in ours.items()})
        wanted, theirs = step(other, "llama", ids, {n: np.take(a, order, 0) for n, a in theirs.items()})
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert session._array_caches is not None


def test_sequences_in_turn(rt: Runtime) -> None:
    model = decoders.llama(layers=1)
    session = open_session(rt, model)
    wanted = {start: expected(model, "llama", [start, 3], 8)[0] for start in (1, 2, 5)}
    pasts: dict[int, Past] = {start: empty(session) for start in wanted}
    ids: dict[int, Any] = {start: [[start, 3]] for start in wanted}
    found: dict[int, list[int]] = {start: [] for start in wanted}
    for _ in range(8):
        for start in wanted:
            logits, pasts[start] = step(session, "llama", ids[start], pasts[start])
            found[start].append(int(logits[0, -1].argmax()))
            ids[start] = [found[start][-1:]]
    assert found == wanted


def test_threads(rt: Runtime) -> None:
    model = decoders.llama(layers=1)
    session = open_session(rt, model)
    wanted = expected(model, "llama", PROMPT, 24)[0]
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(tokens_of(session, "llama", 24))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 3


def test_one_past_fed_by_several_threads(rt: Runtime) -> None:
    session = open_session(rt, decoders.llama(layers=1))
    _, past = step(session, "llama", [PROMPT], empty(session))
    wanted = {t: step(session, "llama", [[t]], past)[0] for t in range(4)}
    found: dict[int, Any] = {}

    def run(token: int) -> None:
        for _ in range(5):
            found[token] = step(session, "llama", [[token]], past)[0]

    threads = [threading.Thread(target=run, args=(t,)) for t in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for token, logits in wanted.items():
        np.testing.assert_array_equal(found[token], logits)


def test_caches_that_nobody_asks_for(rt: Runtime) -> None:
    """Candidates are rated on one past: each run leaves the caches as they are."""
    session = open_session(rt, decoders.llama(layers=1))
    _, past = step(session, "llama", [PROMPT], empty(session))
    kept = {n: a.copy() for n, a in past.items()}
    wanted, _ = step(session, "llama", [[7]], {n: a.copy() for n, a in past.items()})
    for _ in range(2):
        for token in (9, 7):
            feeds = {**feeds_of("llama", [[token]], len(PROMPT)), **past}
            found = session.run(["logits"], feeds)[0]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    for name, array in past.items():
        np.testing.assert_array_equal(array, kept[name])


def run_async(session: opalite.InferenceSession, names: list[str], feeds: Past) -> list[Any]:
    """The outputs that a callback gets."""
    done, got = threading.Event(), list[Any]()

    def called(outputs: list[Any], data: Any, fault: str) -> None:
        got.extend([outputs, fault])
        done.set()

    session.run_async(names, feeds, called, None)
    assert done.wait(30)
    assert got[1] == ""
    outputs: list[Any] = got[0]
    return outputs


def test_values_of_onnxruntimes_api(rt: Runtime) -> None:
    """OrtValues, an array made anew of the same memory, an asynchronous run."""
    model = decoders.llama(layers=1)
    session = open_session(rt, model)
    names = [a.name for a in session.get_outputs()]
    past, ids, found = empty(session), [PROMPT], []
    for i in range(12):
        held = next(a.shape[-2] for a in past.values())
        feeds = {**feeds_of("llama", ids, held), **past}
        if i % 3 == 0:
            values = {n: opalite.OrtValue.ortvalue_from_numpy(np.asarray(a)) for n, a in feeds.items()}
            outputs = [v.numpy() for v in session.run_with_ort_values(names, values)]
        elif i % 3 == 1:
            outputs = session.run(names, feeds)
        else:
            outputs = run_async(session, names, feeds)
        found.append(int(outputs[0][0, -1].argmax()))
        ids = [found[-1:]]
        past = {n: np.asarray(memoryview(a)) for n, a in zip(past, outputs[1:], strict=True)}
    assert found == expected(model, "llama", PROMPT, 12)[0]


def test_half_storage(rt: Runtime) -> None:
    """Caches are stored in half, and the caller's arrays are floats."""
    session = open_session(rt, decoders.llama(layers=1), precision="fp16")
    state = open_session(rt, decoders.llama(layers=1), precision="fp16").state()
    past, ids = empty(session), [PROMPT]
    for i in range(8):
        wanted = state.run(feeds_of("llama", ids, len(state)))[0]
        found, past = step(session, "llama", ids, past)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        ids = [[i + 3]]
    for name, array in state.arrays().items():
        np.testing.assert_array_equal(past[name], array)


def test_runs_that_nothing_follows_copy(rt: Runtime) -> None:
    session = open_session(rt, decoders.llama(layers=1))
    for i in range(6):
        _, past = step(session, "llama", [PROMPT], empty(session))
        assert next(iter(past.values())).flags.c_contiguous == (i >= 4)


def test_wrong_inputs(rt: Runtime) -> None:
    session = open_session(rt, decoders.llama(layers=1))
    _, past = step(session, "llama", [PROMPT], empty(session))
    feeds = {**feeds_of("llama", [[1]], len(PROMPT)), **past}
    with pytest.raises(opalite.InputError, match="input_ids"):
        session.run(None, {n: v for n, v in feeds.items() if n != "input_ids"})
    with pytest.raises(opalite.InputError, match="nonsense"):
        session.run(None, {**feeds, "nonsense": np.zeros(1, np.float32)})
    wanted, _ = step(session, "llama", [[1]], {n: a.copy() for n, a in past.items()})
    found, _ = step(session, "llama", [[1]], past)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_inputs_of_a_state_may_be_ort_values(rt: Runtime) -> None:
    session = open_session(rt, decoders.llama(layers=1))
    ours, theirs = session.state(), session.state()
    for ids in ([PROMPT], [[3]], [[4]]):
        feeds = feeds_of("llama", ids, len(ours))
        values = {n: opalite.OrtValue.ortvalue_from_numpy(a) for n, a in feeds.items()}
        np.testing.assert_array_equal(ours.run(values)[0], theirs.run(feeds)[0])


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_mirrors(rt: Runtime, precision: str) -> None:
    session = open_session(rt, decoders.llama(layers=2), precision=precision)
    state = open_session(rt, decoders.llama(layers=2), precision=precision).state()
    past, ids = empty(session), [PROMPT]
    older: list[tuple[Past, Past]] = []
    for i in range(12):
        wanted = state.run(feeds_of("llama", ids, len(state)))[0]
        found, past = step(session, "llama", ids, past)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        older.append((past, {n: a.copy() for n, a in past.items()}))
        ids = [[i + 3]]
    for name, array in state.arrays().items():
        np.testing.assert_array_equal(past[name], array)
        assert not past[name].flags.writeable
    for shown, kept in older:
        for name, array in shown.items():
            np.testing.assert_array_equal(array, kept[name])
    branched, _ = step(session, "llama", [[5]], older[3][0])
    again, _ = step(session, "llama", [[5]], {n: a.copy() for n, a in older[3][0].items()})
    np.testing.assert_allclose(branched, again, atol=1e-5)
