"""Which nodes keep float32 where half is asked for: policies, the rules, and where casts fall."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.expr.function_table import FUNCTIONS, Function, Result
from opalite.ir import DeviceInfo, DType, Graph
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.tolerances import TOLERANCES, relative_difference, tolerance
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import place
from opalite.plan.emit_program import emit
from opalite.run.model.compile_options import CompileOptions

from ...helpers.graphs import GraphMaker
from ...helpers.tuning import CPU

HALF = PrecisionPolicy(Precision.FP16)


def kept(graph: Graph, policy: PrecisionPolicy = HALF) -> set[str]:
    """Names of the nodes that keep float32."""
    set_precision(graph, policy)
    return {n.name for n in graph.nodes if n.precision is Precision.FP32}


def test_everything_is_half_but_what_the_policy_names_and_what_moves_it() -> None:
    g = GraphMaker()
    a = g.conv("a", g.input("x", 1, 4, 8, 8), 4)
    b = g.conv("b", a, 4)
    turned = g.add("turned", "Transpose", b, perm=(0, 1, 3, 2))
    c = g.conv("c", g.map("relu", lambda v: v.call("max", 0), turned), 4)
    graph = g.done(c)
    policy = PrecisionPolicy(Precision.FP16, {"b": "it loses too much"})
    assert kept(graph, policy) == {"b", "turned", "relu"}
    place(graph, CPU)
    by_name = {n.name: n for n in graph.nodes if n.op.name != "PlaceCast"}
    assert by_name["a"].y.type.storage is DType.FLOAT16
    assert all(v.type.storage is DType.FLOAT32 for v in (*by_name["b"].inputs, by_name["b"].y) if v is not None)
    assert by_name["c"].x.type.storage is DType.FLOAT16
    report = next(r for r in emit(graph, CPU).placement if r.name == "b")
    assert report.why.endswith("; in float32: it loses too much")


def test_a_chain_of_another_precision_is_not_linked() -> None:
    g = GraphMaker()
    a = g.conv("a", g.input("x", 1, 4, 8, 8), 4)
    graph = g.done(g.map("relu", lambda v: v.call("max", 0), a))
    set_precision(graph, PrecisionPolicy(Precision.FP16, {"relu": "for the test"}))
    place(graph, CPU)
    assert {n.name for n in graph.nodes if n.op.name != "PlaceCast"} == {"a", "relu"}


def test_masks_beyond_half_stay_in_float32_with_their_readers() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 8, 8)
    scaled = g.map("scaled", lambda v: v * 0.5, x)
    masked = g.map("masked", lambda v, m: v + m * -1e9, scaled, g.input("m", 2, 8, 8))
    turned = g.add("turned", "Transpose", masked, perm=(0, 2, 1))
    p = g.add("p", "Softmax", turned, axis=2, log=False)
    assert kept(g.done(g.map("after", lambda v: v * 2.0, p))) == {"masked", "turned", "p", "after"}


def test_attention_reads_a_mask_beyond_half_as_it_is() -> None:
    """All else of it is half, and no node casts the mask."""
    g = GraphMaker()
    heads = [g.map(name, lambda v: v.call("max", 0), g.input(f"{name}_in", 1, 4, 32, 32)) for name in "qkv"]
    mask = g.map("mask", lambda v: v * -3e38, g.input("hidden", 1, 1, 32, 32))
    graph = g.done(g.add("attention", "Attention", *heads, mask, scale=0.2, causal=False, softcap=0.0))
    assert kept(graph) == {"mask"}
    place(graph, CPU)
    node = next(n for n in graph.nodes if n.name == "attention")
    half, wide = DType.FLOAT16, DType.FLOAT32
    assert [v.type.storage for v in (*node.inputs, node.y) if v is not None] == [half, half, half, wide, half]
    assert node.input(3).producer is next(n for n in graph.nodes if n.name == "mask")


def test_infinite_masks_are_halves_too() -> None:
    g = GraphMaker()
    masked = g.map("masked", lambda v: v + float("-inf"), g.input("x", 2, 8))
    assert not kept(g.done(masked))


def test_constants_beyond_half() -> None:
    g = GraphMaker()
    big = g.const("big", np.array([[1e6, 2.0, 3.0]], np.float32))
    assert kept(g.done(g.map("y", "mul", g.input("x", 4, 3), big))) == {"y"}


def test_exponentials_and_what_divides_them() -> None:
    g = GraphMaker()
    e = g.map("e", "exp", g.input("x", 4, 16))
    total = g.add("total", "Reduce", e, kind="sum", axes=(1,), keepdims=True)
    assert kept(g.done(g.map("p", "div", e, total))) == {"e", "total", "p"}


def test_squares_that_are_summed_and_their_statistics() -> None:
    g = GraphMaker()
    x = g.input("x", 4, 16)
    squares = g.map("squares", lambda v: v * v, x)
    variance = g.add("variance", "Reduce", squares, kind="mean", axes=(1,), keepdims=True)
    scale = g.map("scale", lambda v: (v + 1e-5).call("sqrt").call("recip"), variance)
    lone = g.map("lone", lambda v: v * v, x)
    assert kept(g.done(g.map("y", "mul", x, scale), lone)) == {"squares", "variance", "scale", "y"}


def test_long_sums_but_not_short_ones_or_means() -> None:
    g = GraphMaker()
    x = g.input("x", 4, 2048)
    long = g.add("long", "Reduce", x, kind="sum", axes=(1,), keepdims=True)
    mean = g.add("mean", "Reduce", x, kind="mean", axes=(1,), keepdims=True)
    short = g.add("short", "Reduce", x, kind="sum", axes=(0,), keepdims=True)
    assert kept(g.done(long, mean, short)) == {"long"}


def test_a_policy_survives_its_file(tmp_path: Path) -> None:
    kept = {"a/b": "up to 1e6", "c": "it loses 0.03"}
    path = tmp_path / "policy.json"
    for policy in (PrecisionPolicy(Precision.FP16_FAST, kept), PrecisionPolicy(Precision.FP32, kept, rounds=True)):
        path.write_text(policy.to_json())
        assert CompileOptions(precision=str(path)).precision == policy  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a precision policy: "),
        ("[1]", "is not a precision policy; `opalite verify --write-policy` writes one"),
        ('{"format": "opalite-precision", "version": 9}', "version 9, this Opalite reads 1"),
        ('{"format": "opalite-precision", "version": 1, "precision": "fp8"}', "precision 'fp8' is not known"),
        (
            '{"format": "opalite-precision", "version": 1, "precision": "fp16", "fp32": ["a"]}',
            "must give a reason, a text, for each node's name",
        ),
        (
            '{"format": "opalite-precision", "version": 1, "precision": "fp32", "rounds": 8}',
            '"rounds" is true or false, got 8',
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"policy\.json") as error:
        CompileOptions(precision=str(path))
    assert message in str(error.value)


def test_a_missing_policy_is_named() -> None:
    with pytest.raises(InputError, match=r"precision policy 'absent.json' cannot be read: No such file"):
        CompileOptions(precision="absent.json")


def test_tolerances_grow_as_digits_are_lost() -> None:
    for row in ("node", "model", "tuning"):
        columns = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, Precision.FP16_FAST)
        found = [tolerance(row, c) for c in columns]
        assert found == sorted(set(found))
        assert tolerance(row, DType.INT64) == 0.0
    for column in TOLERANCES["node"]:
        assert tolerance("node", column) < tolerance("model", column)


def test_differences_are_shares_of_the_largest_magnitude() -> None:
    want = np.array([0.0, -4.0, np.inf], np.float32)
    assert relative_difference(np.array([1.0, -4.0, np.inf], np.float32), want) == 0.25
    assert relative_difference(np.array([0.0, -4.0, 1e9], np.float32), want) == np.inf
    assert relative_difference(want.astype(np.float64), want) == np.inf
    assert relative_difference(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.25


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_a_cpu_stores_a_models_own_halves_as_floats(dtype: DType) -> None:
    """A GPU keeps them; either way the caller gives and gets the model's types."""
    for device, stored in ((CPU, DType.FLOAT32), (DeviceInfo(kind="gpu"), dtype)):
        g = GraphMaker()
        x = g.input("x", 1, 4, 5, 5, dtype=dtype)
        w = g.const("w", np.ones((4, 4, 1, 1), dtype.np))
        window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
        graph = g.done(g.map("relu", lambda v: v.call("max", 0), g.add("c", "Conv", x, w, **window)))
        set_precision(graph, PrecisionPolicy(Precision.FP32), device)
        place(graph, device)
        conv = next(n for n in graph.nodes if n.op.name == "Conv")
        assert conv.x.type.storage is stored
        assert conv.y.type.storage is stored
        assert conv.y.dtype is dtype
        program = emit(graph, device)
        assert [p.dtype for p in (*program.inputs, *program.outputs)] == [dtype, dtype]


