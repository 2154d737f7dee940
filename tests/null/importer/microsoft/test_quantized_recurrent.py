"""DynamicQuantizeLSTM against onnxruntime, which rounds inputs once and the state at each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..oracles import MS, Values, by_ort, imported

V = Values(7)
Array = np.ndarray[Any, Any]


def arrays(directions: int, batch: int, hidden: int, per_column: bool, lengths: list[int] | None) -> list[Array | None]:
    """Inputs of 9 steps of 5 numbers."""
    given = 5
    w, r = V.u8(directions, given, 4 * hidden), V.u8(directions, hidden, 4 * hidden)
    shape = (directions, 4 * hidden) if per_column else (directions,)
    scale, zero = (np.abs(V.f(*shape)) * 0.02 + 0.01) / hidden, np.full(shape, 128, np.uint8)
    states = [0.5 * V.f(directions, batch, hidden) for _ in range(2)]
    lens = None if lengths is None else np.array(lengths, np.int32)
    return [
        V.f(9, batch, given),
        w,
        r,
        0.1 * V.f(directions, 8 * hidden),
        lens,
        *states,
        None,
        scale,
        zero,
        scale,
        zero,
    ]


@pytest.mark.parametrize(
    ("direction", "batch", "hidden", "per_column", "lengths"),
    [
        ("forward", 1, 6, False, None),
        ("reverse", 2, 7, True, None),
        ("bidirectional", 3, 6, True, None),
        ("bidirectional", 3, 6, False, [9, 2, 5]),
        ("forward", 3, 8, False, [4, 0, 6]),  # no sequence has all steps
        ("forward", 7, 300, False, None),  # more states than a work-group holds, those of 6
    ],
)
def test_dynamic_quantize_lstm(
    direction: str, batch: int, hidden: int, per_column: bool, lengths: list[int] | None
) -> None:
    given = arrays(2 if direction == "bidirectional" else 1, batch, hidden, per_column, lengths)
    attrs: dict[str, Any] = {"direction": direction, "hidden_size": hidden, "domain": MS}
    attrs["const"] = (1, 2, 3, *([] if lengths is None else [4]), 8, 9, 10, 11)
    got = imported("DynamicQuantizeLSTM", given, (0, 1, 2), **attrs)
    for g, want in zip(got, by_ort("DynamicQuantizeLSTM", given, (0, 1, 2), **attrs), strict=True):
        assert g.shape == want.shape
        # Where onnxruntime's sums round to the other one of two levels, all that follows differs by a level.
        assert np.abs(g - want).max() < (1e-5 if hidden < 300 else 0.02)


def test_lengths_that_arrive_at_a_run() -> None:
    given = arrays(2, 3, 6, False, [9, 2, 5])
    attrs: dict[str, Any] = {"direction": "bidirectional", "hidden_size": 6, "domain": MS}
    attrs["const"] = (1, 2, 3, 8, 9, 10, 11)
    got = imported("DynamicQuantizeLSTM", given, (0, 1, 2), **attrs)
    for g, want in zip(got, by_ort("DynamicQuantizeLSTM", given, (0, 1, 2), **attrs), strict=True):
        np.testing.assert_allclose(g, want, atol=1e-5)
