"""Quantised operators: what is refused, and where integers keep the reference's rounding. Values: tests/fuzz/tflite."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")

from opalite.errors import UnsupportedOpError
from opalite.importer.tflite.quantization import Affine
from opalite.importer.tflite.quantized_products import product_factors
from opalite.ir import DType
from opalite.ir.device.device_info import DeviceInfo
from opalite.ir.precision import Precision

from ....fuzz.null import NullSession
from ....fuzz.tflite.oracle import Lite
from ....helpers.tflite_writer import Quant, Subgraph, write_model


def run(g: Subgraph, *arrays: object) -> list[object]:
    session = NullSession(write_model(g), DeviceInfo(kind="cpu"), Precision.FP32)
    return session.run({g.tensors[i].name: np.asarray(a) for i, a in zip(g.inputs, arrays, strict=True)})


def one_op(
    name: str, quants: list[tuple[str, Quant | None]], out: tuple[str, Quant | None], options: str = ""
) -> Subgraph:
    g = Subgraph()
    g.inputs = [g.tensor(dtype, (1, 4), quant=q) for dtype, q in quants]
    g.outputs = [g.tensor(out[0], (1, 4), quant=out[1])]
    g.op(name, g.inputs, g.outputs, options)
    return g


@pytest.mark.parametrize("scale, want", [(2.0, [2, -1, 3, -2]), (4.0, [1, -1, 2, -1])])
def test_products_are_rounded_in_fixed_point(scale: float, want: list[int]) -> None:
    """Halves go up in the product with the multiplier, and away from zero in the shift; floats round to even."""
    one = Quant((1.0,), (0,))
    g = one_op("MUL", [("int8", one), ("int8", one)], ("int8", Quant((scale,), (0,))), "MulOptions")
    (y,) = run(g, np.int8([[3, -3, 5, -5]]), np.int8([[1, 1, 1, 1]]))
    assert np.asarray(y).tolist() == [want]


def test_padding_is_the_zero_point() -> None:
    g = Subgraph()
    q = Quant((0.5,), (-7,))
    x, y = g.tensor("int8", (2,), quant=q), g.tensor("int8", (4,), quant=q)
    g.inputs, g.outputs = [x], [y]
    g.op("PAD", [x, g.const(np.int32([[1, 1]]))], [y], "PadOptions")
    (padded,) = run(g, np.int8([3, 4]))
    assert np.asarray(padded).tolist() == [-7, 3, 4, -7]


def test_an_operator_without_a_quantised_form_is_refused_by_name() -> None:
    q = Quant((0.5,), (0,))
    with pytest.raises(UnsupportedOpError, match=r"SIN node.*version 1.*quantised.*i8"):
        run(one_op("SIN", [("int8", q)], ("int8", q)), np.int8([[1, 2, 3, 4]]))


def test_several_scales_where_one_is_expected() -> None:
    q = Quant((0.5, 0.25, 0.5, 1.0), (0,) * 4, 1)
    with pytest.raises(UnsupportedOpError, match="has 4 scales for its input 0; one is expected"):
        run(one_op("TANH", [("int8", q)], ("int8", Quant((1 / 128,), (0,)))), np.int8([[1, 2, 3, 4]]))


BAD = [(Quant((0.0,)), "the scale 0.0"), (Quant((0.5,), (300,)), "zero points 300 to 300")]


@pytest.mark.parametrize("quant, why", BAD)
def test_scales_that_no_number_can_have(quant: Quant, why: str) -> None:
    one, x = Quant((1.0,)), np.int8([[1, 2, 3, 4]])
    with pytest.raises(UnsupportedOpError, match=f"ADD node.*{why}.*input 1"):
        run(one_op("ADD", [("int8", one), ("int8", quant)], ("int8", one), "AddOptions"), x, x)


def test_rows_of_a_quantised_table_are_floats() -> None:
    g = Subgraph()
    table = g.const(np.int8([[1, 2], [3, 4], [5, 6]]), quant=Quant((0.5, 1.0, 2.0), (0, 0, 1), 0))
    rows, y = g.tensor("int32", (2,)), g.tensor("float32", (2, 2))
    g.inputs, g.outputs = [rows], [y]
    g.op("EMBEDDING_LOOKUP", [rows, table], [y])
    (found,) = run(g, np.int32([2, 0]))
    assert np.asarray(found).tolist() == [[8, 10], [0.5, 1]]


def test_quantised_weights_of_a_recurrence() -> None:
    """The float operator on what the integers stand for."""
    g = Subgraph()
    rng = np.random.default_rng(1)
    x, y = g.tensor("float32", (1, 3, 2)), g.tensor("float32", (1, 3, 2))
    state = g.tensor("float32", (1, 2), variable=True)
    own, recurrent = (rng.integers(-127, 128, (2, 2)).astype(np.int8) for _ in range(2))
    held = [g.const(w, quant=Quant((0.01,))) for w in (own, recurrent)]
    g.inputs, g.outputs = [x], [y]
    ins = [x, *held, g.const(np.float32([0.1, -0.2])), state]
    g.op("UNIDIRECTIONAL_SEQUENCE_RNN", ins, [y], "SequenceRNNOptions", TimeMajor=False, FusedActivationFunction=4)
    steps = rng.standard_normal((1, 3, 2)).astype(np.float32)
    h, want = np.zeros(2), []
    for step in steps[0]:
        h = np.tanh(own * 0.01 @ step + recurrent * 0.01 @ h + [0.1, -0.2])
        want.append(h)
    np.testing.assert_allclose(np.asarray(run(g, steps)[0])[0], want, atol=1e-6)


def by_litert(g: Subgraph, *arrays: np.ndarray) -> None:
    (got,), (want,) = run(g, *arrays), Lite(g).run(list(arrays))
    np.testing.assert_array_equal(np.asarray(got), want)


BYTES = np.random.default_rng(3).integers(-128, 128, (2, 8)).astype(np.int8)


def test_weights_of_4_bits() -> None:
    g = Subgraph()
    x, y = g.tensor("int8", (2, 8), quant=Quant((0.05,), (2,))), g.tensor("int8", (2, 3), quant=Quant((0.08,), (1,)))
    q = Quant((0.05, 0.1, 0.02), (0,) * 3, 0)
    w = g.tensor("int4", (3, 8), quant=q, packed=bytes(range(30, 90, 5)))
    g.inputs, g.outputs = [x], [y]
    g.op("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions", version=7)
    by_litert(g, BYTES)


@pytest.mark.parametrize("channels", [1, 3000])
def test_rows_are_scaled_with_one_rounding(channels: int) -> None:
    """Sums that are nearly halves show a second rounding: one in a hundred of these."""
    rng, g, n = np.random.default_rng(4), Subgraph(), 3000
    scales = tuple(float(v) for v in rng.uniform(0.01, 0.03, channels).astype(np.float32))
    x, y = g.tensor("int8", (2, 8), quant=Quant((0.02,), (3,))), g.tensor("int8", (2, n), quant=Quant((0.03,), (-9,)))
    w = g.const(rng.integers(-127, 128, (n, 8)).astype(np.int8), quant=Quant(scales, (0,) * channels, 0))
    bias = g.const(rng.integers(-3000, 3000, n).astype(np.int32))
    g.inputs, g.outputs = [x], [y]
    g.op("FULLY_CONNECTED", [x, w, bias], [y], "FullyConnectedOptions", version=5)
    by_litert(g, BYTES)


def test_a_product_of_bytes_in_int32() -> None:
    g = Subgraph()
    a, b = g.tensor("int8", (2, 8), quant=Quant((0.1,), (2,))), g.tensor("int8", (8, 2), quant=Quant((0.1,), (-2,)))
    y = g.tensor("int32", (2, 2), quant=Quant((0.01,)))
    g.inputs, g.outputs = [a, b], [y]
    g.op("BATCH_MATMUL", [a, b], [y], "BatchMatMulOptions")
    by_litert(g, BYTES, BYTES.T.copy())


@pytest.mark.parametrize("name", ["ADD", "SUB"])
def test_scales_that_are_powers_of_two(name: str) -> None:
    kinds = [("int16", Quant((scale,))) for scale in (2.0**-12, 2.0**-10)]
    g = one_op(name, kinds, ("int16", Quant((2.0**-10,))), f"{name.title()}Options")
    by_litert(g, np.int16([[32767, -7, 6, 2]]), np.int16([[32767, 5, -32768, 1]]))


def test_negative_bytes() -> None:
    q = Quant((0.5,))
    by_litert(one_op("NEG", [("int8", q)], ("int8", q), "NegOptions"), np.int8([[-128, 127, 0, 3]]))
    with pytest.raises(UnsupportedOpError, match="zero points 3 and 3"):
        run(one_op("NEG", [("int8", Quant((0.5,), (3,)))] * 1, ("int8", Quant((0.5,), (3,)))), np.int8([[1, 2, 3, 4]]))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_product_of_16_bits_keeps_its_upper_half_in_bytes(dtype: str) -> None:
    half = Quant((2.0**-15,))
    g = one_op("MUL", [("int16", half)] * 2, (dtype, Quant((2.0**-7,), (4,))), "MulOptions")
    by_litert(g, np.int16([[32767, -32768, -129, 3000]]), np.int16([[-32768, -32768, 16384, 3001]]))


@pytest.mark.parametrize("axes", [[1], [0, 2]])
def test_products_along_axes(axes: list[int]) -> None:
    g = Subgraph()
    x = g.tensor("int8", (3, 4, 2), quant=Quant((0.02,), (-3,)))
    y = g.tensor("int8", (), quant=Quant((0.01,), (5,)))
    g.inputs, g.outputs = [x], [y]
    g.op("REDUCE_PROD", [x, g.const(np.int32(axes))], [y], "ReducerOptions", KeepDims=True)
    by_litert(g, np.random.default_rng(4).integers(-128, 128, (3, 4, 2)).astype(np.int8))


def test_integers_that_are_divided_as_they_are() -> None:
    q = Quant((0.5,), (3,))
    g = one_op("FLOOR_DIV", [("int8", q)] * 2, ("int8", q), "FloorDivOptions")
    by_litert(g, np.int8([[-128, 127, -127, 9]]), np.int8([[5, -5, 127, 3]]))


def test_steps_between_table_entries_wrap_around_in_16_bits() -> None:
    """From the logarithm of nothing to that of about 1, the table rises by more than 32767."""
    g = Subgraph()
    x, y = (g.tensor("int16", (128,), quant=Quant((scale,))) for scale in (0.00847, 4.421e-05))
    g.inputs, g.outputs = [x], [y]
    g.op("LOG", [x], [y])
    by_litert(g, np.arange(128, dtype=np.int16))


@pytest.mark.parametrize("activation", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_ends_of_fused_activations(activation: int, dtype: str) -> None:
    """Below 0, from -1 to 1, and above 6 are numbers of the result, whose zero point is not 0."""
    ends, q = np.iinfo(dtype), Quant((0.125,), (3,))
    g = one_op("ADD", [(dtype, q)] * 2, (dtype, q), "AddOptions")
    g.operators[0].fields["FusedActivationFunction"] = activation
    by_litert(g, np.array([[ends.min, 1, 11, ends.max]], dtype), np.array([[0, 1, 3, 60]], dtype))


def test_floats_are_quantised_with_halves_away_from_zero() -> None:
    g = one_op("QUANTIZE", [("float32", None)], ("int8", Quant((1.0,), (2,))))
    (y,) = run(g, np.float32([[0.5, -0.5, 2.5, -2.5]]))
    assert np.asarray(y).tolist() == [[3, 1, 5, -1]]
    by_litert(g, np.float32([[1e9, -1e9, 1.49, -1.51]]))


def test_one_scale_of_unsigned_bytes_is_multiplied_in_float32() -> None:
    """As LiteRT does; its signed operators multiply in float64, and so may differ in the last bit."""
    x, scales, one = np.float32(0.1), np.float32([0.7]), Affine(np.float32(1), 0, DType.INT8)
    factors = {d: product_factors(Affine(x, 0, d), scales, one)[0] for d in (DType.UINT8, DType.INT8)}
    assert factors[DType.UINT8] == float(x * scales[0])
    assert factors[DType.INT8] == float(x) * float(scales[0])
    assert factors[DType.UINT8] != factors[DType.INT8]


def test_parts_of_other_scales() -> None:
    """LiteRT moves unsigned bytes to the result's scale, and expects signed ones to have it."""
    a, b = Quant((0.5,), (3,)), Quant((0.25,), (7,))
    parts = np.uint8([[0, 9, 128, 255]]), np.uint8([[1, 8, 127, 254]])
    g = one_op("CONCATENATION", [("uint8", a), ("uint8", b)], ("uint8", a), "ConcatenationOptions")
    g.tensors[g.outputs[0]].shape = (2, 4)
    by_litert(g, *parts)
    for i in (*g.inputs, *g.outputs):
        g.tensors[i].dtype = "int8"
    with pytest.raises(UnsupportedOpError, match=r"CONCATENATION node.*parts with another scale"):
        run(g, *(p.view(np.int8) for p in parts))


def test_products_of_16_bits_have_no_zero_point() -> None:
    g = Subgraph()
    x, y = g.tensor("int16", (1, 4), quant=Quant((0.5,), (3,))), g.tensor("int16", (1, 2), quant=Quant((0.5,)))
    w = g.const(np.int8([[1, 2, 3, 4], [5, 6, 7, 8]]), quant=Quant((0.5,)))
    g.inputs, g.outputs = [x], [y]
    g.op("FULLY_CONNECTED", [x, w, -1], [y], "FullyConnectedOptions")
    with pytest.raises(UnsupportedOpError, match=r"FULLY_CONNECTED node.*zero point 3 for int16; 0 is expected"):
        run(g, np.int16([[1, 2, 3, 4]]))
