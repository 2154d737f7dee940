"""What is compiled without optimisation: kernels for GPUs where PoCL stands in for one, and types but float32."""

from __future__ import annotations

import pytest

from opalite.cl.runtime import Runtime

from ...helpers.plain_builds import built_plain

FOR_GPUS = (
    "attention/decode_split_kv.cl",
    "attention/tiled_gpu.cl",
    "conv/implicit_gemm_local.cl",
    "conv/direct_split_k.cl",
    "image/",
    "matmul/skinny_mma.cl",
    "matmul/gemm_register_tile.cl",
    "matmul/skinny_split_k.cl",
    "matmul/gemm_local_tile.cl",
    "data_movement/transpose_local_memory.cl",
    "quantized/quantized_gemv_gpu.cl",
    "recurrent/persistent_rnn.cl",
)
"""Where sources lie of which processors are given nothing: what they cost there is far above others'."""


@pytest.fixture(scope="session")
def rt(rt: Runtime) -> Runtime:
    """Of a processor, it optimises kernels for processors alone, of float32: loops are the same for other types, and
    what differs, how elements are read and rounded, is the same for all kernels. Models have all optimised."""
    return built_plain(rt, FOR_GPUS, r"-DSTORAGE=[1-9]")
