"""With the general programs there, the first run of any model is made of them, and compiles nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper
from opalite.cl.programs.program_cache import ProgramCache
from opalite.cl.runtime import Runtime
from opalite.ir.precision import Precision
from opalite.ir.tolerances import relative_difference, tolerance
from opalite.layout.assign_precision import set_precision
from opalite.plan import planner
from opalite.plan.generic_programs import generic_programs
from opalite.plan.program import Program
from opalite.run.model.background.background_compile import BackgroundCompiler
from opalite.run.model.executable_cache import Compiled, ExecutableCache

from ....fuzz.builder import make_case
from ....helpers.onnx_text import by_onnxruntime
from ....helpers.small_models import make_model, noise, port, tagger, transformer_block


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def recurrent(op: str, gates: int, **attrs: Any) -> Any:
    weights = {"w": noise(2, gates * 5, 7), "r": noise(2, gates * 5, 5), "b": noise(2, gates * 10)}
    made = node(op, "x w r b", "y", hidden_size=5, direction="bidirectional", **attrs)
    return make_model([made], [port("x", ("t", 3, 7))], [port("y", None)], weights)


def scattered() -> Any:
    nodes = [node("Gather", "x i", "g"), node("ScatterND", "g j u", "s"), node("GatherElements", "s e", "y", axis=1)]
    constants = {"i": np.array([3, -1, 0]), "j": np.array([[1], [-1]]), "u": noise(2, 7)}
    return make_model(nodes, [port("x", ("n", 7))], [port("y", None)], {**constants, "e": np.array([[5], [0], [-2]])})


def chosen() -> Any:
    """TopK and ArgMax, and integers of 64 bits, which the host adds."""
    nodes = [
        node("TopK", "x k", "v i", axis=-1),
        node("ArgMax", "v", "a", axis=0, keepdims=1),
        node("Add", "a i", "t"),
        node("Cast", "t", "y", to=TensorProto.FLOAT),
    ]
    return make_model(nodes, [port("x", ("n", 37))], [port("v", None), port("y", None)], {"k": np.array([5])})


def rare() -> Any:
    """What no general kernel computes."""
    nodes = [
        node("LRN", "x", "l", size=3),
        node("CumSum", "l axis", "c"),
        node("Relu", "c", "d"),
        node("GridSample", "d grid", "y"),
    ]
    grid = np.random.default_rng(5).uniform(-1, 1, (1, 4, 6, 2)).astype(np.float32)
    return make_model(
        nodes, [port("x", (1, 5, "h", "w"))], [port("y", None)], {"axis": np.array(1), "grid": grid}, opset=17
    )


def halves() -> Any:
    """A model of halves, which CPUs store as float32."""
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("Sigmoid", "c", "s"),
        node("Mul", "c s", "m"),
        node("ReduceMean", "m axes", "y"),
    ]
    weights = {"w": noise(5, 3, 3, 3).astype(np.float16) / 4, "axes": np.array([2])}
    half = TensorProto.FLOAT16
    x = helper.make_tensor_value_info("x", half, (1, 3, "h", 9))
    return make_model(nodes, [x], [helper.make_tensor_value_info("y", half, None)], weights)


MODELS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "lstm": (recurrent("LSTM", 4), [(4, 3, 7), (9, 3, 7)]),
    "gru": (recurrent("GRU", 3, linear_before_reset=1), [(4, 3, 7), (2, 3, 7)]),
    "rnn": (recurrent("RNN", 1), [(4, 3, 7), (5, 3, 7)]),
    "scattered": (scattered(), [(4, 7), (11, 7)]),
    "chosen": (chosen(), [(4, 37), (11, 37)]),
    "rare": (rare(), [(1, 5, 6, 7), (1, 5, 9, 4)]),
    "halves": (halves(), [(1, 3, 8, 9), (1, 3, 6, 9)]),
    "attention": (transformer_block(), [(1, 19, 64)]),
    "tagger": (tagger(), []),
}


@pytest.fixture
def first(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, ...]]:
    """As if general programs alone were there, and what is built behind never came: texts and options of these."""
    general = {(s.text, s.options) for s in generic_programs(rt.info)}
    monkeypatch.setenv("OPALITE_TIERS", "1")
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "0")
    monkeypatch.setattr(type(rt.programs), "may_build_in_background", True)
    monkeypatch.setattr(ProgramCache, "missing", lambda self, specs: [s for s in specs if s[:2] not in general])
    monkeypatch.setattr(BackgroundCompiler, "submit", lambda self, *jobs: [job.end() for job in jobs])
    return general


def built(session: opalite.InferenceSession) -> set[tuple[str, ...]]:
    """What the session's last run was made of."""
    return {(s.text, s.options) for e in session._dispatcher.run_record.executables for s in e.program.sources}


