"""Einsum by products, diagonals and sums, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import OpaliteError
from opalite.importer import ImportRun, load_model
from opalite.importer.walk.constant_evaluation import evaluate_graph
from opalite.ops.matmul import MatMul

from ..oracles import Values, assert_same, imported, node_model

CASES = [
    ("ij,jk->ik", (2, 3), (3, 5)),
    ("ij,kj->ik", (2, 3), (5, 3)),
    ("ji,jk->ki", (3, 2), (3, 5)),
    ("bij,bjk->bik", (2, 3, 5), (2, 5, 7)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 7, 5)),
    ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 7, 3, 5)),
    ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 7)),
    ("...ij,jk->...ik", (2, 3, 4, 5), (5, 7)),
    ("ij...,jk...->ik...", (2, 3, 4), (3, 5, 4)),
    ("i,j->ij", (3,), (5,)),
    ("i,i->", (7,), (7,)),
    ("i,i->i", (7,), (7,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ijk,k->ij", (2, 3, 5), (5,)),
    ("ijk,jil->kl", (2, 3, 5), (3, 2, 7)),
    ("abc,cd,be->ade", (2, 3, 5), (5, 7), (3, 4)),
    ("ij,j", (2, 3), (3,)),
    ("ba,cb", (2, 3), (5, 2)),
    ("ij->ji", (2, 3)),
    ("ijk->k", (2, 3, 5)),
    ("ii->i", (5, 5)),
    ("ii", (5, 5)),
    ("...ii->...i", (2, 5, 5)),
    ("iij,jk->ik", (3, 3, 5), (5, 2)),
    ("bij,bij->b", (2, 3, 5), (2, 3, 5)),
    ("nchw,c->nchw", (2, 3, 4, 5), (3,)),
    ("a...b,b...->a...", (2, 1, 4, 3), (3, 5, 1)),
    (" i j , j k -> i k ", (2, 3), (3, 5)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].replace(" ", ""))
def test_einsum(case: tuple[object, ...]) -> None:
    equation, *shapes = case
    values = Values(3)
    arrays = [values.f(*s) for s in shapes]
    want = np.einsum(str(equation).replace(" ", ""), *arrays)
    assert_same(imported("Einsum", arrays, equation=equation), [np.asarray(want, np.float32)])


def test_sums_of_products_are_matrix_products() -> None:
    model, feeds = node_model("Einsum", [Values().f(2, 3, 4, 5), Values().f(2, 3, 7, 5)], equation="bhqd,bhkd->bhqk")
    run_ = ImportRun(load_model(model).importer, feeds, lambda importer, values: [])
    assert run_.segment is not None
    assert [n.op.name for n in run_.segment.graph.nodes] == ["MatMul"]
    assert run_.segment.graph.nodes[0].as_(MatMul).trans_b
    run_.advance(evaluate_graph(run_.segment.graph, run_.feeds))


def test_small_integers_wrap_around_like_their_type() -> None:
    a, b = Values().i8(4, 9), Values().i8(9, 3)
    assert_same(imported("Einsum", [a, b], equation="ij,jk->ik"), [np.einsum("ij,jk->ik", a, b)])


@pytest.mark.parametrize(
    ("equation", "shapes", "part"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)], "sizes 3 and 4"),
        ("ijk->i", [(2, 3)], "rank 2"),
        ("ij->ij", [(2, 3), (2, 3)], "2 inputs"),
        ("ij->k", [(2, 3)], "no input has"),
        ("ii->i", [(2, 3)], "label 'i'"),
    ],
)
def test_refusals(equation: str, shapes: list[tuple[int, ...]], part: str) -> None:
    with pytest.raises(OpaliteError, match=part):
        imported("Einsum", [Values().f(*s) for s in shapes], equation=equation)
