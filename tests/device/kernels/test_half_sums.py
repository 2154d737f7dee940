"""fp16_fast on a device with half arithmetic: every kernel that sums in half, on every node that multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.expression import evaluate
from opalite.ir import Graph, Node
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.tolerances import relative_difference, tolerance
from opalite.kernel.testing.single_node import run_node
from opalite.kernels.kernel import Binding, Kernel, kernels_for
from opalite.kernels.node_in_layouts import place_node
from opalite.kernels.node_launches import launches_of
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import optimise

from ...null.kernels.test_half_sums import nets

Array = np.ndarray[Any, Any]
MULTIPLY = ("Conv", "ConvTranspose", "MatMul")


def ways(node: Node, rt: Runtime) -> list[tuple[Kernel, Binding, Node]]:
    """Every kernel and layout in which the node is summed in half."""
    found = []
    for kernel in kernels_for(node.op.name):
        if kernel.refuse(kernel.problem(node, rt.info)) is None:
            for binding in kernel.bindings(kernel.problem(node, rt.info)):
                placed = place_node(node, binding)
                problem = kernel.problem(placed, rt.info)
                launches = launches_of(kernel, problem, kernel.defaults(problem))
                if any(x.defines.get("ACC_HALF") for x in launches):
                    found.append((kernel, binding, placed))
    return found


def expected(node: Node, arrays: Sequence[Array | None]) -> Array:
    """The reference's output, with the node's epilogue."""
    want: Array = node.op.reference(arrays)[0]
    if node.epilogue is None:
        return want
    operands = [a for a in arrays[node.op.arity :] if a is not None]
    return evaluate(node.epilogue, [want, *operands], want.shape)


@pytest.mark.parametrize("graph", list(nets()), ids=["small", "every kind"])
def test_sums_in_half_agree_with_the_reference(rt: Runtime, graph: Graph) -> None:
    if not rt.info.half_sums:
        pytest.skip("no half arithmetic")
    optimise(graph)
    set_precision(graph, PrecisionPolicy(Precision.FP16_FAST))
    rng = np.random.default_rng(5)
    kernels, wrong = set(), []
    for node in graph.nodes:
        if node.op.name not in MULTIPLY:
            continue
        arrays = [
            None if v is None else v.data if v.data is not None else rng.standard_normal(v.shape).astype(np.float32)
            for v in node.inputs
        ]
        want = expected(node, arrays)
        for kernel, binding, placed in ways(node, rt):
            (got,) = run_node(rt, kernel, placed, arrays)
            found = relative_difference(got, want.astype(np.float32))
            kernels.add(kernel.name)
            if not 0 < found <= tolerance("node", Precision.FP16_FAST):
                wrong.append(f"{kernel.name} on {node.name} in {binding}: {found:.2g}")
    assert len(kernels) >= 5, kernels
    assert not wrong, "\n".join(wrong)
