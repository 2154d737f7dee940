"""Pairs of quantising and dequantising around movements go where they change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.ir import DType, Graph, Value
from opalite.ops.affine_quantization import dequantized, quantized
from opalite.passes.pipeline import optimise
from opalite.passes.rewrite_driver import Context

from ....helpers.graphs import GraphMaker, operators, run_graph


def real(g: GraphMaker, name: str, q: Value, scale: float, zero: int) -> Value:
    given = g.const(f"{name}.s", np.float32(scale)), g.const(f"{name}.z", np.asarray(zero, q.dtype.np))
    return g.map(name, lambda a, s, z: dequantized(a, s, z), q, *given)


def whole(g: GraphMaker, name: str, v: Value, scale: float, zero: int, dtype: DType) -> Value:
    given = g.const(f"{name}.s", np.float32(scale)), g.const(f"{name}.z", np.asarray(zero, dtype.np))
    kind = DType.FLOAT32
    return g.map(name, lambda a, s, z: quantized(a.cast(kind) / s.cast(kind), z, dtype), v, *given)


def moved(
    dtype: DType = DType.UINT8, scale: float = 0.0371, back: float = 0.0371, zero: int = 3, more: int = 3
) -> Graph:
    """Reshape, transpose and slice of a tensor and concatenation with another, all between floats."""
    g = GraphMaker()
    a, b = (real(g, f"d{n}", g.input(n, 2, 3, 4, dtype=dtype), scale, zero) for n in "ab")
    turned = g.add("t", "Transpose", g.add("r", "Reshape", a, shape=(2, 4, 3)), perm=(0, 2, 1))
    part = g.add("s", "Slice", b, starts=(0, 0, 1), steps=(1, 1, 2), sizes=(2, 3, 2))
    return g.done(whole(g, "q", g.add("c", "Concat", turned, part, axis=2), back, more, dtype))


def every(graph: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    ends = np.iinfo(graph.inputs[0].dtype.np)
    return {v.name: rng.integers(ends.min, ends.max + 1, v.shape).astype(v.dtype.np) for v in graph.inputs}


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8, DType.UINT16, DType.INT16])
@pytest.mark.parametrize("scale", [0.0371, 1e-20, 7e9])
def test_integers_are_moved_as_they_are(dtype: DType, scale: float) -> None:
    graph = moved(dtype, scale, scale)
    before = run_graph(graph, every(graph))
    optimise(graph, Context(check=True))
    assert sorted(operators(graph)) == ["Concat", "Reshape", "Slice", "Transpose"]
    for want, got in zip(before, run_graph(graph, every(graph)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("change", [{"back": 0.0372}, {"more": 4}])
def test_another_scale_or_zero_point_quantises_again(change: dict[str, Any]) -> None:
    graph = moved(**change)
    before = run_graph(graph, every(graph))
    optimise(graph, Context(check=True))
    assert "Elementwise" in operators(graph)
    for want, got in zip(before, run_graph(graph, every(graph)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_movement_that_floats_are_asked_of_stays() -> None:
    g = GraphMaker()
    turned = g.add("t", "Transpose", real(g, "d", g.input("a", 2, 3, dtype=DType.UINT8), 0.5, 1), perm=(1, 0))
    graph = g.done(whole(g, "q", turned, 0.5, 1, DType.UINT8), turned)
    before = run_graph(graph, every(graph))
    optimise(graph, Context(check=True))
    assert operators(graph).count("Transpose") == 1
    for want, got in zip(before, run_graph(graph, every(graph)), strict=True):
        np.testing.assert_array_equal(got, want)
