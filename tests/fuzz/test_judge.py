"""The judge: what it lets pass, what it does not, and that the fuzzer sees an engine that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from opalite.ops.pool import Pool

from .builder import make_case
from .case import Case, array, case, case_text, node, noise
from .check import check
from .judge import Fault, Oracle, compare
from .oracle import VERSION
from .shrink import find_fault, shrink

X = noise((3, 7), "f4", 1)


def relu(opset: int = 17) -> Case:
    nodes = [node("Neg", ["x"], ["a"]), node("Relu", ["a"], ["y"])]
    return case(opset=opset, inputs={"x": [3, 7]}, feeds=[{"x": X}], nodes=nodes, outputs=["y"])


def rounded() -> Case:
    """A value a rounding error below a half, which rounds up or down."""
    x = array([0.1, 0.2, 0.3], "f4")
    nodes = [node("Mul", ["x", "c"], ["a"]), node("Round", ["a"], ["y"])]
    constants = {"c": array([1, 2.5000001, 3], "f4")}
    return case(opset=17, inputs={"x": [3]}, feeds=[{"x": x}], nodes=nodes, outputs=["y"], constants=constants)


def test_tolerance_is_a_share_of_the_value_and_of_the_tensor() -> None:
    assert compare(X, X * np.float32(1 + 5e-4)) is None
    assert compare(X, X + np.float32(5e-5)) is None
    assert compare(X, X + np.float32(5e-3)).kind == "value"
    assert compare(X, X.astype("f8")).kind == "type"
    assert compare(X, X[:2]).kind == "shape"
    assert compare(X, np.where(X > 0.5, np.nan, X).astype("f4")).kind == "nan"
    assert compare(np.int64([1, 2]), np.int64([1, 3])).kind == "value"


def test_what_halves_make_equal_is_equal() -> None:
    """Of two that only float32 tells apart, halves have the first one as the largest."""
    x = array([[[1.0005, 1.00144, 0.1, 0.2]]], "f4")
    one = case(
        opset=17,
        inputs={"x": [1, 1, 4]},
        feeds=[{"x": x}],
        nodes=[node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2], strides=[2])],
        outputs=["i"],
    )
    oracle = Oracle(one.model)
    want = oracle.run({"x": x})
    assert want[0].tolist() == [[[1, 3]]]
    oracle.judge({"x": x}, want, [np.int64([[[0, 3]]])], "in halves", half=True)
    for got, half in (([[[0, 3]]], False), ([[[1, 2]]], True)):
        with pytest.raises(Fault, match="value"):
            oracle.judge({"x": x}, want, [np.int64(got)], "here", half=half)


def test_operators_between_integers_may_round_a_half_either_way() -> None:
    """Sums 2.5 and 1 at a scale of which 0.1 is no multiple in float32: the first may be 2 or 3, the other is 1."""
    a, b = array([20, 8], "u1"), array([5, 2], "u1")
    scales = {"s": array(0.1, "f4"), "t": array(1.0, "f4"), "z": array(0, "u1")}
    one = case(
        opset=17,
        inputs={"a": [2], "b": [2]},
        feeds=[{"a": a, "b": b}],
        nodes=[node("QLinearAdd", ["a", "s", "z", "b", "s", "z", "t", "z"], ["y"], domain="com.microsoft")],
        outputs=["y"],
        constants=scales,
    )
    oracle, feeds = Oracle(one.model), {"a": a, "b": b}
    want = oracle.run(feeds)
    low, high = 2, 3
    assert want[0].tolist() in ([low, 1], [high, 1])
    for first in (low, high):
        oracle.judge(feeds, want, [array([first, 1], "u1")], "here")
    for wrong in ([low, 2], [high, 0], [high + 1, 1], [low - 1, 1]):
        with pytest.raises(Fault, match="value"):
            oracle.judge(feeds, want, [array(wrong, "u1")], "here")


def test_a_mask_does_not_forgive_everything_beside_it() -> None:
    masked = np.concatenate([X.reshape(-1), [-1e30]]).astype("f4")
    wrong = masked.copy()
    wrong[0] += 0.1
    assert compare(masked, wrong).kind == "value"


def test_a_wrong_value_is_a_fault() -> None:
    oracle = Oracle(relu().model)
    want = oracle.run({"x": X})
    oracle.judge({"x": X}, want, want, "here")
    with pytest.raises(Fault, match="value: here: output 'y' at"):
        oracle.judge({"x": X}, want, [want[0] + np.float32(0.01)], "here")


def test_what_rounding_decides_is_no_fault() -> None:
    c = rounded()
    oracle = Oracle(c.model)
    feeds = c.feeds[0]
    want = oracle.run(feeds)
    other = want[0].copy()
    other[1] = 1 - other[1]
    oracle.judge(feeds, want, [other], "here")
    other[2] += 1
    with pytest.raises(Fault, match="value"):
        oracle.judge(feeds, want, [other], "here")


def test_a_seed_gives_the_same_graph() -> None:
    one, two = make_case(5), make_case(5)
    assert one is not None
    assert two is not None
    assert one.model == two.model
    assert all(np.array_equal(a, two.feeds[0][n], equal_nan=a.dtype.kind == "f") for n, a in one.feeds[0].items())


def test_a_case_is_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    for seed in range(12):
        c = make_case(seed)
        assert c is not None
        path = tmp_path / f"seed{seed}.py"
        path.write_text(case_text(c, "Any."))
        again = Case.load(path)
        assert [n.op_type for n in again.model.graph.node] == [n.op_type for n in c.model.graph.node]
        want, got = Oracle(c.model).run(c.feeds[0]), Oracle(again.model).run(again.feeds[0])
        assert all(compare(w, g) is None for w, g in zip(want, got, strict=True))


def test_a_wrong_engine_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pool that forgets its last row, some seed fails, and what is left of it is a pool."""
    right = Pool.reference

    def wrong(self, arrays):
        found = right(self, arrays)
        found[0] = found[0].copy()
        found[0][..., -1:] = 0
        return found

    monkeypatch.setattr(Pool, "reference", wrong)
    for seed in range(200):
        c = make_case(seed)
        if c is None or not any("Pool" in n.op_type for n in c.model.graph.node):
            continue
        try:
            check(c, "null", seed)
        except Fault as e:
            if e.kind == "value":
                break
    else:
        pytest.fail("no seed found it")
    small = shrink(c, lambda x: find_fault(x, "null", seed) == "value", seconds=30)
    assert len(small.model.graph.node) == 1
    assert "Pool" in small.model.graph.node[0].op_type


