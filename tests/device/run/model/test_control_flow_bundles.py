"""Bundles of models with control flow: what data decides at run time, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper, numpy_helper
from opalite import BundleError, InferenceSession
from opalite.cl.runtime import Runtime
from opalite.run.model.control_flow.run_control_flow import FlowRun

from ....helpers.forged_bundles import Forged, mutate
from ....helpers.small_models import make_model, port

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.arange(6, dtype=np.float32).reshape(2, 3)
CONSTANTS = {"one": np.float32(1), "two": np.float32(2), "ten": np.float32(10)}
ADD = [helper.make_node("Add", ["x", "ten"], ["t"])]
MULTIPLY = [helper.make_node("Mul", ["x", "ten"], ["e"])]
Case = tuple[Any, list[Mapping[str, Any]]]


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def graph(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], **constants: Any) -> Any:
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    return helper.make_graph(nodes, "body", inputs, outputs, held)


def branch(nodes: Sequence[Any], output: str, **constants: Any) -> Any:
    return graph(nodes, [], [port(output, None)], **constants)


def choice(condition: str, output: str, then: Any, other: Any) -> Any:
    return helper.make_node("If", [condition], [output], then_branch=then, else_branch=other)


def loop(nodes: Sequence[Any], outputs: str, rows: Sequence[str] = (), shape: Sequence[Any] = (2, 3)) -> Any:
    """Trips `M` of a body that makes `s_out` of `s_in`, which is first x, and says by `goes` whether to go on."""
    ins = [port("i", (), INT), port("cin", (), B), port("s_in", shape)]
    outs = [port("goes", (), B), port("s_out", shape), *(port(r, None) for r in rows)]
    return helper.make_node("Loop", ["M", "", "x"], outputs.split(" "), body=graph(nodes, ins, outs))


def small(nodes: Sequence[Any], inputs: Sequence[Any], outputs: str) -> Any:
    return make_model(nodes, [port("x", (2, 3)), *inputs], [port(o, None) for o in outputs.split(" ")], CONSTANTS)


def _flags(*names: str) -> list[Mapping[str, Any]]:
    count = 1 << len(names)
    return [{"x": X, **{n: np.array(bool(k >> i & 1)) for i, n in enumerate(names)}} for k in range(count)]


def _trips(*counts: int, **more: Any) -> list[Mapping[str, Any]]:
    return [{"x": X, "M": np.array(k), **more} for k in counts]


def branches() -> Case:
    return small([choice("c", "y", branch(ADD, "t"), branch(MULTIPLY, "e"))], [port("c", (), B)], "y"), _flags("c")


def computed() -> Case:
    nodes = [node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s ten", "c")]
    nodes += [choice("c", "z", branch(ADD, "t"), branch(MULTIPLY, "e")), node("Relu", "z", "y")]
    return small(nodes, [], "y"), [{"x": X}, {"x": -X}]


def other_shapes() -> Case:
    cut = branch([node("Slice", "x first last", "e")], "e", first=np.array([0]), last=np.array([1]))
    nodes = [choice("c", "z", branch(ADD, "t"), cut), node("Relu", "z", "y")]
    return small(nodes, [port("c", (), B)], "y"), _flags("c")


def nested() -> Case:
    inner = choice("d", "q", branch([node("Add", "x one", "a")], "a"), branch([node("Sub", "x one", "b")], "b"))
    outer = choice("c", "y", branch([inner], "q"), branch(MULTIPLY, "e"))
    return small([outer], [port("c", (), B), port("d", (), B)], "y"), _flags("c", "d")


def counted() -> Case:
    body = [node("Identity", "cin", "goes"), node("Add", "s_in one", "s_out"), node("Mul", "s_out two", "row")]
    return small([loop(body, "f rows", ["row"])], [port("M", (), INT)], "f rows"), _trips(3, 1, 100)


def stopped() -> Case:
    body = [node("Add", "s_in one", "s_out"), node("ReduceMax", "s_out", "most", keepdims=0)]
    body += [node("Less", "most ten", "goes"), node("Mul", "s_out two", "row")]
    return small([loop(body, "f rows", ["row"])], [port("M", (), INT)], "f rows"), _trips(2, 50)


def branches_in_a_loop() -> Case:
    then, other = branch([node("Add", "s_in one", "a")], "a"), branch([node("Mul", "s_in two", "b")], "b")
    body = [node("Identity", "cin", "goes"), node("ReduceMax", "s_in", "most", keepdims=0)]
    body += [node("Less", "most ten", "few"), choice("few", "s_out", then, other)]
    nodes = [loop(body, "f"), node("Relu", "f", "y")]
    return small(nodes, [port("M", (), INT)], "y"), _trips(0, 8)


def a_loop_in_a_loop() -> Case:
    ports = [port("j", (), INT), port("c2", (), B), port("t", (2, 3))]
    inner = graph(
        [node("Identity", "c2", "g2"), node("Add", "t one", "u")], ports, [port("g2", (), B), port("u", (2, 3))]
    )
    body = [
        node("Identity", "cin", "goes"),
        helper.make_node("Loop", ["K", "", "s_in"], ["s_out"], body=inner),
    ]
    model = small([loop(body, "f")], [port("M", (), INT), port("K", (), INT)], "f")
    return model, [*_trips(2, 0, K=np.array(3)), *_trips(4, K=np.array(1))]


def scanned() -> Case:
    body = graph(
        [node("Add", "s r", "s2"), node("Mul", "s2 two", "o")],
        [port("s", (3,)), port("r", (3,))],
        [port("s2", (3,)), port("o", (3,))],
    )
    scan = helper.make_node("Scan", ["zero", "long"], ["f", "o"], body=body, num_scan_inputs=1)
    nodes = [node("Tile", "x reps", "long"), scan, node("Relu", "o", "y")]
    constants = {**CONSTANTS, "zero": np.zeros(3, np.float32), "reps": np.array([100, 1])}
    return make_model(nodes, [port("x", (2, 3))], [port("f", None), port("y", None)], constants), [{"x": X}]


def at_the_end() -> Case:
    return small([node("Relu", "x", "r"), node("NonZero", "r", "y")], [], "y"), [{"x": X}, {"x": -X}]


CASES = [
    *(branches, computed, other_shapes, nested, counted, stopped, branches_in_a_loop, a_loop_in_a_loop, scanned),
    at_the_end,
]


def compile_case(case: Case, path: Path, rt: Runtime) -> None:
    model, feeds = case
    shapes = {name: np.shape(a) for name, a in feeds[0].items()}
    opalite.compile(model.SerializeToString(), path, shapes=shapes, device=rt.info.id)


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_a_bundle_gives_what_a_session_does(case: Any, trust: bool, rt: Runtime, tmp_path: Path) -> None:
    model, feeds = made = case()
    compile_case(made, tmp_path / "m.opal", rt)
    session = InferenceSession(model.SerializeToString(), device=rt.info.id)
    bundle = InferenceSession(tmp_path / "m.opal", device=rt.info.id, trust=trust)
    for given in (*feeds, *feeds):
        want, got = session.run(None, given), bundle.run(None, given)
        for a, b in zip(want, got, strict=True):
            assert np.shape(a) == np.shape(b)
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    assert bundle.explain().nodes


def test_outputs_are_the_callers(rt: Runtime, tmp_path: Path) -> None:
    """No trip is made, so that the state that comes out is the input."""
    made = counted()
    compile_case(made, tmp_path / "m.opal", rt)
    x = X.copy()
    out = InferenceSession(tmp_path / "m.opal", device=rt.info.id).run(["f"], {"x": x, "M": np.array(0)})[0]
    out[...] = 77
    np.testing.assert_array_equal(x, X)


def _growing() -> Any:
    body = [node("Identity", "cin", "goes"), node("Concat", "s_in x", "s_out", axis=0)]
    return small([loop(body, "f", shape=("n", 3))], [port("M", (), INT)], "f")


def _in_between() -> Any:
    return small([node("NonZero", "x", "z"), node("Cast", "z", "f", to=F), node("Add", "f one", "y")], [], "y")


def _counted_shape() -> Any:
    nodes = [node("Reshape", "n minus", "m"), node("Expand", "one m", "y")]
    return make_model(nodes, [port("n", (), INT)], [port("y", None)], {**CONSTANTS, "minus": np.array([-1])})


def _many_branches() -> Any:
    nodes, last = [], "x"
    for i in range(8):
        then, other = (
            branch([node("Add", f"{last} one", f"t{i}")], f"t{i}"),
            branch([node("Relu", last, f"e{i}")], f"e{i}"),
        )
        nodes += [choice(f"c{i}", f"y{i}", then, other)]
        last = f"y{i}"
    return small(nodes, [port(f"c{i}", (), B) for i in range(8)], last)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (_growing(), r"changes the type of 's_out' from f32\[2,3\] to f32\[4,3\]"),
        (_in_between(), "shapes depend on data at NonZero node .*, which gives 'z'"),
        (_counted_shape(), "depend on the contents of 'm'"),
        (_many_branches(), "more than 64 programs"),
    ],
)
def test_what_cannot_be_compiled_is_refused(model: Any, words: str, tmp_path: Path) -> None:
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    with pytest.raises(BundleError, match=words) as e:
        opalite.compile(model.SerializeToString(), tmp_path / "m.opal", shapes=shapes)
    assert "run the .onnx file" in str(e.value)


def test_strict_mode_refuses_what_runs_on_the_host(rt: Runtime, tmp_path: Path) -> None:
    compile_case(at_the_end(), tmp_path / "m.opal", rt)
    session = InferenceSession(tmp_path / "m.opal", device=rt.info.id, strict=True)
    with pytest.raises(opalite.PlacementError, match="NonZero"):
        session.run(None, {"x": X})


def test_whatever_is_changed_in_a_flow_is_refused_or_harmless(
    rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = 0

    def calls_off(self: Any) -> None:
        nonlocal trips
        trips += 1
        if trips > 1000:  # a changed loop may have no end
            raise opalite.OpaliteError("called off")

    monkeypatch.setattr(FlowRun, "check", calls_off)
    made = branches_in_a_loop()
    compile_case(made, tmp_path / "good.opal", rt)
    for seed in range(40):
        trips = 0
        forged, rng = Forged(tmp_path / "good.opal"), random.Random(seed)
        data = forged.graph()
        what = mutate(data["flow"] if seed % 2 else data, rng)
        forged.set_graph(data)
        forged.write(tmp_path / f"{seed}.opal")
        try:
            InferenceSession(tmp_path / f"{seed}.opal", device=rt.info.id).run(None, made[1][1])
        except opalite.OpaliteError:
            continue
        except Exception as e:
            raise AssertionError(f"seed {seed}: {what}") from e


def test_compiling_a_flow_again_gives_the_same_bytes(rt: Runtime, tmp_path: Path) -> None:
    for name in ("a.opal", "b.opal"):
        compile_case(nested(), tmp_path / name, rt)
    assert (tmp_path / "a.opal").read_bytes() == (tmp_path / "b.opal").read_bytes()
