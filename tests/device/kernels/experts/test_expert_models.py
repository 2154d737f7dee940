"""Models with experts beside onnxruntime, in floats and in few bits, and what they are refused for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from onnx import helper, numpy_helper

from ....helpers.unrolled_experts import WIDTH, Unrolled

ort = pytest.importorskip("onnxruntime", minversion="1.32")  # earlier ones take other forms of QMoE
Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)
EXPERTS, HIDDEN, INNER = 6, 32, 64
MOE = ["x", "r", "w1", "b1", "w2", "b2", "w3", "b3"]
QMOE = ["x", "r", *(f"{c}{i}" for i in (1, 2, 3) for c in "wsb"), "z1", "z2", "z3", "rw"]
FED = ("x", "r", "rw")


def noise(*shape: int) -> Array:
    return (rng.standard_normal(shape) * 2 / shape[-1] ** 0.5).astype(np.float32)


def packed(numbers: Array, bits: int) -> Array:
    """Integers along the last axis as bytes, the low bits first."""
    each = 8 // bits
    numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % each)])
    out = np.zeros((*numbers.shape[:-1], numbers.shape[-1] // each), np.uint8)
    for i in range(each):
        out |= numbers[..., i::each] << np.uint8(i * bits)
    return out


def few_bits(
    shape: tuple[int, int, int], bits: int, block: int, zeros: bool
) -> tuple[Array, Array, Array | None, Array]:
    """(packed integers, scales, packed zero points, the floats that they stand for)."""
    experts, rows, columns = shape
    size = block or columns
    q = rng.integers(0, 1 << bits, (experts, rows, columns // size, size)).astype(np.uint8)
    scale = ((rng.random(q.shape[:3]) + 0.5) / (1 << (bits - 1)) / columns**0.5).astype(np.float32)
    zero = rng.integers(0, 1 << bits, q.shape[:3]).astype(np.uint8)
    middle = zero if zeros else np.full_like(zero, 1 << (bits - 1))
    real = ((q - middle[..., None].astype(np.float32)) * scale[..., None]).reshape(shape).astype(np.float32)
    held = packed(zero, bits) if block else packed(zero[..., 0], bits)
    return packed(q.reshape(shape), bits), scale if block else scale[..., 0], held if zeros else None, real


def model(op: str, names: list[str], arrays: dict[str, Array | None], attrs: dict[str, Any]) -> bytes:
    inputs = [n if arrays.get(n) is not None else "" for n in names]
    given = {n: a for n, a in arrays.items() if a is not None}

    def info(name: str, a: Array, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), shape)

    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], "node", domain="com.microsoft", **attrs)],
        "g",
        [info(n, a, ["n", *a.shape[1:]] if a.ndim == 2 else a.shape) for n, a in given.items() if n in FED],
        [info("y", given["x"], None)],
        [numpy_helper.from_array(a, n) for n, a in given.items() if n not in FED],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def feeds_of(arrays: dict[str, Array | None], rows: int | None = None) -> dict[str, Array]:
    return {n: a[:rows] for n, a in arrays.items() if a is not None and n in FED}


def by_ort(data: bytes, feeds: dict[str, Array]) -> Array:
    found: Array = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    return found


def compare(data: bytes, feeds: dict[str, Array], want: Array, device: str, tolerance: float = 1e-5) -> None:
    """By first programs and by later ones."""
    session = opalite.InferenceSession(data, device=device, precision="fp32")
    first = session.run(None, feeds)[0]
    session.settle()
    for got in (first, session.run(None, feeds)[0]):
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        assert np.abs(got.astype(float) - want).max() <= tolerance * np.abs(want).max()
    assert "Expert" in str(session.explain())


def floats(rows: int, gated: bool = False, biases: bool = True) -> dict[str, Array | None]:
    inner = INNER * (2 if gated else 1)
    made: dict[str, Array | None] = {"x": rng.standard_normal((rows, HIDDEN)).astype(np.float32)}
    made |= {"r": rng.standard_normal((rows, EXPERTS)).astype(np.float32)}
    made |= {"w1": noise(EXPERTS, inner, HIDDEN), "w2": noise(EXPERTS, HIDDEN, INNER)}
    if biases:
        made |= {"b1": noise(EXPERTS, inner), "b2": noise(EXPERTS, HIDDEN)}
    return made


GPT_OSS = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}


@pytest.mark.parametrize("normalised", [0, 1])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_floats(rt: Any, activation: str, normalised: int) -> None:
    gated = activation == "swiglu"
    arrays = floats(5, gated, biases=activation != "silu")
    attrs = {"k": 2, "activation_type": activation, "normalize_routing_weights": normalised}
    attrs |= {"swiglu_fusion": 1, **GPT_OSS} if gated else {}
    data = model("MoE", MOE, arrays, attrs)
    compare(data, feeds_of(arrays), by_ort(data, feeds_of(arrays)), rt.info.name)


def test_defaults(rt: Any) -> None:
    """One expert, relu, weights as they are."""
    arrays = floats(4, biases=False)
    data = model("MoE", MOE, arrays, {})
    compare(data, feeds_of(arrays), by_ort(data, feeds_of(arrays)), rt.info.name)


def test_halves(rt: Any) -> None:
    arrays = {n: None if a is None else a.astype(np.float16) for n, a in floats(4).items()}
    data = model("MoE", MOE, arrays, {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1})
    compare(data, feeds_of(arrays), by_ort(data, feeds_of(arrays)), rt.info.name, 3e-3)


def quantised(rows: int, bits: int, block: int, zeros: bool, gated: bool = True) -> dict[str, Array | None]:
    arrays = floats(rows, gated)
    for i in "12":
        shape = arrays[f"w{i}"].shape  # type: ignore[union-attr]
        arrays[f"w{i}"], arrays[f"s{i}"], arrays[f"z{i}"], arrays[f"real{i}"] = few_bits(shape, bits, block, zeros)
    return arrays


def in_floats(arrays: dict[str, Array | None], attrs: dict[str, Any]) -> Array:
    """onnxruntime's answer for the floats that the integers stand for."""
    same = {n: arrays[n] for n in ("x", "r", "b1", "b2")}
    given = same | {"w1": arrays["real1"], "w2": arrays["real2"]}
    kept = ("k", "activation_type", "swiglu_fusion", *GPT_OSS)
    made = {n: v for n, v in attrs.items() if n in kept} | {"normalize_routing_weights": 1}
    return by_ort(model("MoE", MOE, given, made), feeds_of(given))


