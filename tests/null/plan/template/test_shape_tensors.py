"""What follows from sizes, as a record that bundles hold: the importer's values at every size."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from opalite.expr.expression import Expr
from opalite.ir import DType
from opalite.ops.elementwise import Elementwise
from opalite.plan.bundle.json_codec import Encoder, decode
from opalite.plan.template.shape_tensors import ShapeTensors, ShapeTensorStep, TypeTerms, shape_tensors
from opalite.plan.template.symbolic_numbers import Term

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import parse

MASKED = """
g (float[N, 8] x, float[P, 8] past) => (float[T, 8] y, float[N, T] mask, int64[2] s) {
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    axis = Constant <value = int64[1] {1}> ()
    low = Constant <value = float {-9.0}> ()
    none = Constant <value = float {0.0}> ()
    scale = Constant <value = float {0.3}> ()
    xs = Shape(x)
    ps = Shape(past)
    n = Gather(xs, zero)
    p = Gather(ps, zero)
    t = Add(n, p)
    rows = Range(p, t, one)
    keys = Range(zero, t, one)
    column = Unsqueeze(rows, axis)
    seen = LessOrEqual(keys, column)
    mask = Where(seen, none, low)
    length = Cast <to = 1> (t)
    part = Mul(length, scale)
    both = Concat <axis = 0> (past, x)
    y = Mul(both, part)
    s = Identity(ps)
}
"""


def traced() -> tuple[Any, ShapeTensors]:
    session = NumpySession(parse(MASKED), symbols=True)
    rng = np.random.default_rng(0)
    session.run({"x": rng.random((3, 8), np.float32), "past": rng.random((5, 8), np.float32)})
    (segment,) = session.imported
    given = segment.shape_inputs
    return given, shape_tensors(len(given.trace.symbols), given.leaves, given.nodes, given.wanted)


def assert_alike(found: Any, wanted: Any) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_record_gives_what_the_importer_gives() -> None:
    given, record = traced()
    for sizes in ((3, 5), (4, 9), (30, 2)):
        assert_alike(record.at(sizes), given.at(sizes))
    assert record.at((4, 9)) is record.at((4, 9))


def test_a_record_goes_through_a_file() -> None:
    given, record = traced()
    encoder = Encoder()
    text = json.dumps(encoder.encode(record))
    again = decode(json.loads(text), encoder.arrays)
    assert_alike(again.at((7, 11)), given.at((7, 11)))


def test_what_equals_a_constant_is_no_constant() -> None:
    """An input that nobody can change crosses once and is handed out as it is; what an expression gives is its own."""
    constant = np.arange(3.0, dtype=np.float32)
    constant.flags.writeable = False
    same, rows = Expr((), (DType.FLOAT32,)), (Term("s0"), 3)
    step = ShapeTensorStep(Elementwise(same), (0,), (1,), (TypeTerms(DType.FLOAT32, (3,)),))
    spread = ShapeTensorStep(Elementwise(same, rows), (0,), (2,), (TypeTerms(DType.FLOAT32, rows),))
    record = ShapeTensors(1, ("y", "z"), (1, 2), ((0, constant),), (), (step, spread))
    found = record.at((4,))
    np.testing.assert_array_equal(found["y"], constant)
    assert found["y"].flags.writeable
    assert not np.shares_memory(found["y"], constant)
    np.testing.assert_array_equal(found["z"], np.stack([constant] * 4))
