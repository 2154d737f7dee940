"""Lowering of launch arguments: what a kernel gives must be what its OpenCL source declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import KernelError
from opalite.ir.dtype import DType
from opalite.ir.graph import Value
from opalite.ir.place import IMAGE, OPENCL
from opalite.ir.tensor_type import TensorType
from opalite.kernels.kernel import Kernel
from opalite.kernels.launch import Arg, Launch, Local, Scratch, Weight
from opalite.kernels.lower_arguments import find_signature, lower

PRELUDE = """
#if WIDE
#define SIZE long
#else
#define SIZE int
#endif
kernel void f(global const REAL *x, global const float4 *w, SIZE count, float factor, local float *work,
              global uint *scratch, constant int *table) {}
"""


class Probe(Kernel):
    op, source = "Softmax", "norm/softmax.cl"


class Names:
    """Memory that is told by a name."""

    def of_value(self, value: Value) -> str:
        return f"value {value.name}"

    def of_weight(self, weight: Weight, texels: bool) -> tuple[str, np.dtype[Any]]:
        return f"weight {weight.form}", np.dtype(np.float32)

    def of_scratch(self, scratch: Scratch) -> str:
        return f"scratch {scratch.name}"

    def of_table(self, name: str, table: np.ndarray[Any, Any]) -> str:
        return f"table {name}"


X = Value("x", TensorType(DType.FLOAT32, (3,), OPENCL))
ARGS: dict[str, Arg] = {
    "table": np.arange(3, dtype=np.int32),
    "x": X,
    "w": Weight(X, "blocks", lambda a: a),
    "scratch": Scratch("sums", 64),
    "count": 7,
    "factor": 0.5,
    "work": Local(32),
}


def lowered(changes: dict[str, Arg] | None = None, without: str = "", wide: bool = False) -> tuple[Any, ...]:
    args = {k: v for k, v in {**ARGS, **(changes or {})}.items() if k != without}
    return lower(Probe(), Launch("f", args, (1,), defines={"WIDE": wide}, prelude=PRELUDE), Names())


def test_order_and_types_are_those_of_the_declaration() -> None:
    found = lowered()
    assert found == ("value x", "weight blocks", 7, 0.5, Local(32), "scratch sums", "table table")
    assert (found[2].dtype, found[3].dtype) == (np.int32, np.float32)
    assert lowered(wide=True)[2].dtype == np.int64


BOOL = Value("m", TensorType(DType.INT32, (3,), OPENCL))
TEXEL = Value("t", TensorType(DType.FLOAT32, (1, 4, 1, 1), OPENCL.with_layout(IMAGE)))


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"size": 1}, "size given, which it does not declare; it declares (global float *x, "),
        ({"count": 0.5}, "its parameter 'int count' is given 0.5, which is no integer"),
        ({"count": 1 << 31}, "its parameter 'int count' is given 2147483648, which int32 does not hold"),
        ({"count": np.int64(3)}, "its parameter 'int count' is given np.int64(3) of type int64"),
        ({"factor": 1}, "its parameter 'float factor' is given 1, which is an integer"),
        ({"count": X}, "its parameter 'int count' takes a number, and is given tensor"),
        ({"x": 3}, "its parameter 'global float *x' takes memory, and is given the number 3"),
        ({"x": BOOL}, "its parameter 'global float *x' reads float32, and is given tensor"),
        ({"x": TEXEL}, "its parameter 'global float *x' takes a buffer, and is given tensor"),
        ({"work": Scratch("sums", 64)}, "its parameter 'local float *work' takes local memory"),
        ({"scratch": Local(8)}, "its parameter 'global uint *scratch' takes a buffer, and is given local memory"),
        (
            {"table": np.zeros(3, np.float32)},
            "its parameter 'constant int *table' reads int32, and is given a table of",
        ),
    ],
)
def test_what_is_not_declared_is_refused(changes: dict[str, Arg], expected: str) -> None:
    with pytest.raises(KernelError) as refused:
        lowered(changes)
    assert expected.replace("np.int64(3)", repr(np.int64(3))) in str(refused.value)
    assert str(refused.value).startswith("kernel Probe, f of norm/softmax.cl: ")


def test_what_is_declared_must_be_given() -> None:
    with pytest.raises(KernelError, match="nothing is given for factor; it declares"):
        lowered(without="factor")


BRANCHES = """
kernel void f(global const REAL *x,  // the input (of the node, which {may} be absent
#if BIASES > 0
    global const REAL *b0,
#if BIASES > 1  /* the second ( */
    global const REAL *b1,
#endif
#else
    float zero,
#endif
#ifdef FAST
    int fast,
#elif BIASES == 2
    unsigned slow,
#endif
    global REAL *y, int count) {}
"""


@pytest.mark.parametrize(
    "defines, names",
    [
        ({"BIASES": 0}, ["x", "zero", "y", "count"]),
        ({"BIASES": 1, "FAST": True}, ["x", "b0", "fast", "y", "count"]),
        ({"BIASES": 2}, ["x", "b0", "b1", "slow", "y", "count"]),
    ],
)
def test_conditions_between_parameters(defines: dict[str, Any], names: list[str]) -> None:
    found = find_signature("norm/softmax.cl", BRANCHES, {"STORAGE": 0, **defines}, "f")
    assert [p.name for p in found] == names
    assert all(p.type == "uint" for p in found if p.name == "slow")
