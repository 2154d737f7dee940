"""PoCL 6 at times lets work-items share a value where barriers part a kernel: such kernels are left out there."""

from __future__ import annotations

import math
from dataclasses import replace

from opalite.ir.device_family import SHARED_VALUES
from opalite.ir.place import Memory
from opalite.kernels.launches import launches_of
from opalite.kernels.meetings import meeting
from opalite.kernels.placed import place_node
from opalite.place.options import find_options
from opalite.run.execute.node import make_node

from ...helpers.kernel_nodes import samples
from .test_image_plans import load

POCL = load("pocl_avx512")
POCL_6 = replace(POCL, quirks=(*POCL.quirks, SHARED_VALUES))


def test_no_option_meets_at_barriers() -> None:
    left_out = set()
    for op, attrs, arrays, const in samples():
        if op == "PlaceCast":
            continue
        node = make_node(op, attrs, arrays, const=const)
        options, refusals = find_options(node, POCL_6, Memory.BUFFER)
        for option in options:
            if option.kernel is not None:
                p = option.kernel.problem(place_node(node, option.binding), POCL_6)
                assert meeting(option.kernel, p, option.kernel.defaults(p)) is None
        left_out |= {name for name, why in refusals.items() if "meet at barriers" in why}
    assert {"TransposeLocal", "TopKSelect", "CumulativeScan"} <= left_out
    assert not {"ReduceLines", "TopKHeap", "ConvPacked"} & left_out, "their groups are one work-item on a processor"


def test_parameters_decide_whether_work_items_meet() -> None:
    found: dict[bool, int] = {False: 0, True: 0}
    for op, attrs, arrays, const in samples():
        node = make_node(op, attrs, arrays, const=const)
        for option in find_options(node, POCL_6, Memory.BUFFER)[0] if op == "Reduce" else ():
            if option.kernel is None or option.kernel.name != "ReduceLines":
                continue
            kernel, placed = option.kernel, place_node(node, option.binding)
            p = kernel.problem(placed, POCL_6)
            for point in kernel.points(p):
                alone = all(math.prod(launch.group or (1,)) == 1 for launch in launches_of(kernel, p, point))
                assert (meeting(kernel, p, point) is None) == alone
                assert meeting(kernel, kernel.problem(placed, POCL), point) is None, "other drivers are not asked"
                found[alone] += 1
    assert all(found.values()), found