def held(arrays: dict[str, Array | None]) -> dict[str, Array | None]:
    return {n: a for n, a in arrays.items() if not n.startswith("real")}


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_few_bits(rt: Any, bits: int, block: int, zeros: bool) -> None:
    """onnxruntime's CPU provider rounds rows to 8 bits for blocks of 8 bits, and some of 2: there it is loose."""
    attrs = {"k": 3, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": bits, **GPT_OSS}
    attrs |= {"block_size": block} if block else {}
    arrays = quantised(7, bits, block, zeros)
    data = model("QMoE", QMOE, held(arrays), attrs)
    want, theirs = in_floats(arrays, attrs), by_ort(data, feeds_of(arrays))
    assert np.abs(theirs - want).max() <= 0.05 * np.abs(want).max()
    compare(data, feeds_of(arrays), want, rt.info.name)


@pytest.mark.parametrize("normalised", [0, 1])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
def test_activations_of_few_bits(rt: Any, activation: str, normalised: int) -> None:
    """Scores of those picked make weights whatever normalize_routing_weights says."""
    attrs = {"k": 2, "activation_type": activation, "normalize_routing_weights": normalised, "block_size": 32}
    arrays = quantised(3, 4, 32, False, gated=False)
    data = model("QMoE", QMOE, held(arrays), attrs)
    compare(data, feeds_of(arrays), by_ort(data, feeds_of(arrays)), rt.info.name)


@pytest.mark.parametrize("normalised", [0, 1])
def test_router_weights(rt: Any, normalised: int) -> None:
    attrs = {"k": 3, "activation_type": "swiglu", "swiglu_fusion": 1, "block_size": 16, "weights_prepacked": 0}
    arrays = quantised(5, 4, 16, True)
    arrays["rw"] = rng.random((5, EXPERTS)).astype(np.float32)
    data = model("QMoE", QMOE, held(arrays), attrs | {"normalize_routing_weights": normalised})
    compare(data, feeds_of(arrays), by_ort(data, feeds_of(arrays)), rt.info.name)


@pytest.mark.parametrize("level", [0, 4])
def test_batches(rt: Any, level: int) -> None:
    """x of rank 3; rows are not rounded where the model would let them be."""
    attrs = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "block_size": 32, "accuracy_level": level}
    arrays = quantised(6, 4, 32, False)
    want = in_floats(arrays, attrs).reshape(2, 3, HIDDEN)
    arrays["x"] = arrays["x"].reshape(2, 3, HIDDEN)  # type: ignore[union-attr]
    data = model("QMoE", QMOE, held(arrays), attrs)
    assert np.abs(by_ort(data, feeds_of(arrays)) - want).max() <= (0.05 if level else 1e-5) * np.abs(want).max()
    compare(data, feeds_of(arrays), want, rt.info.name)


