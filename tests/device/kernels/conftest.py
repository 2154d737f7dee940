"""Kernels for GPUs are not optimised where PoCL stands in for one."""

from __future__ import annotations

import pytest

from opalite.cl.runtime import Runtime

from ...helpers.plain_builds import built_plain

FOR_GPUS = (
    "attention/tile.cl",
    "conv/local.cl",
    "conv/split.cl",
    "image/",
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
    """Of a processor, it optimises kernels for processors alone. Models, which are given those, have all optimised."""
    return built_plain(rt, FOR_GPUS)