@pytest.mark.parametrize("name", MODELS)
def test_models(rt: Runtime, first: set[tuple[str, ...]], name: str) -> None:
    model, shapes = MODELS[name]
    with opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32") as session:
        example = session.example_shapes()
        names = [a.name for a in session.get_inputs()]
        for shape in shapes or [example[names[0]]]:
            feeds = {n: noise(*(shape if n == names[0] else example[n])) for n in names}
            if name == "halves":
                feeds = {n: a.astype(np.float16) for n, a in feeds.items()}
            got = session.run(None, feeds)
            assert session.last_timing.tier == "generic"
            assert built(session) <= first
            for a, b in zip(got, by_onnxruntime(model, feeds), strict=True):
                assert a.shape == b.shape
                assert relative_difference(a, b) <= tolerance(
                    "model", Precision.FP16 if name == "halves" else Precision.FP32
                )
        assert not session.stats().plans_loaded


@pytest.mark.parametrize(("scale", "back", "overflows"), [(1, 0.5**10, False), (300, 0.5**10, True), (300, 1, False)])
def test_halves_that_overflow(
    rt: Runtime,
    first: set[tuple[str, ...]],
    scale: float,
    back: float,
    overflows: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On GPUs, which store them as they are: infinite outputs are computed again in float32, by general programs, too.
    The last ones are infinite then as well."""
    monkeypatch.setattr(planner, "set_precision", lambda graph, policy, device: set_precision(graph, policy))
    half = TensorProto.FLOAT16
    one = np.ones((1, 1, 1, 1), np.float16)
    nodes = [node("Conv", "x k", "a"), node("Conv", "a l", "y")]
    constants = {"k": one * np.float16(300), "l": one * np.float16(back)}
    model = make_model(nodes, [port("x", (1, 1, 3, 5), half)], [port("y", None, half)], constants)
    x = np.full((1, 1, 3, 5), scale, np.float16)
    with np.errstate(over="ignore"):
        want = (x.astype(np.float32) * 300 * back).astype(np.float16)
    with opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32") as session:
        for _ in range(2):
            (got,) = session.run(None, {"x": x})
            np.testing.assert_allclose(got, want, rtol=2e-3)
            assert session.last_timing.tier in ("generic", "")
            assert built(session) <= first
        assert session.overflowed is overflows
        assert ("own half tensors overflowed" in str(session._dispatcher.run_record.notes)) is overflows


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(rt: Runtime, first: set[tuple[str, ...]], seed: int) -> None:
    """What they compute is judged by campaigns (docs/fuzzing.md)."""
    case = make_case(seed, 12)
    if case is None:
        pytest.skip("no graph")
    with opalite.InferenceSession(case.model.SerializeToString(), device=rt.info.id, precision="fp32") as session:
        session.run(None, case.feeds[0])
        assert built(session) <= first


def test_what_is_known_of_halves_goes_to_what_takes_their_place() -> None:
    program = Program("")
    old = Compiled(
        SimpleNamespace(program=program), may_overflow=False, overflow_is_own=True, inherited_notes=("told",)
    )  # type: ignore[arg-type]
    new = Compiled(SimpleNamespace(program=program), may_overflow=True)  # type: ignore[arg-type]
    cache, key = ExecutableCache(), SimpleNamespace
    cache.keep(key, old)
    assert cache.swap(key, old, new)
    assert not new.may_overflow, "infinities that float32 has as well are the model's own"
    assert new.inherited_notes == ("told",)
