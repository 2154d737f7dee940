"""PoCL 5 and 6 at times lets work-items share a value where barriers part a kernel: such kernels are left out there."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from opalite.ir.device.device_family import SHARED_VALUES
from opalite.ir.place import Memory
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import kernels_for
from opalite.kernels.node_in_layouts import place_node
from opalite.kernels.node_launches import barrier_refusal, launches_of
from opalite.layout.kernel_candidates import find_options

from ...helpers.kernel_nodes import samples
from .test_image_plans import load

POCL = load("pocl_avx512")
SHARING = replace(POCL, quirks=(*POCL.quirks, SHARED_VALUES))


def test_no_option_meets_at_barriers() -> None:
    left_out = set()
    for op, attrs, arrays, const in samples():
        if op == "PlaceCast":
            continue
        node = make_node(op, attrs, arrays, const=const)
        options, refusals = find_options(node, SHARING, Memory.BUFFER)
        for option in options:
            if option.kernel is not None:
                p = option.kernel.problem(place_node(node, option.binding), SHARING)
                assert barrier_refusal(option.kernel, p, option.kernel.defaults(p)) is None
        left_out |= {name for name, why in refusals.items() if "uses barriers" in why}
    assert {"TransposeLocalMemory", "TopKSelect", "CumulativeParallelScan"} <= left_out
    assert not {"ReduceMiddleAxis", "TopKHeap", "ConvPacked"} & left_out, (
        "their groups are one work-item on a processor"
    )
    assert not {"ArgReduceRows", "NmsHeap"} & left_out, "their barriers are in parts that are not compiled"


def test_parameters_decide_whether_work_items_meet() -> None:
    found: dict[bool, int] = {False: 0, True: 0}
    kernel = next(kernel for kernel in kernels_for("Recurrent") if kernel.name == "RnnAnyWeights")
    for op, attrs, arrays, const in samples():
        if op != "Recurrent":
            continue
        node = make_node(op, attrs, arrays, const=const)
        placed = place_node(node, kernel.bindings(kernel.problem(node, SHARING))[0])
        p = kernel.problem(placed, SHARING)
        for point in kernel.points(p):
            alone = all(prod(launch.group or (1,)) == 1 for launch in launches_of(kernel, p, point))
            assert (barrier_refusal(kernel, p, point) is None) == alone
            assert barrier_refusal(kernel, kernel.problem(placed, POCL), point) is None, "other drivers are not asked"
            found[alone] += 1
    assert all(found.values()), found


def test_barriers_that_are_not_compiled_part_nothing() -> None:
    """Rows of a group, whose work-items share nothing, have none; what folds rows stands in the prelude."""
    node = make_node("Reduce", {"kind": "sum", "axes": (1,), "keepdims": True}, [np.zeros((64, 64), np.float32)])
    kernel = next(kernel for kernel in kernels_for("Reduce") if kernel.name == "ReduceRows")
    p = kernel.problem(place_node(node, kernel.bindings(kernel.problem(node, SHARING))[0]), SHARING)
    point = {**kernel.defaults(p), "ROWS": 8}
    assert barrier_refusal(kernel, p, {**point, "WG": 1}) is None
    assert "uses barriers" in str(barrier_refusal(kernel, p, {**point, "WG": 2}))
