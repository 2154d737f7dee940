"""session.state(): what a model carries from run to run, against onnxruntime fed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.errors import InputError, OptionError
from opalite.plan.program import LaunchStep

from .....helpers import decoders
from .....helpers.counters import settled
from .....helpers.decoders import KINDS, feeds_of

PROMPT = [5, 3, 8, 60, 2]
Greedy = tuple[list[int], Any]


def open_session(rt: Runtime, model: bytes) -> opalite.InferenceSession:
    return opalite.InferenceSession(model, device=rt.info.id, precision="fp32")


def expected(model: bytes, kind: str, prompt: Sequence[int], steps: int) -> Greedy:
    """Greedy tokens, and the last logits, of onnxruntime with its outputs fed back."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options)
    past: dict[str, Any] = {}
    for i in session.get_inputs():
        if i.name.startswith(("past", "cache")):
            shape = [d if isinstance(d, int) else 1 if d == "batch_size" else 0 for d in i.shape]
            past[i.name] = np.zeros(shape, np.float32)
    names = list(past)

    def run(ids: Any, held: int) -> Any:
        flag = {"use_cache_branch": np.array([held > 0])} if kind == "merged" else {}
        outputs = session.run(None, {**feeds_of(kind, ids, held), **past, **flag})
        past.update(zip(names, outputs[1:], strict=True))
        return outputs[0]

    return greedy(run, prompt, steps)


def greedy(run: Callable[[Any, int], Any], prompt: Sequence[int], steps: int, held: int = 0) -> Greedy:
    ids, tokens = np.array([prompt]), []
    for _ in range(steps):
        logits = run(ids, held)
        held += ids.shape[1]
        tokens.append(int(logits[0, -1].argmax()))
        ids = np.array([tokens[-1:]])
    return tokens, logits


def go_on(state: opalite.State, kind: str, prompt: Sequence[int], steps: int, held: int = 0) -> Greedy:
    return greedy(lambda ids, at: state.run(feeds_of(kind, ids, at))[0], prompt, steps, held)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_onnxruntimes(rt: Runtime, kind: str) -> None:
    model = KINDS[kind]()
    wanted, last = expected(model, kind, PROMPT, 64)
    state = open_session(rt, model).state(reserve=32)
    tokens, logits = go_on(state, kind, PROMPT, 64)
    assert tokens == wanted
    assert state.copies == ""
    np.testing.assert_allclose(logits, last, atol=2e-4)


@pytest.mark.parametrize("kind", ["llama", "merged"])
def test_what_an_exporter_writes_out_is_recognised(rt: Runtime, kind: str) -> None:
    """Though the mask's length has a name of its own, and heads are repeated."""
    session = open_session(rt, KINDS[kind]())
    state = session.state()
    for ids in (PROMPT, [7]):
        feed(state, ids)
        programs = [c.executable.program for cache in session._model.caches for c in cache.all]
        kernels = [step.kernel for step in programs[-1].steps if isinstance(step, LaunchStep)]
        assert sum(k.startswith("Attention") for k in kernels) == decoders.LAYERS
        rotations = [kernels.count(name) for name in ("RotateRows", "RotateAppendRows", "AppendCopy")]
        assert rotations == [decoders.LAYERS] * 3  # of queries, of keys into the cache, and values beside them
        assert not any(k.startswith(("Softmax", "PermuteRows", "Slice", "Concat")) for k in kernels)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "grouped", "merged"])
def test_a_state_is_truncated_forked_and_saved(rt: Runtime, kind: str, tmp_path: Path) -> None:
    model = KINDS[kind]()
    session = open_session(rt, model)
    state = session.state()
    assert len(state) == 0
    first, _ = go_on(state, kind, PROMPT, 12)
    assert len(state) == len(PROMPT) + 11
    branch = state.fork()
    state.save(tmp_path / "kept.npz")
    further, _ = go_on(state, kind, first[-1:], 6, len(state))
    assert go_on(branch, kind, first[-1:], 6, len(branch))[0] == further
    other = session.state()
    other.load(tmp_path / "kept.npz")
    assert len(other) == len(PROMPT) + 11
    assert go_on(other, kind, first[-1:], 6, len(other))[0] == further
    state.truncate(len(PROMPT) + 11)
    assert go_on(state, kind, first[-1:], 6, len(state))[0] == further
    state.reset()
    assert len(state) == 0
    assert go_on(state, kind, PROMPT, 12)[0] == first
    with pytest.raises(InputError, match="cannot be cut"):
        state.truncate(1000)