@pytest.mark.parametrize("fusion", [0, 2])
def test_other_forms_of_gates(rt: Any, fusion: int) -> None:
    """Gates apart, in fc3, or in front of values, which onnxruntime's CPU provider does not take: as if interleaved."""
    arrays = floats(5, gated=True)
    attrs = {"k": 2, "activation_type": "swiglu", "normalize_routing_weights": 1, **GPT_OSS}
    want = by_ort(model("MoE", MOE, arrays, attrs | {"swiglu_fusion": 1}), feeds_of(arrays))
    w, b = arrays["w1"], arrays["b1"]
    assert w is not None
    assert b is not None
    if fusion == 2:
        other = {"w1": np.concatenate([w[:, ::2], w[:, 1::2]], 1), "b1": np.concatenate([b[:, ::2], b[:, 1::2]], 1)}
    else:
        other = {"w1": w[:, ::2], "b1": b[:, ::2], "w3": w[:, 1::2], "b3": b[:, 1::2]}
    data = model("MoE", MOE, arrays | other, attrs | {"swiglu_fusion": fusion})
    compare(data, feeds_of(arrays), want, rt.info.name)


def test_gates_of_few_bits_in_front_of_values(rt: Any) -> None:
    arrays = quantised(4, 4, 16, True)
    attrs = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "block_size": 16}
    want = in_floats(arrays, attrs)
    for n in ("w1", "s1", "z1", "b1"):
        a = arrays[n]
        assert a is not None
        arrays[n] = np.concatenate([a[:, ::2], a[:, 1::2]], 1)
    data = model("QMoE", QMOE, held(arrays), attrs | {"swiglu_fusion": 2})
    compare(data, feeds_of(arrays), want, rt.info.name)


def test_bits_of_each_layer(rt: Any) -> None:
    attrs = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "block_size": 32, "fc2_expert_weight_bits": 8}
    arrays = quantised(4, 4, 32, True)
    shape = (EXPERTS, HIDDEN, INNER)
    arrays["w2"], arrays["s2"], arrays["z2"], arrays["real2"] = few_bits(shape, 8, 32, True)
    compare(model("QMoE", QMOE, held(arrays), attrs), feeds_of(arrays), in_floats(arrays, attrs), rt.info.name)


