"""TreeEnsemble's kernel against the reference: comparisons, aggregates, types, parts and lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.importer.ml.tree_arrays import flat_trees
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for
from opalite.ops.tree_ensemble import AGGREGATES

from ....helpers.forests import ALL_MODES, FEATURES, forest

KERNEL = kernels_for("TreeEnsemble")[0]


def check(
    rt: Runtime,
    rows: int,
    columns: list[int],
    aggregate: str = "sum",
    params: dict[str, int] | None = None,
    dtype: Any = np.float32,
    modes: tuple[str, ...] = ALL_MODES,
) -> None:
    rng = np.random.default_rng(rows)
    t = flat_trees(forest("target", columns, trees=13, modes=modes), "target", "forest")
    x = np.where(
        rng.random((rows, FEATURES)) < 0.3, rng.integers(-2, 3, (rows, FEATURES)), rng.random((rows, FEATURES))
    )
    x[rng.random(x.shape) < 0.1] = np.nan
    arrays = [x.astype(dtype), t.limits.astype(dtype), t.nodes, t.roots, t.leaves, t.columns, t.weights.astype(dtype)]
    attrs = {"columns": max(columns) + 1, "aggregate": aggregate, "depth": t.depth}
    node = make_node("TreeEnsemble", attrs, arrays, const=range(1, 7))
    got = run_node(rt, KERNEL, node, arrays, params)[0]
    np.testing.assert_allclose(got, node.op.reference(arrays)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("columns", [[0], [0, 1, 2], [0, 3]])
def test_aggregates(rt: Runtime, columns: list[int], aggregate: str) -> None:
    check(rt, 37, columns, aggregate)


@pytest.mark.parametrize("mode", ALL_MODES)
def test_each_comparison_alone(rt: Runtime, mode: str) -> None:
    check(rt, 19, [0], modes=(mode,))


@pytest.mark.parametrize("parts", [1, 3, 64])
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("rows", [1, 17, 101])
def test_rows_at_once_and_parts(rt: Runtime, rows: int, lanes: int, parts: int) -> None:
    for aggregate in ("average", "max"):
        check(rt, rows, [0, 1], aggregate, {"ROWS": lanes, "EACH": 2, "PARTS": parts})


def test_double(rt: Runtime) -> None:
    if not rt.info.fp64:
        pytest.skip("the device has no double precision")
    check(rt, 23, [0, 1], dtype=np.float64)
