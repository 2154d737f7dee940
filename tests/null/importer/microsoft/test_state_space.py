"""State-space and linear attention operators, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError, UnsupportedOpError

from ..oracles import MS, Values, assert_same, by_ort, imported

V = Values(3)


def compare(op: str, arrays: list[Any], outputs: tuple[int, ...] = (0,), **attrs: Any) -> None:
    got = imported(op, arrays, outputs, domain=MS, **attrs)
    assert_same(got, by_ort(op, arrays, outputs, domain=MS, **attrs))


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("given", [False, True])
def test_causal_convolution(activation: str, dilation: int, length: int, given: bool) -> None:
    past = [V.f(5), V.f(2, 5, 3 * dilation)] if given else []
    attrs = {"activation": activation, "dilation": dilation, "ndim": 1}
    compare("CausalConvWithState", [V.f(2, 5, length), V.f(5, 1, 4), *past], (0, 1), **attrs)


@pytest.mark.parametrize("behind", [(6,), (2, 3)])
def test_causal_convolution_of_channels_last(behind: tuple[int, ...]) -> None:
    arrays = [V.f(2, 5, *behind), V.f(6, 1, 3), V.f(6), V.f(2, 2, *behind)]
    compare("CausalConvWithState", arrays, (0, 1), channels_last=1)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("queries, heads", [(2, 2), (4, 2), (2, 4)])
@pytest.mark.parametrize("steps, rows", [(1, False), (70, False), (5, True)])
def test_linear_attention(rule: str, queries: int, heads: int, steps: int, rows: bool) -> None:
    """Includes more steps than a graph could hold one by one."""
    keys = V.f(2, steps, heads * 8) / 8
    decay = -np.abs(V.f(2, steps, heads * 8 if rows else heads))
    beta = 1 / (1 + np.exp(V.f(2, steps, heads)))
    arrays = [V.f(2, steps, queries * 8), keys, V.f(2, steps, heads * 6), V.f(2, heads, 8, 6)]
    arrays += [decay if "gated" in rule else None, beta.astype(np.float32) if "delta" in rule else None]
    attrs = {"update_rule": rule, "q_num_heads": queries, "kv_num_heads": heads}
    compare("LinearAttention", arrays if arrays[-1] is not None else arrays[:5], (0, 1), **attrs)


def test_gates() -> None:
    compare("LinearAttentionGate", [V.f(2, 3, 4), V.f(4), -np.abs(V.f(4)), V.f(2, 3, 4)], (0, 1))
    for activation in ("silu", "sigmoid"):
        compare("GatedRMSNorm", [V.f(2, 3, 12), V.f(4), V.f(2, 3, 12)], activation=activation, epsilon=1e-3)
    compare("GatedAdd", [V.f(2, 3, 12), V.f(2, 3, 12), V.f(2, 3, 1)])


@pytest.mark.parametrize("layout, sections", [(0, (2, 3, 3)), (1, (3, 3, 2)), (0, (8, 0, 0))])
@pytest.mark.parametrize("shape", [(2, 5, 48), (2, 3, 5, 16)])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotation_by_three_positions(
    layout: int, sections: tuple[int, ...], shape: tuple[int, ...], interleaved: int
) -> None:
    positions, angles = V.ints(0, 11, 3, 2, 5, dtype=np.int64), V.f(11, 8)
    attrs: dict[str, Any] = {"mrope_section": list(sections), "mrope_layout": layout, "interleaved": interleaved}
    if len(shape) == 3:
        attrs["num_heads"] = shape[2] // 16
    compare("MRotaryEmbedding", [V.f(*shape), positions, np.cos(angles), np.sin(angles)], **attrs)


def test_refusals() -> None:
    x, w = V.f(2, 5, 7), V.f(5, 1, 4)
    for attrs, said in (({"ndim": 2}, "ndim"), ({"state_window": 2}, "state_window"), ({"activation": "relu"}, "relu")):
        with pytest.raises(UnsupportedOpError, match=said):
            imported("CausalConvWithState", [x, w], domain=MS, **attrs)
    q = V.f(2, 3, 8)
    with pytest.raises(ShapeError, match="'gated_delta' takes of decay and beta"):
        imported("LinearAttention", [q, q, q], domain=MS, q_num_heads=2, kv_num_heads=2)
    positions, angles = V.ints(0, 11, 3, 2, 5, dtype=np.int64), V.f(11, 8)
    with pytest.raises(ShapeError, match="three numbers that sum to those"):
        imported("MRotaryEmbedding", [V.f(2, 3, 5, 16), positions, angles, angles], domain=MS, mrope_section=[1, 2, 3])