def test_a_quirk_of_one_node_hides_no_other_fault() -> None:
    """Where onnxruntime's Hardmax of NaN is not followed, what comes after it is judged as ever."""
    x = array([[1, 3, float("nan"), 2]], "f4")
    nodes = [node("Hardmax", ["x"], ["h"]), node("Mul", ["h", "w"], ["y"])]
    constants = {"w": array([2, 3, 5, 7], "f4")}
    c = case(opset=17, inputs={"x": [1, 4]}, feeds=[{"x": x}], nodes=nodes, outputs=["y"], constants=constants)
    oracle = Oracle(c.model)
    want = oracle.run(c.feeds[0])
    right = array([[0, 0, 5, 0]], "f4")
    assert compare(want[0], right) is not None, "onnxruntime now takes a NaN for the largest: see known.py"
    oracle.judge(c.feeds[0], want, [right], "here")
    with pytest.raises(Fault, match="value"):
        oracle.judge(c.feeds[0], want, [right + 1], "here")


def test_a_quirk_that_a_later_version_is_without() -> None:
    """Before 1.32, onnxruntime sorted NaN as it came; the right order is judged right with every version."""
    x = array([1, 3, float("nan"), 2], "f4")
    nodes = [node("TopK", ["x", "k"], ["v", "i"])]
    constants = {"k": array([3], "i8")}
    c = case(opset=17, inputs={"x": [4]}, feeds=[{"x": x}], nodes=nodes, outputs=["v", "i"], constants=constants)
    oracle = Oracle(c.model)
    want = oracle.run(c.feeds[0])
    right = [array([float("nan"), 3, 2], "f4"), array([2, 1, 3], "i8")]
    assert (compare(want[0], right[0]) is None) == (VERSION >= (1, 32))
    oracle.judge(c.feeds[0], want, right, "here")
    with pytest.raises(Fault, match="value"):
        oracle.judge(c.feeds[0], want, [array([float("nan"), 3, 1], "f4"), right[1]], "here")


def test_what_follows_an_undefined_cast_is_left_out_and_no_more() -> None:
    nodes = [node("Cast", ["x"], ["i"], to=6), node("Neg", ["x"], ["y"])]
    c = case(opset=17, inputs={"x": [1]}, feeds=[{"x": array([1e12], "f4")}], nodes=nodes, outputs=["i", "y"])
    oracle = Oracle(c.model)
    want = oracle.run(c.feeds[0])
    oracle.judge(c.feeds[0], want, [array([7], "i4"), want[1]], "here")
    with pytest.raises(Fault, match="value"):
        oracle.judge(c.feeds[0], want, [array([7], "i4"), want[1] * 2], "here")


def test_half_that_overflows_may_be_kept_wide() -> None:
    """4 / 5e-5 is beyond half's range, and its hundredth is not: onnxruntime, too, has it either way."""
    nodes = [node("Div", ["x", "s"], ["a"]), node("Mul", ["a", "h"], ["y"])]
    constants = {"s": array([5e-5], "f2"), "h": array([0.01], "f2")}
    c = case(
        opset=17, inputs={"x": [1]}, feeds=[{"x": array([4], "f2")}], nodes=nodes, outputs=["y"], constants=constants
    )
    oracle = Oracle(c.model)
    want = oracle.run(c.feeds[0])
    for y in (float("inf"), 800):
        oracle.judge(c.feeds[0], want, [array([y], "f2")], "here")
    with pytest.raises(Fault, match=r"value|inf"):
        oracle.judge(c.feeds[0], want, [array([400], "f2")], "here")
