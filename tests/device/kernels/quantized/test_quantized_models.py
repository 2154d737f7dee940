"""Models whose weights have a few bits, as exporters write them: beside onnxruntime, and held as small as they are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.models.llama import LLAMA_TINY, blocks_of, decoder, pack, step_feeds

import opalite
from onnx import TensorProto, helper, numpy_helper
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.run.report.verify_nodes import Tolerance, verify_model

ort = pytest.importorskip("onnxruntime")
rng = np.random.default_rng(5)
MS = "com.microsoft"


def model(nodes: list[Any], constants: dict[str, Any], x: Any, out: int = TensorProto.FLOAT) -> bytes:
    """A model of one input x and one output y. Constants are arrays or TensorProtos."""
    made = [a if isinstance(a, TensorProto) else numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", out, None)],
        made,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def by_ort(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    """onnxruntime's answers, which are of activations rounded to 8 bits where its optimiser makes MatMulNBits."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: list[Any] = ort.InferenceSession(data, options).run(None, feeds)
    return found


def compare(data: bytes, x: Any, device: str, tolerance: float = 1e-5, wide: bool = False) -> None:
    """Answers are onnxruntime's, by general and by special programs, and kernels on few bits compute them, if not
    `wide`."""
    (want,) = by_ort(data, {"x": x})
    session = opalite.InferenceSession(data, device=device, precision="fp32")
    first = session.run(None, {"x": x})[0]
    session.settle()
    for got in (first, session.run(None, {"x": x})[0]):
        assert got.dtype == want.dtype
        assert np.abs(got.astype(float) - want.astype(float)).max() <= tolerance * np.abs(want).max()
    assert ("Quantized" in str(session.explain())) != wide


def few_bits(n: int, k: int, bits: int, block: int, zeros: str) -> tuple[dict[str, Any], list[str]]:
    packed, scales, given = blocks_of(rng.standard_normal((n, k)).astype(np.float32), bits, block, zeros != "none")
    constants = {"b": packed, "s": scales}
    if zeros == "packed":
        constants["z"] = given
    elif zeros == "floats":
        constants["z"] = (rng.random(scales.shape) * (1 << bits)).astype(np.float32)
    return constants, ["x", *constants]


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize(
    "bits, block, zeros",
    [*itertools.product((4, 8), (16, 32, 64, 128, 256), ("none", "packed")), (4, 32, "floats"), (2, 32, "packed")],
)
def test_matmul_n_bits(rt: Any, bits: int, block: int, zeros: str, rows: int) -> None:
    n, k = 65, 276  # the last block is not whole
    constants, inputs = few_bits(n, k, bits, block, zeros)
    constants["bias"] = rng.standard_normal(n).astype(np.float32)
    inputs += ["", "", "bias"] if zeros == "none" else ["", "bias"]
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain=MS, K=k, N=n, bits=bits, block_size=block)
    x = rng.standard_normal((1, rows, k)).astype(np.float32)
    compare(model([node], constants, x), x, rt.info.id)


@pytest.mark.parametrize("n, k", [(130, 512), (33, 96)])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize(
    "bits, block, zeros", [(4, 32, "none"), (4, 128, "packed"), (8, 64, "none"), (4, 16, "packed")]
)
def test_accuracy_level_4(rt: Any, bits: int, block: int, zeros: str, rows: int, n: int, k: int) -> None:
    """Where the device sums products of bytes, rows are rounded as onnxruntime does: by first and by later programs,
    for few and many rows, for small matrices and large ones. Where that is not asked for, sums are exact."""
    constants, inputs = few_bits(n, k, bits, block, zeros)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    sizes = {"K": k, "N": n, "bits": bits, "block_size": block}
    exact, found, theirs = [], [], []
    for level, kept in ((1, exact), (4, found)):
        node = helper.make_node("MatMulNBits", inputs, ["y"], domain=MS, accuracy_level=level, **sizes)
        data = model([node], constants, x)
        session = opalite.InferenceSession(data, device=rt.info.id, precision="fp32")
        kept.append(session.run(None, {"x": x})[0])
        session.settle()
        kept.append(session.run(None, {"x": x})[0])
        theirs.append(by_ort(data, {"x": x})[0])
    largest = np.abs(exact[0]).max()
    assert np.abs(theirs[0] - exact[0]).max() <= 1e-5 * largest
    assert np.std(theirs[1] - exact[0]) > 1e-4 * largest
    want = theirs[1] if rt.info.byte_dots and (bits == 4 or rt.info.byte_dots == "fours") else exact[0]
    for got in found:
        assert np.abs(got - want).max() <= 1e-5 * largest
    report = verify_model(data, {"x": x}, device=rt.info.id, precision="fp32")
    assert report.first_failure is None


