"""Which kernels multiply by matrices of a few bits untuned, and what they share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.device.device_family import BYTE_PAIRS, NO_ASSEMBLY, PTX_MMA
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.kernels.launch import Weight
from opalite.kernels.quantized.dynamic_quantized_matmul import DynamicQuantizedMatmul
from opalite.kernels.quantized.pack_low_bit import codebook_defines

DEVICES = {name: read_description(name) for name in description_names()}
GPUS = [n for n, d in DEVICES.items() if d.max_work_group_size >= 64 and not d.is_cpu and d.local_mem >= 1 << 14]
LAYERS = [(512, 2048), (2048, 2048), (8192, 2048), (2048, 8192), (32000, 2048)]
"""Columns and terms of products of a decoder of a billion weights."""


def product(rows: int, columns: int, terms: int, bits: int = 4, *, rounds: bool = False) -> Node:
    """Blocks of 32 with zero points."""
    shapes = ((rows, terms), np.float32), ((columns, terms), np.uint8)
    a, b = (np.broadcast_to(np.zeros((), kind), shape) for shape, kind in shapes)
    scale, zero = (np.broadcast_to(np.zeros((), kind), (columns, terms // 32)) for kind in (np.float32, np.uint8))
    attrs = {"trans_a": False, "trans_b": True, "bits": bits, "block": 32, "rounds": rounds}
    return make_node("QuantizedMatMul", attrs, [a, b, scale, zero], const=(1, 2, 3), precision=DType.FLOAT16)


def kernel_named(name: str) -> Kernel:
    return next(k for k in kernels_for("QuantizedMatMul") if k.name == name)


def fastest(node: Node, device: DeviceInfo) -> Kernel:
    """The special kernel that is expected to take least."""
    kernels = [k for k in kernels_for("QuantizedMatMul") if device.prefers_images or not k.images_only]
    found = [(k, k.problem(node, device)) for k in kernels if k.tier == "optimized"]
    legal = [(k.seconds(p, node.cost()), i, k) for i, (k, p) in enumerate(found) if k.refuse(p) is None]
    return min(legal)[2]


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("columns, terms", LAYERS)
def test_one_row_reads_the_weights_once(name: str, columns: int, terms: int) -> None:
    found = fastest(product(1, columns, terms), DEVICES[name]).name
    if DEVICES[name].prefers_images:  # whichever takes fewer casts
        assert found in ("QuantizedGemvGpu", "ImageQuantizedMatmul")
    else:
        assert found == ("QuantizedSkinnyMma" if PTX_MMA in DEVICES[name].quirks else "QuantizedGemvGpu")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("rows", [1, 2, 5, 16])
@pytest.mark.parametrize("columns, terms", LAYERS)
def test_matrix_units_multiply_few_rows(rows: int, columns: int, terms: int, bits: int) -> None:
    assert fastest(product(rows, columns, terms, bits), DEVICES["nvidia_h200"]).name == "QuantizedSkinnyMma"


@pytest.mark.parametrize(
    "columns, terms, groups, sixteens, split",
    [(512, 2048, 32, 1, 1), (2048, 2048, 128, 1, 1), (8192, 2048, 128, 4, 2), (2048, 8192, 128, 1, 1)],
)
def test_a_work_group_for_each_unit(columns: int, terms: int, groups: int, sixteens: int, split: int) -> None:
    """Which goes through several times 16 columns, eight quads of a work-item on their way where there are so many."""
    kernel, node = kernel_named("QuantizedSkinnyMma"), product(1, columns, terms)
    problem = kernel.problem(node, DEVICES["nvidia_h200"])
    (launch,) = kernel.launch(problem, kernel.defaults(problem))
    assert launch.group is not None
    assert (launch.grid[0] // launch.group[0], launch.args["sixteens"], launch.defines["SPLIT"]) == (
        groups,
        sixteens,
        split,
    )
    assert launch.defines["UNROLL"] == min(8, sixteens * terms // 512)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"rows": 17}, "at most 16"),
        ({"precision": None}, "multiplies halves"),
        ({"zero": np.float32(0.5)}, "a fraction"),
        ({"zero": np.float32(600)}, "more than 512"),
        ({"zero": "blocks"}, "floats"),
        ({"table": tuple(map(float, range(16)))}, "a table"),
        ({"bits": 8, "block": 4}, "blocks of 4 numbers"),
        ({"block": 2}, "do not begin at words"),
    ],
)
def test_what_matrix_units_do_not_multiply(change: dict[str, Any], why: str) -> None:
    given = {"rows": 2, "precision": DType.FLOAT16, "zero": None, "bits": 4, "block": 32, "table": (), **change}
    a, q = np.zeros((given["rows"], 64), np.float32), np.zeros((32, 64), np.uint8)
    scale = np.zeros((32, 64 // given["block"]), np.float32)
    zero = {"blocks": scale}.get(
        str(given["zero"]), None if given["zero"] is None else np.reshape(given["zero"], (1, 1))
    )
    attrs = {"trans_a": False, "trans_b": True, "bits": given["bits"], "block": given["block"], "table": given["table"]}
    const = [1, 2] if zero is None else [1, 2, 3]
    node = make_node("QuantizedMatMul", attrs, [a, q, scale, zero], const=const, precision=given["precision"])
    kernel = kernel_named("QuantizedSkinnyMma")
    assert why in (kernel.refuse(kernel.problem(node, DEVICES["nvidia_h200"])) or "")
    assert "no matrix units" in (kernel.refuse(kernel.problem(node, DEVICES["pocl_avx512"])) or "")


@pytest.mark.parametrize("columns, terms", LAYERS)
def test_many_rows_are_multiplied_by_matrix_units(columns: int, terms: int) -> None:
    assert fastest(product(2048, columns, terms), DEVICES["nvidia_h200"]).name in (
        "DequantizeThenWgmma",
        "DequantizeThenMmaStaged",
        "DequantizeThenMma",
    )


@pytest.mark.parametrize(
    "name, kernel", [("amd_rx_6800", "DequantizeThenLocalTile"), ("mali_g78", "DequantizeThenRegisterTile")]
)
def test_many_rows_elsewhere(name: str, kernel: str) -> None:
    assert fastest(product(2048, 2048, 2048), DEVICES[name]).name == kernel


@pytest.mark.parametrize("rows", [1, 2048])
def test_cpus_widen_in_registers_and_caches(rows: int) -> None:
    assert fastest(product(rows, 2048, 2048), DEVICES["pocl_avx512"]).name in ("QuantizedGemvCpu", "QuantizedGemmCpu")


@pytest.mark.parametrize("rows", [1, 5, 2048])
@pytest.mark.parametrize("name", DEVICES)
def test_all_kernels_round_or_none(name: str, rows: int) -> None:
    device, node = DEVICES[name], product(rows, 2048, 2048, rounds=True)
    found = [
        k for k in kernels_for("QuantizedMatMul") if k.tier == "optimized" and not k.refuse(k.problem(node, device))
    ]
    assert found
    assert all(isinstance(k, DynamicQuantizedMatmul) == (device.is_cpu and bool(device.byte_dots)) for k in found)


@pytest.mark.parametrize("columns, terms", LAYERS)
def test_groups_suit_the_device(columns: int, terms: int) -> None:
    """Every multiprocessor has some, but for 512 columns, and few numbers are read past the end."""
    node, device = product(1, columns, terms), DEVICES["nvidia_h200"]
    kernel = kernel_named("QuantizedGemvGpu")
    point = kernel.defaults(kernel.problem(node, device))
    assert point["COLS"] * point["PARTS"] == 256
    assert columns // point["COLS"] >= min(2 * 132 - 8, columns // 8)
    assert terms // 32 >= point["PARTS"] * point["UNROLL"]


def test_a_plan_for_few_rows_serves_no_prompt() -> None:
    kernel = kernel_named("QuantizedGemvGpu")
    device = DEVICES["nvidia_h200"]
    assert kernel.refuse(kernel.problem(product(64, 512, 2048), device)) is None
    assert "at most 64" in (kernel.refuse(kernel.problem(product(65, 512, 2048), device)) or "")


def test_all_rows_share_the_weights() -> None:
    """A token and a prompt, and what looks up an embedding: one copy of integers and scales."""
    device = DEVICES["nvidia_h200"]
    forms = set()
    for rows in (1, 16, 2048):
        node = product(rows, 2048, 2048)
        for kernel in kernels_for("QuantizedMatMul"):
            problem = kernel.problem(node, device)
            if kernel.refuse(problem) is None and kernel.no_legal_point(problem) is None and kernel.tier == "optimized":
                launch = kernel.launch(problem, kernel.defaults(problem))[0]
                forms.add(tuple(a.form for a in launch.args.values() if isinstance(a, Weight)))
    assert len(forms) == 1


def test_values_of_a_table_are_picked_by_assembly_where_that_compiles() -> None:
    device = replace(DEVICES["pocl_avx512"], quirks=(BYTE_PAIRS,))
    table = tuple(map(float, range(16)))
    assert codebook_defines(device, table)[0] == {"TABLE": 1, "PERMUTE": 1}
    assert codebook_defines(replace(device, quirks=(BYTE_PAIRS, NO_ASSEMBLY)), table)[0] == {"TABLE": 1, "PERMUTE": 0}
