"""PyTorch's nn.MultiheadAttention puts sequences first and back, which takes no launches at any batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_MMA, PTX_WGMMA
from opalite.ir.tensor_type import TensorType
from opalite.plan.program import LaunchStep
from opalite.run.model.imported_model import ImportedModel
from opalite.run.model.model_inputs_outputs import example_shapes
from tests.helpers.device_plans import plan

from ...fuzz.null import compute
from ...helpers.graphs import check_same, feeds_for, run_graph
from ...helpers.multihead import encoder
from ...helpers.symbolic import Traced, graph_at


def load(name: str) -> DeviceInfo:
    return read_description(name)


H200 = replace(load("nvidia_h200"), quirks=tuple({*load("nvidia_h200").quirks, PTX_MMA, PTX_WGMMA}))
DEVICES = [pytest.param(H200, id="h200"), pytest.param(load("pocl_avx512"), id="cpu")]
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask": {"mask": True},
    "memory": {"memory": 30},
    "stacks": {"stacks": True, "mask": True},
    "stacks and memory": {"stacks": True, "memory": 30},
}


def kernels(batch: int, device: DeviceInfo, *, is_open: bool, **form: Any) -> Counter[str]:
    """Launches of two blocks by kernel."""
    source = ImportedModel(encoder("N" if is_open else batch, layers=2, **form).SerializeToString())
    shapes = {n: (batch, *s[1:]) if n != "added" else s for n, s in example_shapes(source.inputs).items()}
    return Counter(s.kernel for s in plan(source, shapes, device).steps if isinstance(s, LaunchStep))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_takes_the_launches_of_one(device: DeviceInfo, form: str, is_open: bool) -> None:
    one, two, many = (kernels(n, device, is_open=is_open, **FORMS[form]) for n in (1, 2, 8))
    assert one.total() == two.total() == many.total()
    assert not [k for k in many if "Transpose" in k or "PermuteRows" in k or "Elementwise" in k]


@pytest.mark.parametrize("stacks", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_an_open_batch_and_length(device: DeviceInfo, stacks: bool) -> None:
    source = ImportedModel(encoder("N", "L", stacks=stacks).SerializeToString())
    types = {a.name: TensorType(a.dtype, (3, 9, 64)) for a in source.inputs if a.dtype is not None}
    graph = source.only_segment(types).graph
    traced = Traced(graph.copy(), device)
    assert not [n for n in traced.graph.nodes if n.op.name in ("Transpose", "PermuteRows")]
    for sizes in ((3, 9), (5, 8), (2, 13)):
        placed = traced.check(sizes)
        assert placed is not None, traced.template.failing(sizes)
        plain, _ = graph_at(graph, sizes)
        feeds = feeds_for(plain)
        check_same(run_graph(plain, feeds), compute(placed, list(feeds.values())))