@pytest.mark.parametrize("order", ["as they lie", "whole groups", "any"])
@pytest.mark.parametrize("rows", [1, 40])
def test_accuracy_level_4_of_elements_in_groups_of_their_own(rt: Any, rows: int, order: str) -> None:
    """With g_idx onnxruntime widens weights, and rounds no rows."""
    n, k, block = 130, 512, 32
    constants, inputs = few_bits(n, k, 4, block, "none")
    groups = np.arange(k) // block
    shuffled = {"whole groups": rng.permutation(groups), "any": rng.integers(0, k // block, k)}
    constants["g"] = shuffled.get(order, groups).astype(np.int32)
    sizes = {"K": k, "N": n, "bits": 4, "block_size": block}
    node = helper.make_node("MatMulNBits", [*inputs, "", "g"], ["y"], domain=MS, accuracy_level=4, **sizes)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    compare(model([node], constants, x), x, rt.info.id, wide=order == "any")


@pytest.mark.parametrize("rows", [1, 40])
def test_rows_are_rounded_where_a_session_asks_for_it(rt: Any, rows: int) -> None:
    """precision int8 computes by a model that asks for exact sums what its copy of accuracy_level 4 computes, but for
    products that a policy names; weights in floats are rounded where they are held in 8 bits."""
    n, k = 130, 256
    constants, inputs = few_bits(n, k, 4, 32, "packed")
    x = rng.standard_normal((rows, k)).astype(np.float32)
    sizes = {"K": k, "N": n, "bits": 4, "block_size": 32}
    by_level = {}
    for level in (0, 4):
        node = helper.make_node("MatMulNBits", inputs, ["y"], "head", domain=MS, accuracy_level=level, **sizes)
        by_level[level] = model([node], constants, x)
    exact, rounded = (answer(data, x, rt.info.id) for data in by_level.values())
    assert np.array_equal(exact, rounded) == (not rt.info.byte_dots)
    assert np.array_equal(answer(by_level[0], x, rt.info.id, precision="int8"), rounded)
    kept = PrecisionPolicy(Precision.FP32, {"head": "it loses too much"}, rounds=True)
    assert np.array_equal(answer(by_level[0], x, rt.info.id, precision=kept), exact)
    session = opalite.InferenceSession(by_level[0], device=rt.info.id, precision="int8")
    assert "precision: int8, rows of products with weights of few bits in 8 bits" in str(session.explain({"x": x}))
    report = verify_model(by_level[0], {"x": x}, device=rt.info.id, precision="int8")
    assert report.first_failure is None
    assert (report.outputs[0].difference > 1e-4 * np.abs(exact).max()) == bool(rt.info.byte_dots)

    w = rng.standard_normal((k, 512)).astype(np.float32)
    floats = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, x)
    want, low = x @ w, answer(floats, x, rt.info.id, memory="low")
    both = answer(floats, x, rt.info.id, precision="int8", memory="low")
    assert np.array_equal(low, both) == (rt.info.byte_dots != "fours")
    assert np.abs(both - want).max() <= 0.02 * np.abs(want).max()
    assert np.abs(answer(floats, x, rt.info.id, precision="int8") - want).max() <= 1e-5 * np.abs(want).max()


def answer(data: bytes, x: Any, device: str, **options: Any) -> Any:
    """What first and later programs answer."""
    with opalite.InferenceSession(data, device=device, **{"precision": "fp32", **options}) as session:
        first = session.run(None, {"x": x})[0]
        session.settle()
        assert np.abs(session.run(None, {"x": x})[0] - first).max() <= 1e-5 * np.abs(first).max()
        return first


@pytest.mark.parametrize("rows", [1, 40])
def test_matmul_n_bits_in_halves(rt: Any, rows: int) -> None:
    """Activations and scales of float16, as models for GPUs have them; onnxruntime rounds more than that on CPUs."""
    n, k, block = 130, 256, 32
    w = rng.standard_normal((n, k)).astype(np.float32)
    packed, scales, _ = blocks_of(w, 4, block, False)
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain=MS, K=k, N=n, bits=4, block_size=block)
    x = rng.standard_normal((rows, k)).astype(np.float16)
    data = model([node], {"b": packed, "s": scales.astype(np.float16)}, x, TensorProto.FLOAT16)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(n, k).astype(float) - 8
    want = x.astype(float) @ (codes * np.repeat(scales.astype(np.float16).astype(float), block, 1)).T
    session = opalite.InferenceSession(data, device=rt.info.id, precision="fp32")
    first = session.run(None, {"x": x})[0]
    session.settle()
    for got in (first, session.run(None, {"x": x})[0]):
        assert got.dtype == np.float16
        assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()
    assert "Quantized" in str(session.explain())


