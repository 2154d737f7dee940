"""LSTM and SVDF on int8 over two runs, whose states go on, equal LiteRT's integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import opalite

from ....helpers.numpy_session import NumpySession
from ....helpers.tflite_files import TfliteFile, litert
from ..oracles import assert_same

Array = np.ndarray[Any, Any]
B, T, IN, UNITS, OUT = 2, 3, 4, 5, 3


class Layer:
    """A file of one layer on int8."""

    def __init__(self, *shape: int) -> None:
        self.file, self.rng = TfliteFile(), np.random.default_rng(2)
        self.main = self.file.main
        self.x = self.rng.integers(-128, 128, shape).astype(np.int8)
        self.inputs = [self.main.input(np.int8, shape, "x", scale=0.02, zero=5)]

    def weights(self, *shape: int, dtype: Any = np.int8, scale: float = 0.013, reach: int = 127) -> None:
        numbers = self.rng.integers(-reach, reach + 1, shape).astype(dtype)
        self.inputs.append(self.main.constant(numbers, scale=scale))

    def absent(self, count: int = 1) -> None:
        self.inputs += [-1] * count

    def state(self, dtype: Any, width: int, scale: float, zero: int = 0) -> None:
        self.inputs.append(self.main.tensor(dtype, (B, width), "", variable=True, scale=scale, zero=zero))

    def model(self, name: str, options: str, shape: Sequence[int], scale: float, **fields: Any) -> bytes:
        y = self.main.tensor(np.int8, shape, "y", scale=scale, zero=-7)
        self.main.op(name, self.inputs, [y], options, **fields)
        self.main.output(y)
        return self.file.bytes()

    def check(self, *args: Any, **fields: Any) -> Array:
        model = self.model(*args, **fields)
        session = NumpySession(model)
        state: dict[str, Array] = {}
        for runs in (1, 2):
            found, *after = session.run({"x": self.x, **state})
            state = dict(zip([v.name for v in session.model.overridable_inputs], after, strict=True))
            assert_same([found], litert(model, [self.x], runs), 0)
        return np.asarray(found)


def lstm(layer: Layer, cifg: bool = False, peepholes: bool = False, projected: bool = False, norm: bool = False) -> int:
    """Add all inputs after x; the scale's exponent of the cell is -11. Return the units of the output."""
    out = OUT if projected else UNITS
    for width in (IN, out):
        layer.absent() if cifg else layer.weights(UNITS, width)
        for k in range(3):
            layer.weights(UNITS, width, scale=0.01 + 0.004 * k)
    if peepholes:
        layer.absent() if cifg else layer.weights(UNITS, dtype=np.int16, scale=2e-4, reach=9000)
        layer.weights(UNITS, dtype=np.int16, scale=1e-4, reach=9000)
        layer.weights(UNITS, dtype=np.int16, scale=3e-4, reach=9000)
    else:
        layer.absent(3)
    layer.absent() if cifg else layer.weights(UNITS, dtype=np.int32, scale=1e-4, reach=3000)
    for _ in range(3):
        layer.weights(UNITS, dtype=np.int32, scale=1e-4, reach=3000)
    if projected:
        layer.weights(OUT, UNITS)
        layer.weights(OUT, dtype=np.int32, scale=1e-4, reach=300)
    else:
        layer.absent(2)
    layer.state(np.int8, out, 0.008, -7)
    layer.state(np.int16, UNITS, 2.0**-11)
    if norm:
        layer.absent() if cifg else layer.weights(UNITS, dtype=np.int16, scale=4e-5, reach=30000)
        for _ in range(3):
            layer.weights(UNITS, dtype=np.int16, scale=5e-5, reach=30000)
    return out


def between(layer: Layer, norm: bool = False) -> list[int]:
    """Return the tensors of the gates' and the hidden values' scales."""
    gates = [layer.main.tensor(np.int16, (), f"gate{k}", scale=3e-4 if norm else None) for k in range(4)]
    return [*gates, layer.main.tensor(np.int8, (), "hidden", scale=0.007, zero=3)]


@pytest.mark.parametrize(
    ("cifg", "peepholes", "projected", "norm", "clip"),
    [
        (False, False, False, False, 0.0),
        (True, True, False, False, 0.0),
        (False, False, True, False, 0.3),
        (True, False, False, True, 0.0),
        (False, True, False, True, 0.5),
    ],
)
def test_lstm_over_a_sequence(cifg: bool, peepholes: bool, projected: bool, norm: bool, clip: float) -> None:
    layer = Layer(T, B, IN)
    out = lstm(layer, cifg, peepholes, projected, norm)
    fields = {"timeMajor": True, "cellClip": clip, "projClip": clip, "fusedActivationFunction": 4}
    name, options = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions"
    y = layer.check(name, options, (T, B, out), 0.008, intermediates=between(layer, norm), **fields)
    assert len(np.unique(y)) > 5


def test_one_step_of_an_lstm() -> None:
    layer = Layer(B, IN)
    lstm(layer)
    layer.check("LSTM", "LSTMOptions", (B, UNITS), 0.008, intermediates=between(layer), fusedActivationFunction=4)


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf(rank: int) -> None:
    layer = Layer(B, IN)
    layer.weights(6, IN)
    layer.weights(6, 4, dtype=np.int16, scale=1e-3, reach=1000)
    layer.weights(6 // rank, dtype=np.int32, scale=1e-5, reach=30000)
    layer.state(np.int16, 6 * 4, 2e-4)
    y = layer.check("SVDF", "SVDFOptions", (B, 6 // rank), 0.1, rank=rank, fusedActivationFunction=1)
    assert len(np.unique(y)) > 3


def test_cells_whose_scale_is_no_power_of_two_are_refused() -> None:
    layer = Layer(B, IN)
    lstm(layer)
    layer.main.table.tensors[layer.inputs[19]].quantization.scale = [0.001]
    model = layer.model("LSTM", "LSTMOptions", (B, UNITS), 0.008, intermediates=between(layer))
    with pytest.raises(opalite.UnsupportedOpError, match=r"LSTM node 'y' .* cell of the scale 0.001.*; powers of two"):
        NumpySession(model).run({"x": layer.x})
