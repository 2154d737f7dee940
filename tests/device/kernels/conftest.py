"""What is compiled without optimisation: kernels for GPUs where PoCL stands in for one, and types but float32."""

from __future__ import annotations

import pytest

from opalite.cl.runtime import Runtime

from ...helpers.plain_builds import built_plain

FOR_GPUS = (
    "attention/split.cl",
    "attention/tile.cl",
    "conv/local.cl",
    "conv/split.cl",
    "image/",
    "matmul/few.cl",
    "matmul/register.cl",
    "matmul/skinny.cl",
    "matmul/tile.cl",
    "move/transpose_local.cl",
    "quantized/skinny.cl",
    "recurrent/resident.cl",
)
"""Where sources lie of which processors are given nothing: what they cost there is far above others'."""


@pytest.fixture(scope="session")
def rt(rt: Runtime) -> Runtime:
    """Of a processor, it optimises kernels for processors alone, of float32: loops are the same for other types, and
    what differs, how elements are read and rounded, is the same for all kernels. Models have all optimised."""
    return built_plain(rt, FOR_GPUS, r"-DSTORAGE=[1-9]")