@pytest.mark.parametrize("order", ["sorted", "shuffled", "uneven"])
def test_group_indices(rt: Any, order: str) -> None:
    """g_idx that says what is so anyway, one that shuffles whole blocks, and one whose groups are of no one size."""
    n, k, block = 130, 128, 32
    constants, inputs = few_bits(n, k, 4, block, "none")  # with zero points, onnxruntime's answer depends on g_idx
    constants["g"] = np.arange(k, dtype=np.int32) // block
    if order != "sorted":
        rng.shuffle(constants["g"])
    if order == "uneven":
        constants["g"][constants["g"] == 1] = 0
    node = helper.make_node("MatMulNBits", [*inputs, "", "g"], ["y"], domain=MS, K=k, N=n, bits=4, block_size=block)
    x = rng.standard_normal((2, k)).astype(np.float32)
    data = model([node], constants, x)
    (want,) = by_ort(data, {"x": x})
    session = opalite.InferenceSession(data, device=rt.info.id, precision="fp32")
    (got,) = session.run(None, {"x": x})
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    assert ("Quantized" in str(session.explain())) == (order != "uneven")


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("n, k, block", [(258, 64, 16), (7, 33, 64)])
def test_values_of_a_table(rt: Any, n: int, k: int, block: int, kind: int) -> None:
    """MatMulBnb4: floats of 4 bits and NF4, in blocks that go on from row to row."""
    constants = {"b": rng.integers(0, 256, -(-n * k // 2)).astype(np.uint8)}
    constants["s"] = rng.random(-(-n * k // block)).astype(np.float32) + 0.1
    sizes = {"K": k, "N": n, "block_size": block, "quant_type": kind}
    node = helper.make_node("MatMulBnb4", ["x", "b", "s"], ["y"], domain=MS, **sizes)
    x = rng.standard_normal((3, k)).astype(np.float32)
    data = model([node], constants, x)
    session = opalite.InferenceSession(data, device=rt.info.id, precision="fp32")
    (got,) = session.run(None, {"x": x})
    (want,) = by_ort(data, {"x": x})
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    assert ("Quantized" in str(session.explain())) == (n > 200)  # smaller ones are kept as floats


def test_values_of_a_table_that_are_too_few(rt: Any) -> None:
    constants = {"b": np.zeros(5, np.uint8), "s": np.ones(2, np.float32)}
    node = helper.make_node("MatMulBnb4", ["x", "b", "s"], ["y"], domain=MS, K=16, N=2, block_size=16, quant_type=1)
    x = np.ones((1, 16), np.float32)
    with pytest.raises(opalite.OpaliteError, match=r"MatMulBnb4.*weights \(5,\).*N=2, K=16"):
        opalite.InferenceSession(model([node], constants, x), device=rt.info.id).run(None, {"x": x})


def quantised(kind: str, shape: tuple[int, int]) -> TensorProto:
    low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128), "UINT8": (0, 256)}[kind]
    values = rng.integers(low, high, shape)
    return helper.make_tensor("w", getattr(TensorProto, kind), shape, values.reshape(-1))


@pytest.mark.parametrize("product", ["MatMul", "Gemm", "turned"])
@pytest.mark.parametrize("by", ["tensor", "channel", "block"])
@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "UINT8"])
def test_dequantize_linear(rt: Any, kind: str, by: str, product: str) -> None:
    """DequantizeLinear in front of MatMul, of Gemm with its matrix transposed, and of a Transpose."""
    k, n, block = 288, 71, 32
    across = product != "MatMul"
    shape = (n, k) if across else (k, n)
    axis = {"tensor": 1, "channel": 0 if across else 1, "block": 1 if across else 0}[by]
    scales = {"tensor": (), "channel": (n,), "block": (n, k // block) if across else (k // block, n)}[by]
    w = quantised(kind, shape)
    constants = {"w": w, "s": rng.random(scales).astype(np.float32) + 0.5}
    inputs = ["w", "s"]
    if kind.startswith("U"):
        middle = 8 if kind == "UINT4" else 128
        count = int(np.prod(scales, dtype=int))
        constants["z"] = helper.make_tensor("z", getattr(TensorProto, kind), scales, [middle] * count)
        inputs.append("z")
    attrs = {"axis": axis, **({"block_size": block} if by == "block" else {})}
    nodes = [helper.make_node("DequantizeLinear", inputs, ["real"], **attrs)]
    if product == "Gemm":
        nodes.append(helper.make_node("Gemm", ["x", "real"], ["y"], transB=1))
    else:
        if across:
            nodes.append(helper.make_node("Transpose", ["real"], ["t"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "t" if across else "real"], ["y"]))
    x = rng.standard_normal((3, k)).astype(np.float32)
    compare(model(nodes, constants, x), x, rt.info.id)


@pytest.mark.parametrize("kind", ["bytes", "INT4", "UINT4"])
def test_rows_of_an_embedding(rt: Any, kind: str) -> None:
    rows, columns, block = 301, 96, 32
    x = np.array([[0, 300, 17], [5, 5, 299]])
    constants: dict[str, Any] = {"s": rng.random((rows, columns // block)).astype(np.float32)}
    if kind == "bytes":
        constants["w"] = pack(rng.integers(0, 16, (rows, columns)).astype(np.uint8), 4)
        constants["z"] = pack(rng.integers(0, 16, (rows, 4)).astype(np.uint8), 4)[:, : (columns // block + 1) // 2]
    else:
        constants["w"] = quantised(kind, (rows, columns))
    inputs = ["w", "x", "s", *(["z"] if "z" in constants else [])]
    attrs = {"gather_axis": 0, "quantize_axis": 1, "block_size": block, "bits": 4}
    node = helper.make_node("GatherBlockQuantized", inputs, ["y"], domain=MS, **attrs)
    compare(model([node], constants, x), x, rt.info.id)


def test_rows_of_a_dequantised_embedding(rt: Any) -> None:
    constants = {"w": quantised("INT8", (301, 96)), "s": rng.random(301).astype(np.float32)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["real"], axis=0)]
    nodes.append(helper.make_node("Gather", ["real", "x"], ["y"], axis=0))
    x = np.array([[0, 300, 17]])
    compare(model(nodes, constants, x), x, rt.info.id)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bits, zeros", [(4, False), (4, True), (8, True)])
def test_decoders(rt: Any, bits: int, zeros: bool, tied: bool) -> None:
    shape = replace(LLAMA_TINY, tied=tied, bias=tied, width=128, inner=320, words=200)
    data = decoder(shape, bits=bits, zeros=zeros).SerializeToString()
    feeds = step_feeds(shape, 5, 3)
    want = by_ort(data, feeds)
    session = opalite.InferenceSession(data, device=rt.info.id, precision="fp32")
    for g, w in zip(session.run(None, feeds), want, strict=True):
        assert np.abs(g - w).max() <= 1e-5 * np.abs(w).max()


@pytest.mark.parametrize("half", [False, True])
def test_low_memory(rt: Any, half: bool) -> None:
    """Float weights in 8 bits lose little; the session's first run by general programs loses the same."""
    k, n = 256, 300
    kind = np.float16 if half else np.float32
    w = rng.standard_normal((k, n)).astype(kind)
    table = rng.standard_normal((400, k)).astype(kind)
    nodes = [helper.make_node("Gather", ["table", "x"], ["rows"]), helper.make_node("MatMul", ["rows", "w"], ["y"])]
    x = np.array([[3, 399, 7]])
    out = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    data = model(nodes, {"w": w, "table": table}, x, out)
    want = table[x].astype(float) @ w.astype(float)
    session = opalite.InferenceSession(data, device=rt.info.id, precision="fp32", memory="low")
    first = session.run(None, {"x": x})[0]
    session.settle()
    for got in (first, session.run(None, {"x": x})[0]):
        assert 1e-4 < np.abs(got - want).max() / np.abs(want).max() < 2e-2
    assert str(session.explain()).count("Quantized") == 2


def test_verify_tells_what_low_memory_loses(rt: Any) -> None:
    w = rng.standard_normal((256, 300)).astype(np.float32)
    x = rng.standard_normal((2, 256)).astype(np.float32)
    data = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, x)
    for relative, good in ((None, False), (0.05, True)):
        found = verify_model(data, {"x": x}, device=rt.info.id, memory="low", allowed=Tolerance(relative=relative))
        (output,) = found.outputs
        assert (found.first_failure is None) == good
        assert 1e-4 < output.difference / np.abs(x @ w).max() < 2e-2