def test_more_tokens_later(rt: Any) -> None:
    """One session: a prompt, single tokens, a longer prompt."""
    attrs = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "block_size": 32}
    arrays = quantised(40, 4, 32, True)
    data = model("QMoE", QMOE, held(arrays), attrs)
    want = by_ort(data, feeds_of(arrays))
    session = opalite.InferenceSession(data, device=rt.info.name, precision="fp32")
    for rows in (5, 1, 1, 40, 1):
        got = session.run(None, feeds_of(arrays, rows))[0]
        assert np.abs(got - want[:rows]).max() <= 1e-5 * np.abs(want).max()
        session.settle()


def test_weights_beside_the_model(rt: Any, tmp_path: Any) -> None:
    """Read by parts that end inside an expert, gates in front of values and between them."""
    shape, attrs = (3, 1024, 4096), {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": 8}
    arrays: dict[str, Array | None] = {"x": rng.standard_normal((3, 4096)).astype(np.float32)}
    arrays |= {"r": rng.standard_normal((3, 3)).astype(np.float32), "b1": noise(3, 1024)}
    arrays["w1"], arrays["s1"], arrays["z1"], _ = few_bits(shape, 8, 0, True)
    arrays["w2"], arrays["s2"], _, _ = few_bits((3, 4096, 512), 8, 0, False)
    want = by_ort(model("QMoE", QMOE, arrays, attrs), feeds_of(arrays))
    for fusion in (1, 2):
        if fusion == 2:
            for n in ("w1", "s1", "z1", "b1"):
                a = arrays[n]
                assert a is not None
                arrays[n] = np.concatenate([a[:, ::2], a[:, 1::2]], 1)
        file = tmp_path / f"{fusion}.onnx"
        made = onnx.load_from_string(model("QMoE", QMOE, arrays, attrs | {"swiglu_fusion": fusion}))
        onnx.save_model(made, file, save_as_external_data=True, location=f"{fusion}.data", size_threshold=1024)
        got = opalite.InferenceSession(file, device=rt.info.name, precision="fp32").run(None, feeds_of(arrays))[0]
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    "attrs, message",
    [
        ({"quant_type": "fp8"}, "quant_type 'fp8'.*export integers"),
        ({"weights_prepacked": 1}, "packed for one device; export weights_prepacked=0"),
        ({"use_sparse_mixer": 1}, "use_sparse_mixer, which is not supported"),
        ({"expert_weight_bits": 3}, "experts of 3 bits; export 2, 4 or 8"),
        ({"activation_type": "geglu", "swiglu_fusion": 0}, "activation_type 'geglu' with swiglu_fusion=0; known are"),
        ({"k": 7}, "picks k=7 of 6 experts"),
        ({"block_size": 16}, r"scales .* of fc1; expected \[6, 128, 2\]"),
        ({"swiglu_fusion": 0}, "swiglu_fusion=0, but no fc3"),
        ({"expert_weight_bits": 8}, r"128 rows of 16, for x"),
    ],
)
def test_refusals(rt: Any, attrs: dict[str, Any], message: str) -> None:
    arrays = quantised(4, 4, 32, False)
    usual = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "block_size": 32}
    data = model("QMoE", QMOE, held(arrays), usual | attrs)
    with pytest.raises(opalite.OpaliteError, match=f"(?s)node.*{message}"):
        opalite.InferenceSession(data, device=rt.info.name).run(None, feeds_of(arrays))


@pytest.mark.parametrize(("style", "bits"), [("trace", 0), ("dynamo", 4), ("assign", 0)])
def test_unrolled_loops(style: str, bits: int) -> None:
    """One program computes what an exporter unrolled, at any number of tokens."""
    made = Unrolled(style, bits=bits).build()
    session = opalite.InferenceSession(made)
    reference = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    for batch, steps in ((1, 1), (2, 9)):
        feeds = {"x": noise(batch, steps, WIDTH)}
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run(None, feeds)[0], rtol=1e-4, atol=1e-4)