def test_no_policy_asks_for_what_only_the_engine_chooses() -> None:
    text = HALF.to_json().replace("fp16", "wide")
    with pytest.raises(InputError, match="precision 'wide' is not known"):
        PrecisionPolicy.from_json(text)


UNARY = [row for row in FUNCTIONS.values() if row.arity == 1 and row.floats is not None and row.result is Result.SAME]


def lost_in_half(row: Function) -> float:
    """The median relative change of the result where arguments are rounded to halves."""
    low = 1.0 if row.name == "acosh" else 0.01
    x = np.random.default_rng(0).uniform(low, low + 0.9, 4096).astype(np.float32)
    with np.errstate(all="ignore"):
        exact, rounded = (np.asarray(row.numpy(a), np.float64) for a in (x, x.astype(np.float16).astype(np.float32)))
    change = np.abs(exact - rounded) / np.maximum(np.abs(exact), 1e-3)
    return float(np.median(change))


@pytest.mark.parametrize("row", UNARY, ids=lambda row: row.name)
def test_functions_that_halves_change_beyond_rounding_are_marked(row: Function) -> None:
    """A new function of a float's bits must say so in its row, or fp16 would destroy what it computes."""
    assert row.bits or lost_in_half(row) < 2e-3, f"{row.name}: set bits in its row of expr/function_table.py"


