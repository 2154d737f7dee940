"""Recurrent layers of .tflite files over two runs, whose states go on, compared with LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ....helpers.numpy_session import NumpySession
from ....helpers.tflite_files import TfliteFile, litert
from ..oracles import assert_same

F = np.float32
B, T, IN, UNITS, OUT = 2, 3, 4, 5, 3


class Layer:
    """A file of one recurrent layer."""

    def __init__(self, *shape: int) -> None:
        self.file, self.rng = TfliteFile(), np.random.default_rng(1)
        self.main = self.file.main
        self.x = self.rng.standard_normal(shape).astype(F)
        self.inputs = [self.main.input(F, shape, "x")]

    def weights(self, *shape: int) -> None:
        self.inputs.append(self.main.constant((self.rng.standard_normal(shape) * 0.5).astype(F)))

    def absent(self, count: int = 1) -> None:
        self.inputs += [-1] * count

    def states(self, *widths: int) -> None:
        for width in widths:
            self.inputs.append(self.main.tensor(F, (B, width), f"state{width}", variable=True))

    def check(self, name: str, options: str, outputs: Sequence[tuple[int, ...]], **fields: Any) -> None:
        made = [self.main.tensor(F, shape, f"y{i}") for i, shape in enumerate(outputs)]
        self.main.op(name, self.inputs, made, options, **fields)
        self.main.output(*made)
        model = self.file.bytes()
        session = NumpySession(model)
        state: dict[str, Any] = {}
        for runs in (1, 2):
            (*found,) = session.run({"x": self.x, **state})
            names = [v.name for v in session.model.overridable_inputs]
            state = dict(zip(names, found[len(outputs) :], strict=True))
            assert_same(found[: len(outputs)], litert(model, [self.x], runs))


def lstm_weights(layer: Layer, cifg: bool = False, peepholes: bool = False, projected: bool = False) -> None:
    """The 17 inputs of one direction after x."""
    out = OUT if projected else UNITS
    for width in (IN, out):
        layer.absent() if cifg else layer.weights(UNITS, width)
        for _ in range(3):
            layer.weights(UNITS, width)
    if peepholes:
        layer.absent() if cifg else layer.weights(UNITS)
        layer.weights(UNITS)
        layer.weights(UNITS)
    else:
        layer.absent(3)
    layer.absent() if cifg else layer.weights(UNITS)
    for _ in range(3):
        layer.weights(UNITS)
    if projected:
        layer.weights(OUT, UNITS)
        layer.weights(OUT)
    else:
        layer.absent(2)


@pytest.mark.parametrize(
    ("cifg", "peepholes", "projected", "norm", "clip"),
    [
        (False, False, False, False, 0.0),
        (True, True, False, False, 0.0),
        (False, True, True, False, 0.3),
        (True, False, False, True, 0.0),
        (False, True, True, True, 0.0),
    ],
)
def test_sequence_lstm(cifg: bool, peepholes: bool, projected: bool, norm: bool, clip: float) -> None:
    layer = Layer(T, B, IN)
    lstm_weights(layer, cifg, peepholes, projected)
    layer.states(OUT if projected else UNITS, UNITS)
    if norm:
        layer.absent() if cifg else layer.weights(UNITS)
        for _ in range(3):
            layer.weights(UNITS)
    fields = {"fusedActivationFunction": 4, "timeMajor": True, "cellClip": clip, "projClip": clip}
    outs = [(T, B, OUT if projected else UNITS)]
    layer.check("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions", outs, **fields)


def test_sequence_lstm_with_the_batch_first_and_another_activation() -> None:
    layer = Layer(B, T, IN)
    lstm_weights(layer)
    layer.states(UNITS, UNITS)
    fields = {"fusedActivationFunction": 3, "timeMajor": False}
    layer.check("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions", [(B, T, UNITS)], **fields)


def test_one_step_of_an_lstm() -> None:
    layer = Layer(B, IN)
    lstm_weights(layer, peepholes=True)
    layer.states(UNITS, UNITS)
    layer.check("LSTM", "LSTMOptions", [(B, UNITS)], fusedActivationFunction=4)


@pytest.mark.parametrize("merged", [True, False])
def test_bidirectional_lstm(merged: bool) -> None:
    layer = Layer(T, B, IN)
    lstm_weights(layer)
    lstm_weights(layer, cifg=True)
    layer.states(UNITS, UNITS, UNITS, UNITS)
    layer.absent(9)
    outs = [(T, B, 2 * UNITS)] if merged else [(T, B, UNITS)] * 2
    fields = {"fusedActivationFunction": 4, "timeMajor": True, "mergeOutputs": merged}
    layer.check("BIDIRECTIONAL_SEQUENCE_LSTM", "BidirectionalSequenceLSTMOptions", outs, **fields)


def rnn_weights(layer: Layer) -> None:
    layer.weights(UNITS, IN)
    layer.weights(UNITS, UNITS)
    layer.weights(UNITS)
    layer.states(UNITS)


@pytest.mark.parametrize("activation", [1, 3, 4])
def test_rnn(activation: int) -> None:
    layer = Layer(B, IN)
    rnn_weights(layer)
    layer.check("RNN", "RNNOptions", [(B, UNITS)], fusedActivationFunction=activation)
    layer = Layer(T, B, IN)
    rnn_weights(layer)
    fields = {"fusedActivationFunction": activation, "timeMajor": True}
    layer.check("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions", [(T, B, UNITS)], **fields)


def test_bidirectional_rnn() -> None:
    layer = Layer(B, T, IN)
    rnn_weights(layer)
    rnn_weights(layer)
    layer.absent(3)
    fields = {"fusedActivationFunction": 4, "timeMajor": False, "mergeOutputs": True}
    layer.check("BIDIRECTIONAL_SEQUENCE_RNN", "BidirectionalSequenceRNNOptions", [(B, T, 2 * UNITS)], **fields)


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf(rank: int) -> None:
    layer = Layer(B, IN)
    layer.weights(6, IN)
    layer.weights(6, 4)
    layer.weights(6 // rank)
    layer.states(6 * 4)
    layer.check("SVDF", "SVDFOptions", [(B, 6 // rank)], rank=rank, fusedActivationFunction=1)
