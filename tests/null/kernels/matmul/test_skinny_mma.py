"""Which kernels multiply a few rows by constants on GPUs, untuned, and what order of weights they share."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ir.constants.lazy_array import LazyArray
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.ir.growable_tensor import PROMPT
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.kernels.launch import Weight
from opalite.kernels.matmul.skinny_mma import FORMS

H200 = read_description("nvidia_h200")
LAYERS = [(512, 2048), (2048, 2048), (8192, 2048), (2048, 8192), (32000, 2048)]
"""Columns and terms of products of a decoder of a billion weights."""


def product(rows: int, columns: int, terms: int) -> Node:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((rows, terms), (terms, columns)))
    return make_node("MatMul", {"trans_a": False, "trans_b": False}, [a, b], const=(1,), precision=DType.FLOAT16)


def fastest(node: Node) -> Kernel:
    found = [(k, k.problem(node, H200)) for k in kernels_for("MatMul") if k.tier == "optimized"]
    legal = [(k.seconds(p, node.cost()), i, k) for i, (k, p) in enumerate(found) if k.refuse(p) is None]
    return min(legal)[2]


def weights(node: Node) -> tuple[Kernel, str]:
    """The fastest kernel and the form in which it holds b."""
    kernel = fastest(node)
    problem = kernel.problem(node, H200)
    launch = kernel.launch(problem, kernel.defaults(problem))[0]
    (form,) = (a.form for a in launch.args.values() if isinstance(a, Weight))
    return kernel, form


@pytest.mark.parametrize("columns, terms", LAYERS)
def test_one_row_reads_what_prompts_multiply_by(columns: int, terms: int) -> None:
    (one, form), (many, same) = weights(product(1, columns, terms)), weights(product(PROMPT, columns, terms))
    assert one.name == "MatmulSkinnyMma"
    assert many.name in ("MatmulWgmma", "MatmulMmaStaged", "MatmulMma")
    assert form == same


def test_rows_that_fill_matrix_units_go_there() -> None:
    assert fastest(product(16, 8192, 2048)).name == "MatmulMma"


@pytest.mark.parametrize("columns, groups, blocks", [(512, 32, 1), (2048, 128, 1), (8192, 128, 4), (32000, 125, 16)])
def test_a_work_group_for_each_unit(columns: int, groups: int, blocks: int) -> None:
    """Which goes through several blocks of columns without a pause between."""
    node = product(1, columns, 2048)
    kernel = fastest(node)
    problem = kernel.problem(node, H200)
    launch = kernel.launch(problem, kernel.defaults(problem))[0]
    assert (launch.grid[0] // launch.group[0], launch.args["blocks"]) == (groups, blocks)  # type: ignore[index]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("columns, terms", [(512, 2048), (300, 264)])
def test_weights_are_packed_by_slices(
    form: int, turned: bool, columns: int, terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as whole, of the type and shape that planning takes for granted."""
    b = np.random.default_rng(0).standard_normal((columns, terms) if turned else (terms, columns)).astype(np.float32)
    a = np.broadcast_to(np.float32(0), (PROMPT, terms))
    node = make_node("MatMul", {"trans_a": False, "trans_b": turned}, [a, b], const=(1,), precision=DType.FLOAT16)
    kernel = FORMS[form]
    problem = kernel.problem(node, H200)
    assert kernel.refuse(problem) is None
    weight = kernel.launch(problem, kernel.defaults(problem))[0].args["weights"]
    assert isinstance(weight, Weight)
    whole = weight.fn(b)
    assert (whole.dtype, whole.shape) == weight.packed_type
    flat, halves = np.sort(whole.ravel()), np.sort(b.astype(np.float16).ravel())
    np.testing.assert_array_equal(flat[flat != 0], halves[halves != 0])
    monkeypatch.setattr("opalite.ir.constants.lazy_array.SLICE", 100 * columns)
    rows: list[int] = []

    def load_rows(first: int, last: int) -> np.ndarray:
        rows.append(last - first)
        return b[first:last].copy()

    stored = LazyArray(b.dtype, b.shape, lambda: pytest.fail("read whole"), load_rows=load_rows)
    np.testing.assert_array_equal(weight.fn(stored), whole)
    assert len(rows) > 1
