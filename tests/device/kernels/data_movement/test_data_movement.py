"""Movement kernels, element by element, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.errors import ShapeError
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels import kernels_for

DTYPES = (np.bool_, np.uint8, np.float16, np.float32, np.int64)
CASES: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    ("Transpose", {"perm": (1, 0)}, [(37, 53)]),
    ("Transpose", {"perm": (0, 2, 3, 1)}, [(2, 3, 11, 13)]),
    ("Transpose", {"perm": (0, 3, 1, 2)}, [(2, 11, 13, 3)]),
    ("Transpose", {"perm": (0, 2, 1, 3)}, [(2, 7, 5, 16)]),
    ("Transpose", {"perm": (5, 3, 1, 4, 2, 0)}, [(2, 3, 2, 3, 2, 3)]),
    ("Transpose", {"perm": (7, 5, 3, 1, 0, 2, 4, 6)}, [(2, 2, 2, 2, 2, 2, 2, 3)]),
    ("Transpose", {"perm": (1, 0)}, [(131, 67)]),
    ("Transpose", {"perm": (0, 2, 1)}, [(3, 21, 40)]),
    ("Transpose", {"perm": (2, 1, 0)}, [(19, 3, 35)]),
    ("Transpose", {"perm": (0, 2, 3, 1)}, [(1, 3, 17, 19)]),
    ("Transpose", {"perm": (0, 1, 4, 2, 5, 3)}, [(1, 3, 2, 2, 9, 21)]),
    ("Transpose", {"perm": (0, 1, 3, 5, 2, 4)}, [(1, 3, 9, 2, 21, 2)]),
    ("Transpose", {"perm": (0, 2, 3, 1)}, [(2, 35, 5, 7)]),
    ("Transpose", {"perm": (0, 3, 1, 2)}, [(2, 5, 7, 32)]),
    ("Transpose", {"perm": (0, 4, 1, 2, 3)}, [(2, 3, 4, 5, 33)]),
    ("Transpose", {"perm": (1, 0)}, [(0, 5)]),
    ("Transpose", {"perm": ()}, [()]),
    ("Slice", {"starts": (1, 2), "steps": (1, 1), "sizes": (3, 11)}, [(5, 17)]),
    ("Slice", {"starts": (4, 16), "steps": (-2, -3), "sizes": (3, 5)}, [(5, 17)]),
    ("Slice", {"starts": (0, 0, 1, 0), "steps": (1, 1, 2, 2), "sizes": (1, 3, 4, 5)}, [(1, 3, 9, 10)]),
    ("Slice", {"starts": (0, 16, 0, 0), "steps": (1, 1, 1, 1), "sizes": (2, 16, 5, 7)}, [(2, 32, 5, 7)]),
    ("Slice", {"starts": (0, 16, 1, 1), "steps": (1, 1, 1, 2), "sizes": (1, 7, 3, 3)}, [(1, 23, 5, 7)]),
    ("Concat", {"axis": 0}, [(3, 5), (2, 5)]),
    ("Concat", {"axis": 1}, [(3, 5), (3, 0), (3, 7)]),
    ("Concat", {"axis": 1}, [(2, 16, 3, 5), (2, 32, 3, 5), (2, 5, 3, 5)]),
    ("Concat", {"axis": 2}, [(2, 16, 3, 5), (2, 16, 4, 5)]),
    ("Concat", {"axis": 3}, [(1, 2, 3, 5), (1, 2, 3, 1)]),
    ("Pad", {"pads": (1, 2, 3, 4), "mode": "constant", "value": 3}, [(5, 7)]),
    ("Pad", {"pads": (0, 0, 2, 1, 0, 0, 1, 3), "mode": "reflect", "value": 0}, [(2, 3, 5, 7)]),
    ("Pad", {"pads": (0, 9, 0, 8), "mode": "reflect", "value": 0}, [(3, 4)]),
    ("Pad", {"pads": (0, 0, 2, 1, 0, 0, 1, 3), "mode": "symmetric", "value": 0}, [(2, 3, 5, 7)]),
    ("Pad", {"pads": (2, 9, 0, 8), "mode": "symmetric", "value": 0}, [(3, 4)]),
    ("Pad", {"pads": (2, 0, 1, 1, 5, 0), "mode": "edge", "value": 0}, [(2, 3, 5)]),
    ("Pad", {"pads": (1, 5, 0, 7), "mode": "wrap", "value": 0}, [(3, 4)]),
    ("Pad", {"pads": (0, 0, 2, 3, 0, 0, 5, 1), "mode": "constant", "value": 2}, [(2, 16, 5, 7)]),
    ("Pad", {"pads": (0, 0, 2, 3, 0, 0, 5, 1), "mode": "constant", "value": 2}, [(1, 19, 5, 37)]),
    ("Pad", {"pads": (0, 0, 2, 3, 0, 0, 5, 1), "mode": "edge", "value": 0}, [(1, 19, 5, 7)]),
    ("Pad", {"pads": (1, 0, 1, 1, 2, 0, 0, 0, 0, 3), "mode": "wrap", "value": 0}, [(2, 3, 2, 3, 5)]),
    ("Pad", {"pads": (0, 0, 3, 0, 0, 0, 2, 0), "mode": "constant", "value": 0}, [(1, 2, 3, 40)]),
    ("Pad", {"pads": (0, 0, 1, 0, 0, 21, 0, 2), "mode": "constant", "value": 0}, [(2, 19, 3, 5)]),
    ("Pad", {"pads": (0, 16, 0, 0, 0, 3, 0, 0), "mode": "constant", "value": 0}, [(1, 5, 3, 5)]),
    ("Pad", {"pads": (0, 0), "mode": "constant", "value": 0}, [(11,)]),
    ("Pad", {"pads": (2, 1), "mode": "constant", "value": 0}, [(0,)]),
]


# Neighbouring cases test a form of a kernel: each takes two of the types, in turn.
TYPED = [(*case, DTYPES[(2 * i + j) % len(DTYPES)]) for i, case in enumerate(CASES) for j in (0, 3)]


@pytest.mark.parametrize("op, attrs, shapes, dtype", TYPED)
def test_movement(rt: Runtime, op: str, attrs: dict[str, Any], shapes: list[tuple[int, ...]], dtype: Any) -> None:
    rng = np.random.default_rng(len(shapes) + sum(map(sum, shapes)))
    arrays = [rng.integers(0, 100, s).astype(dtype) for s in shapes]
    plain = make_node(op, attrs, arrays)
    wanted = plain.op.reference(arrays)[0]
    ran = 0
    for kernel in kernels_for(op):
        if kernel.refuse(kernel.problem(plain, rt.info)) is not None:
            continue
        for binding in kernel.bindings(kernel.problem(plain, rt.info)):
            node = make_node(op, attrs, arrays, binding=binding)
            got = run_node(rt, kernel, node, arrays)[0]
            np.testing.assert_array_equal(got, wanted)
            ran += 1
    assert ran, "no kernel takes the case"


@pytest.mark.parametrize(
    "attrs, shape", [(a, s[0]) for op, a, s in CASES if op == "Transpose" and len(s[0]) in (2, 4, 6)]
)
def test_transpose_parameters(rt: Runtime, attrs: dict[str, Any], shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    plain = make_node("Transpose", attrs, [x])
    for kernel in kernels_for("Transpose"):
        problem = kernel.problem(plain, rt.info)
        for binding in kernel.bindings(problem) if kernel.refuse(problem) is None else ():
            node = make_node("Transpose", attrs, [x], binding=binding)
            for params in list(kernel.points(kernel.problem(node, rt.info)))[::3]:
                got = run_node(rt, kernel, node, [x], params)[0]
                np.testing.assert_array_equal(got, x.transpose(attrs["perm"]), err_msg=f"{kernel.name} {params}")


def test_more_axes_than_a_kernel_has_are_refused(rt: Runtime) -> None:
    x = np.zeros((2,) * 12, np.float32)
    node = make_node("Transpose", {"perm": tuple(range(11, -1, -1))}, [x])
    assert all(k.refuse(k.problem(node, rt.info)) is not None for k in kernels_for("Transpose"))


@pytest.mark.parametrize(
    "op, attrs, shapes, reason",
    [
        ("Reshape", {"shape": (4, 4)}, [(3, 5)], "cannot reshape"),
        ("Transpose", {"perm": (0, 0)}, [(3, 5)], "does not permute"),
        ("Slice", {"starts": (2,), "steps": (1,), "sizes": (4,)}, [(5,)], "reads 2 to 5 of 5"),
        ("Concat", {"axis": 0}, [(3, 5), (3, 4)], "does not fit"),
        ("Pad", {"pads": (-1, 0), "mode": "constant", "value": 0}, [(3,)], "do not fit"),
        ("Pad", {"pads": (1, 0), "mode": "edge", "value": 0}, [(0,)], "nothing to pad with"),
        ("Pad", {"pads": (1, 0), "mode": "mirror", "value": 0}, [(3,)], "not known"),
    ],
)
def test_bad_attributes(op: str, attrs: dict[str, Any], shapes: list[tuple[int, ...]], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        make_node(op, attrs, [np.zeros(s, np.float32) for s in shapes])
