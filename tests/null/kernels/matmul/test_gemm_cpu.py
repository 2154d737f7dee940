"""What products on CPUs fetch ahead of their use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opalite.ir.device.device_descriptions import read_description
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import kernels_for

CPU = replace(read_description("pocl_avx512"), cache_bytes=1 << 20)


@pytest.mark.parametrize(
    "rows, columns, cache, fetched",
    [
        (1, 32, 1 << 20, 0),  # 64 kB: in the cache from run to run
        (1, 32, 1 << 17, 2),
        (1, 32, 0, 2),  # the driver does not tell
        (1, 4096, 1 << 20, 2),
        (64, 32, 1 << 20, 1),  # tiles share a panel
    ],
)
def test_a_matrix_in_the_cache_is_not_fetched_ahead(rows: int, columns: int, cache: int, fetched: int) -> None:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((rows, 512), (512, columns)))
    node = make_node("MatMul", {"trans_a": False, "trans_b": False}, [a, b], const=(1,))
    (kernel,) = (k for k in kernels_for("MatMul") if k.name == "MatmulPanelsCpu")
    problem = kernel.problem(node, replace(CPU, cache_bytes=cache))
    params = {**kernel.defaults(problem), "NV": 2, "KS": 1}
    (launch,) = kernel.launch(problem, params)
    assert launch.defines["FETCH"] == fetched