def count_ones(a: np.ndarray) -> np.ndarray:
    """A function of single bits: how many are set."""
    words = np.ascontiguousarray(a, np.float32).view(np.uint8).reshape(*a.shape, 4)
    return np.unpackbits(words, axis=-1).sum(-1).astype(np.float32)


@pytest.mark.parametrize("marked", [True, False])
def test_a_function_of_bits_keeps_its_floats_whole(monkeypatch: pytest.MonkeyPatch, marked: bool) -> None:
    row = Function("ones", count_ones, floats="(float)popcount(as_uint({0}))", bits=marked)
    assert lost_in_half(row) > 2e-3, "the test above finds such a function"
    monkeypatch.setitem(FUNCTIONS, "ones", row)
    g = GraphMaker()
    moved = g.add("moved", "Transpose", g.conv("c", g.input("x", 1, 4, 8, 8), 4), perm=(0, 1, 3, 2))
    graph = g.done(g.map("counted", "ones", moved))
    assert kept(graph) == ({"c", "moved", "counted"} if marked else set())


def test_positions_in_an_image_keep_their_digits() -> None:
    """From the network's half of them on; half tells pixels of an image of 2048 apart, and no parts of them."""
    g = GraphMaker()
    flow = g.conv("flow", g.input("x", 1, 4, 8, 8), 2)
    turned = g.add("turned", "Transpose", flow, perm=(0, 2, 3, 1))
    theta, points = g.input("theta", 1, 2, 3), g.noise("points", 64, 3)
    affine = g.add("affine", "MatMul", points, theta, trans_a=False, trans_b=True)
    grid = g.map("grid", "add", g.add("laid", "Reshape", affine, shape=(1, 8, 8, 2)), turned)
    image = g.conv("image", g.input("y", 1, 4, 8, 8), 4)
    sampled = g.add("sampled", "GridSample", image, grid, mode="linear", padding="zeros", align_corners=False)
    graph = g.done(g.conv("next", sampled, 4))
    assert kept(graph) == {"turned", "affine", "laid", "grid", "sampled"}


def test_a_product_of_many_terms_gives_positions_as_halves() -> None:
    g = GraphMaker()
    product = g.add("product", "MatMul", g.input("x", 1, 64, 16), g.noise("w", 16, 2), trans_a=False, trans_b=False)
    grid = g.add("laid", "Reshape", product, shape=(1, 8, 8, 2))
    image = g.input("y", 1, 4, 8, 8)
    graph = g.done(g.add("sampled", "GridSample", image, grid, mode="linear", padding="zeros", align_corners=False))
    assert kept(graph) == {"laid", "sampled"}
