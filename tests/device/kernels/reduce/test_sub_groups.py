"""Reductions by sub-groups, on two doubles: four work-items that fold through local memory in place of SUB_FOLD of
reduce/sub_group_fold.cl, and sub-groups of one work-item, whose functions that file calls as it calls the device's.

Never run on a device that has sub-groups.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.device.device_family import BLOCK_LOADS, PTX_MMA, SUB_GROUPS
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.reduce import work_group_rows

from ....helpers.pairs import pairwise
from ....helpers.plain_builds import built_plain
from ..conv_checks import find_kernel

DOUBLE = """
#define SUB_GROUP ((int)get_local_id(0) / 4)
#define SUB_GROUPS ((WG + 3) / 4)
#define SUB_ITEM ((int)get_local_id(0) % 4)
#define JOIN_sums(a, b) ((a) + (b))
#define JOIN_tops(a, b) fmax(a, b)
#define SUB_FOLD(name, v, part) (v); do { \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
        part[get_local_id(0)] = (v); \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
        const int first_ = SUB_GROUP * 4, end_ = min(first_ + 4, WG); \\
        (v) = part[first_]; \\
        for (int i_ = first_ + 1; i_ < end_; ++i_) (v) = CAT(JOIN_, name)(v, part[i_]); \\
    } while (0)
"""
ONES = """
static float __attribute__((overloadable)) sub_group_reduce_add(float v) { return v; }
static float __attribute__((overloadable)) sub_group_reduce_max(float v) { return v; }
static uint get_sub_group_id(void) { return get_local_id(0); }
static uint get_num_sub_groups(void) { return get_local_size(0); }
static uint get_sub_group_local_id(void) { return 0; }
"""
FOURS = """
static uint get_sub_group_id(void) { return get_local_id(0) / 4; }
static uint get_max_sub_group_size(void) { return 4; }
#define BLOCK_AT(k) p[get_local_id(0) % 4 + 4 * (k)]
"""
SINGLES = """
static uint get_max_sub_group_size(void) { return 1; }
#define BLOCK_AT(k) p[k]
"""
BLOCKS = """
static uint2 intel_sub_group_block_read2(global const uint *p) { return (uint2)(BLOCK_AT(0), BLOCK_AT(1)); }
static uint4 intel_sub_group_block_read4(global const uint *p) {
    return (uint4)(BLOCK_AT(0), BLOCK_AT(1), BLOCK_AT(2), BLOCK_AT(3));
}
static uint8 intel_sub_group_block_read8(global const uint *p) {
    return (uint8)(BLOCK_AT(0), BLOCK_AT(1), BLOCK_AT(2), BLOCK_AT(3),
                   BLOCK_AT(4), BLOCK_AT(5), BLOCK_AT(6), BLOCK_AT(7));
}
"""


def named_apart(text: str) -> str:
    """`text` whose functions bear names of their own, in macros, beside those that the driver may declare."""
    names = re.findall(r"^static [\w ()]*?(\w*sub_group\w*)\(", text, re.MULTILINE)
    return "".join(f"#define {name} double_{name}\n" for name in names) + text


NORM = {"epsilon": 1e-5, "axis": -1, "num_groups": 0}
NODES: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...]]] = {  # operator, kernel, attributes, shape
    "sum": ("Reduce", "ReduceRows", {"kind": "sum", "axes": (1,), "keepdims": True}, (7, 131)),
    "mean": ("Reduce", "ReduceRows", {"kind": "mean", "axes": (1,), "keepdims": True}, (7, 131)),
    "max": ("Reduce", "ReduceRows", {"kind": "max", "axes": (1,), "keepdims": True}, (7, 131)),
    "l2": ("Reduce", "ReduceRows", {"kind": "l2", "axes": (1,), "keepdims": True}, (7, 131)),
    "logsumexp": ("Reduce", "ReduceRows", {"kind": "logsumexp", "axes": (1,), "keepdims": True}, (7, 131)),
    "softmax": ("Softmax", "SoftmaxRows", {"axis": 1, "log": False}, (7, 131)),
    "layer": ("Normalize", "NormalizeRows", {**NORM, "kind": "layer", "axis": 1}, (7, 131)),
    "instance": ("Normalize", "InstanceGroupNormPacked", {**NORM, "kind": "instance"}, (2, 19, 7, 11)),
    "image instance": ("Normalize", "ImageInstanceNorm", {**NORM, "kind": "instance"}, (2, 19, 7, 11)),
    "image layer": ("Normalize", "ImageNormalizeRows", {**NORM, "kind": "layer", "axis": 1}, (7, 131)),
    "image softmax": ("Softmax", "ImageSoftmaxRows", {"axis": 1, "log": False}, (7, 131)),
}


def as_gpu(rt: Runtime, quirk: str) -> Runtime:
    """`rt` with its device described as a GPU that has this; doubles of it are not optimised."""
    other = copy.copy(built_plain(rt))
    other.info = dataclasses.replace(rt.info, kind="gpu", wave_size=32, quirks=(*rt.info.quirks, quirk))
    return other


def with_sub_groups(rt: Runtime) -> Runtime:
    """One whose trial of sub-groups held."""
    other = as_gpu(rt, SUB_GROUPS)
    other.info = dataclasses.replace(other.info, extensions=(*rt.info.extensions, "cl_khr_subgroups"))
    return other


@pytest.mark.parametrize(
    "precision, double, wg",
    pairwise([None, DType.FLOAT16], [DOUBLE, ONES], [2, 16]),
    ids=lambda x: {DOUBLE: "fours", ONES: "ones"}.get(x, str(x)),
)
@pytest.mark.parametrize("name", NODES)
def test_folds(
    rt: Runtime, name: str, wg: int, double: str, precision: DType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("image") and not rt.info.image_support:
        pytest.skip("the device has no images")
    read = work_group_rows.read_source
    asked = []

    def read_source(path: str) -> str:
        asked.append(path)
        return (named_apart(double) if path == "reduce/sub_group_fold.cl" else "") + read(path)

    monkeypatch.setattr(work_group_rows, "read_source", read_source)
    check_fold(with_sub_groups(rt), name, wg, precision)
    assert "reduce/sub_group_fold.cl" in asked


@pytest.mark.parametrize("precision, wg", pairwise([None, DType.FLOAT16, DType.FLOAT64], [32, 64, 16]))
@pytest.mark.parametrize("name", [n for n in NODES if not n.startswith("image")])
def test_folds_by_warps(rt: Runtime, name: str, wg: int, precision: DType | None) -> None:
    """NVIDIA's, whose shuffles are copies through local memory here; parts of warps fold as trees."""
    if precision is DType.FLOAT64 and (not rt.info.fp64 or name == "instance"):
        pytest.skip("the device, or what is packed by channels, has no float64")
    check_fold(as_gpu(rt, PTX_MMA), name, wg, precision)