def test_outputs_may_stay_on_the_device(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state, other = session.state(), session.state()
    wanted = go_on(state, "llama", PROMPT, 8)
    kept = []

    def run(ids: Any, held: int) -> Any:
        (logits,) = other.run(feeds_of("llama", ids, held), on_device=True)
        kept.append(logits.device_name())
        branch = other.fork().run(feeds_of("llama", [[1]], held + ids.shape[1]), on_device=True)[0]
        assert branch.numpy().shape[1] == 1  # in memory of its own
        return logits.numpy()

    found = greedy(run, PROMPT, 8)
    assert found[0] == wanted[0]
    np.testing.assert_array_equal(found[1], wanted[1])
    assert set(kept) == {"opencl"}


def test_sequences_of_a_batch_are_reordered(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state, prompts = session.state(), np.array([[5, 3, 8], [7, 7, 1]])
    state.run(feeds_of("llama", prompts, 0))
    turned = state.fork([1, 0, 1])
    tokens = np.array([[4], [9], [4]])
    logits = turned.run(feeds_of("llama", tokens, 3))[0]
    wanted = state.run(feeds_of("llama", np.array([[9], [4]]), 3))[0]
    np.testing.assert_allclose(logits, wanted[[1, 0, 1]], atol=1e-5)
    assert len(state) == len(turned) == 4
    with pytest.raises(InputError, match="from 0 to 1"):
        state.reorder([2])


def test_a_longer_cache_takes_nothing_but_numbers(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state = session.state(reserve=600)
    go_on(state, "llama", PROMPT * 55, 24)
    for _ in range(2):  # programs made for the model, then what their launches are joined to
        session.settle()
        go_on(state, "llama", [7], 24, len(state))
    session.settle()
    go_on(state, "llama", [7], 6, len(state))
    plans, counters = session.stats().plans_made, settled(rt)
    go_on(state, "llama", [7], 240, len(state))
    spent = rt.counters.snapshot() - counters
    assert len(state) > 512
    assert session.stats().plans_made == plans
    assert (spent.programs_built, spent.programs_loaded, spent.kernels_made) == (0, 0, 0)
    assert (spent.memory_objects, spent.bytes_allocated) == (0, 0)


def feed(state: opalite.State, tokens: Sequence[int]) -> None:
    """These tokens one by one."""
    for token in tokens:
        state.run(feeds_of("llama", np.array([[token]]), len(state)))


def assert_alike(state: opalite.State, other: opalite.State) -> None:
    assert len(state) == len(other)
    found = other.arrays()
    for name, value in state.arrays().items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_more_memory_is_no_other_program(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state, plain = session.state(reserve=64), session.state(reserve=512)
    tokens = [int(t) for t in np.random.default_rng(0).integers(1, 60, 130)]
    for _ in range(2):  # programs made for the model, then what their launches are joined to
        feed(state, tokens[len(state) : len(state) + 15])
        session.settle()
    plans, counters, held = session.stats().plans_made, settled(rt), set()
    for token in tokens[len(state) :]:
        feed(state, [token])
        held.add(next(iter(state._values.values())).capacity)
    spent = rt.counters.snapshot() - counters
    assert held == {64, 128, 192}
    assert session.stats().plans_made == plans
    assert (spent.programs_built, spent.programs_loaded) == (0, 0)
    feed(plain, tokens)
    assert_alike(state, plain)


def test_caches_are_cut_that_were_copied_ahead(rt: Runtime) -> None:
    """Truncation drops the prepared copies of caches; forks do not share them."""
    session = open_session(rt, KINDS["llama"]())
    state, plain, kept = session.state(reserve=16), session.state(reserve=256), session.state(reserve=256)
    for each in (state, plain, kept):
        feed(each, [5, 3, 8, 60, 2, 1, 2, 3, 4, 5, 6, 7, 8])
    assert state._caches._prepared
    other = state.fork()
    for each in (state, plain):
        each.truncate(9)
        feed(each, [9, 8, 7, 6, 5, 4, 3, 2, 1, 2, 3])
    for each in (other, kept):
        feed(each, [1] * 5)
    assert_alike(state, plain)
    assert_alike(other, kept)


@pytest.mark.parametrize("kind", ["llama", "grouped", "fused", "merged"])
def test_steps_are_alike_in_every_kind(rt: Runtime, kind: str) -> None:
    session = open_session(rt, KINDS[kind]())
    state = session.state()
    go_on(state, kind, PROMPT, 8)
    counted = session.last_timing
    assert counted.import_s == counted.build_s == 0  # neither the model nor the plan is looked at
    assert state._caches.runs._fast_path is not None


def test_memory_is_reserved_in_steps(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state, plain = session.state(reserve=16), session.state(reserve=600)
    go_on(plain, "llama", PROMPT, 70)
    sizes = []
    for n in range(70):
        ids = [PROMPT] if n == 0 else [[7]]
        state.run(feeds_of("llama", ids, len(state)))
        if not sizes or state.nbytes != sizes[-1]:
            sizes.append(state.nbytes)
    assert 3 <= len(sizes) <= 5
    assert state.nbytes < plain.nbytes


def test_states_alternate(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    wanted, _ = go_on(session.state(), "llama", PROMPT, 40)
    other, _ = go_on(session.state(), "llama", [9, 1], 40)
    one, two = session.state(), session.state()
    tokens: list[list[int]] = [[], []]
    ids = [[PROMPT], [[9, 1]]]
    for _ in range(40):
        for i, state in enumerate((one, two)):
            logits = state.run(feeds_of("llama", ids[i], len(state)))[0]
            tokens[i].append(int(logits[0, -1].argmax()))
            ids[i] = [tokens[i][-1:]]
    assert tokens == [wanted, other]


def test_states_that_do_not_grow(rt: Runtime) -> None:
    model = Path(__file__).parents[5].parent / "shared" / "models" / "gtcrn_simple.onnx"
    if not model.exists():
        pytest.skip("the model is not there")
    session = opalite.InferenceSession(model, device=rt.info.id)
    state = session.state()
    assert [p.present for p in state.pairs] == ["conv_cache_out", "tra_cache_out", "inter_cache_out"]
    carried = {a.name: np.zeros(a.shape, np.float32) for a in session.get_inputs()[1:]}  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    for _ in range(3):
        frame = rng.standard_normal((1, 257, 1, 2)).astype(np.float32)
        wanted, *values = session.run(None, {"mix": frame, **carried})
        carried = dict(zip(carried, values, strict=True))
        np.testing.assert_allclose(state.run({"mix": frame})[0], wanted, atol=1e-6)
    assert len(state) == 3
    with pytest.raises(OptionError, match="cannot be truncated"):
        state.truncate(1)


def test_misuse_raises(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state = session.state()
    with pytest.raises(InputError, match="is state"):
        state.run({"past_key_values.0.key": np.zeros((1, 2, 0, 16), np.float32)})
    with pytest.raises(InputError, match="no output besides the state"):
        state.run(feeds_of("llama", [PROMPT], 0), ["present.0.key"])
    with pytest.raises(InputError, match="position_ids"):
        state.run({"input_ids": np.array([PROMPT])})
    assert len(state) == 0
    with pytest.raises(OptionError, match="no input is named 'what'"):
        session.state({"what": "present.0.key"})
    with pytest.raises(OptionError, match="cannot be the next"):
        session.state({"past_key_values.0.key": "logits"})
    with pytest.raises(InputError, match="lack"):
        state.set_values({"past_key_values.0.key": np.zeros((1, 2, 3, 16), np.float32)})


def test_sizes_that_follow_from_no_input_are_asked_for(rt: Runtime) -> None:
    net = decoders.Decoder(opset=24)
    starts = net.input("at", 7, (1,))
    x = net.input("x", 1, (1, 2, 1, 4))
    cache = net.input("cache_k", 1, (1, 2, "max_length", 4))
    net.output(net.op("TensorScatter", cache, x, starts, axis=2), "cache_k_out", (1, 2, "max_length", 4))
    session = open_session(rt, net.model("cache"))
    feeds = {"x": np.ones((1, 2, 1, 4), np.float32), "at": np.array([3])}
    with pytest.raises(OptionError, match="max_length"):
        session.state().run(feeds)
    state = session.state(max_length=8)
    state.run(feeds)
    assert state.arrays()["cache_k"][0, 0, :, 0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_outputs_stay_on_the_device_while_caches_grow(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    wanted, _ = go_on(session.state(), "llama", PROMPT, 40)
    state, turn = session.state(), 0

    def run(ids: Any, held: int) -> Any:
        nonlocal turn
        turn += 1
        found = state.run(feeds_of("llama", ids, held), on_device=turn % 3 > 0)[0]
        return np.asarray(found.numpy() if turn % 3 else found)

    assert greedy(run, PROMPT, 40)[0] == wanted


@pytest.mark.parametrize("kind", ["scattered", "grouped"])
def test_a_value_bound_as_past_and_present_is_written_in_place(rt: Runtime, kind: str) -> None:
    model = KINDS[kind]()
    session = open_session(rt, model)
    wanted, _ = expected(model, kind, PROMPT, 24)
    binding, length = session.io_binding(), 128
    pairs = session.state().pairs
    for pair in pairs:
        value = opalite.OrtValue.ortvalue_from_numpy(np.zeros((1, 2, length, 16), np.float32), "opencl")
        binding.bind_ortvalue_input(pair.past, value)
        binding.bind_ortvalue_output(pair.present, value)
    binding.bind_output("logits")

    def run(ids: Any, held: int) -> Any:
        for name, array in feeds_of(kind, ids, held).items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()

    assert greedy(run, PROMPT, 24)[0] == wanted
    assert binding.shared.runs is not None


def test_what_a_model_does_not_write_into_is_copied(rt: Runtime) -> None:
    model = KINDS["scattered"]()
    session = open_session(rt, model)
    value = opalite.OrtValue.ortvalue_from_numpy(np.ones((1, 2, 128, 16), np.float32), "opencl")
    binding = session.io_binding()
    for pair in session.state().pairs:
        own = opalite.OrtValue.ortvalue_from_numpy(np.zeros((1, 2, 128, 16), np.float32), "opencl")
        binding.bind_ortvalue_input(pair.past, value if pair.past == "cache_k_0" else own)
        binding.bind_ortvalue_output(pair.present, value if pair.present == "cache_v_0_out" else own)
    binding.bind_output("logits")
    feeds = feeds_of("scattered", [PROMPT], 0)
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    session.run_with_iobinding(binding)
    caches = {p.past: np.zeros((1, 2, 128, 16), np.float32) for p in session.state().pairs}
    caches["cache_k_0"] += 1
    outputs = dict(zip((o.name for o in session.get_outputs()), session.run(None, {**feeds, **caches}), strict=True))
    np.testing.assert_allclose(binding.get_outputs()[-1].numpy(), outputs["logits"], atol=1e-5)
    np.testing.assert_allclose(value.numpy(), outputs["cache_v_0_out"], atol=1e-5)


def test_attention_to_an_encoder_is_kept(rt: Runtime) -> None:
    """A decoder that is given keys and values of an encoder, which it passes on, or gives as nothing."""
    for passes in (True, False):
        net = decoders.Decoder()
        x = net.input("x", 1, ("batch", "steps", 16))
        shape = ("batch", 2, "past_sequence_length", 8)
        cross_shape = ("batch", 2, "encoder_sequence_length", 8)
        past = net.input("past_key_values.0.decoder.key", 1, shape)
        cross = net.input("past_key_values.0.encoder.key", 1, cross_shape)
        heads = net.op("Transpose", net.op("Reshape", x, net.ints(0, -1, 2, 8)), perm=[0, 2, 1, 3])
        keys = net.op("Concat", past, heads, axis=2)
        own = net.op("Softmax", net.op("MatMul", heads, net.op("Transpose", keys, perm=[0, 1, 3, 2])), axis=-1)
        other = net.op("Softmax", net.op("MatMul", heads, net.op("Transpose", cross, perm=[0, 1, 3, 2])), axis=-1)
        y = net.op("Add", net.op("MatMul", own, keys), net.op("MatMul", other, cross))
        net.output(y, "y", ("batch", 2, "steps", 8))
        net.output(keys, "present.0.decoder.key", (*shape[:2], "total_length", 8))
        kept = cross if passes else net.op("Slice", cross, net.ints(0), net.ints(0), net.ints(0))
        net.output(kept, "present.0.encoder.key", ("b", 2, "encoder_sequence_length_out", 8))
        session = open_session(rt, net.model("cross"))
        rng = np.random.default_rng(0)
        encoded = rng.standard_normal((1, 2, 11, 8)).astype(np.float32)
        state = session.state()
        state.set_values({"past_key_values.0.decoder.key": encoded[:, :, :0], "past_key_values.0.encoder.key": encoded})
        held = np.zeros((1, 2, 0, 8), np.float32)
        for _ in range(30):
            step = rng.standard_normal((1, 1, 16)).astype(np.float32)
            feeds = {"past_key_values.0.decoder.key": held, "past_key_values.0.encoder.key": encoded, "x": step}
            wanted, held = session.run(["y", "present.0.decoder.key"], feeds)
            np.testing.assert_allclose(state.run({"x": step})[0], wanted, atol=1e-5)
        assert (len(state), state.copies) == (30, "")
        np.testing.assert_array_equal(state.arrays()["past_key_values.0.encoder.key"], encoded)