def check_fold(own: Runtime, name: str, wg: int, precision: DType | None) -> None:
    """The kernel of NODES `name` with `wg` work-items to a row gives what the reference does."""
    op, kernel_name, attrs, shape = NODES[name]
    kernel = find_kernel(op, kernel_name)
    wide = precision is DType.FLOAT64
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float64 if wide else np.float32)
    precision = None if wide else precision
    plain = make_node(op, attrs, [x], precision=precision)
    problem = kernel.problem(plain, own.info)
    assert kernel.refuse(problem) is None
    node = make_node(op, attrs, [x], binding=kernel.bindings(problem)[0], precision=precision)
    params = {**kernel.defaults(kernel.problem(node, own.info)), "WG": wg}
    params |= {k: 1 for k in ("ROWS",) if k in params}
    (got,) = run_node(own, kernel, node, [x], params)
    (want,) = node.op.reference([x])
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-2 if precision else 1e-5) * np.abs(want).max())


@pytest.mark.parametrize(
    "double, wg, pack, columns, precision",
    [
        ("fours", 16, 2, 131, None),
        ("fours", 8, 8, 197, None),
        ("fours", 16, 4, 5, None),
        ("fours", 2, 2, 67, None),
        ("ones", 16, 4, 260, None),
        ("ones", 16, 2, 131, DType.FLOAT16),
    ],
)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "l2", "logsumexp", "layer"])
def test_rows_are_read_in_blocks(
    rt: Runtime,
    name: str,
    double: str,
    wg: int,
    pack: int,
    columns: int,
    precision: DType | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By sub-groups of four work-items, which two of a group do not fill, and of one."""
    op, kernel_name, attrs, _ = NODES[name]
    read = work_group_rows.read_source
    doubles = {
        "reduce/sub_group_fold.cl": DOUBLE if double == "fours" else ONES,
        "reduce/intel_block_loads.cl": (FOURS if double == "fours" else SINGLES) + BLOCKS,
    }
    asked = []

    def read_source(path: str) -> str:
        asked.append(path)
        return named_apart(doubles.get(path, "")) + read(path)

    monkeypatch.setattr(work_group_rows, "read_source", read_source)
    own = with_sub_groups(rt)
    extensions, quirks = (*own.info.extensions, "cl_intel_subgroups"), (*own.info.quirks, BLOCK_LOADS)
    own.info = dataclasses.replace(own.info, extensions=extensions, quirks=quirks)
    kernel = find_kernel(op, kernel_name)
    x = np.random.default_rng(1).standard_normal((7, columns)).astype(np.float32)
    plain = make_node(op, attrs, [x], precision=precision)
    node = make_node(op, attrs, [x], binding=kernel.bindings(kernel.problem(plain, own.info))[0], precision=precision)
    params = {**kernel.defaults(kernel.problem(node, own.info)), "WG": wg, "ROWS": 1, "PACK": pack}
    (got,) = run_node(own, kernel, node, [x], params)
    (want,) = node.op.reference([x])
    assert "reduce/intel_block_loads.cl" in asked
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-2 if precision else 1e-5) * np.abs(want).max())


def test_others_fold_as_before(rt: Runtime) -> None:
    """Neither an extension without the trial nor a trial without the extension is enough."""
    listed = dataclasses.replace(rt.info, extensions=("cl_khr_subgroups",), quirks=())
    found = dataclasses.replace(rt.info, extensions=(), quirks=(SUB_GROUPS,))
    both = dataclasses.replace(listed, quirks=(SUB_GROUPS,))
    assert work_group_rows.row_prelude(listed) == work_group_rows.row_prelude(found)
    assert "sub_group_reduce_" in work_group_rows.row_prelude(both)
    assert "sub_group_reduce_" not in work_group_rows.row_prelude(listed)
    intel = dataclasses.replace(both, extensions=("cl_intel_subgroups",))
    blocks = dataclasses.replace(intel, quirks=(SUB_GROUPS, BLOCK_LOADS))
    assert "intel_sub_group_block_read" in work_group_rows.row_prelude(blocks)
    for without in (intel, dataclasses.replace(blocks, quirks=(BLOCK_LOADS,)), both):
        assert "intel_sub_group_block_read" not in work_group_rows.row_prelude(without)
