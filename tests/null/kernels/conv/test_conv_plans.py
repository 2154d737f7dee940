"""Convolution and pooling kernels plan legal launches for every device fixture, and some kernel takes every node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.ir import FLAT, OPENCL, DeviceInfo, DType, Node, TensorType, Value
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.kernels.kernel import Binding, kernels_for
from opalite.ops.operator import make_op

DEVICES = [read_description(name) for name in description_names()]


def conv_attrs(rank: int, stride: int = 1, pad: int = 0, group: int = 1, dilation: int = 1) -> dict[str, Any]:
    """Attributes of a Conv that are alike on all axes."""
    attrs = {"strides": (stride,) * rank, "pads": (pad,) * 2 * rank, "dilations": (dilation,) * rank}
    return {**attrs, "group": group}


def pool_attrs(kind: str, kernel: int) -> dict[str, Any]:
    """Attributes of a 2-D Pool."""
    attrs = {"kind": kind, "kernel": (kernel, kernel), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    return attrs | {"ceil_mode": True, "count_include_pad": False, "p": 2, "with_indices": False, "storage_order": 0}


NODES = {  # operator, attributes, shapes of the inputs
    "first": ("Conv", conv_attrs(2, 2, 3), ((1, 3, 224, 224), (64, 3, 7, 7), (64,))),
    "3x3": ("Conv", conv_attrs(2, 1, 1), ((1, 512, 7, 7), (512, 512, 3, 3), (512,))),
    "1x1": ("Conv", conv_attrs(2), ((2, 37, 13, 11), (131, 37, 1, 1))),
    "one pixel": ("Conv", conv_attrs(2), ((1, 960, 1, 1), (240, 960, 1, 1))),
    "last": ("Conv", conv_attrs(2, 1, 4), ((1, 32, 61, 67), (3, 32, 9, 9))),
    "groups": ("Conv", conv_attrs(2, 1, 1, 32), ((1, 128, 56, 56), (128, 4, 3, 3))),
    "odd groups": ("Conv", conv_attrs(2, 1, 1, 101), ((1, 303, 5, 5), (101, 3, 3, 3))),
    "depthwise": ("Conv", conv_attrs(2, 2, 2, 120), ((1, 120, 28, 28), (120, 1, 5, 5))),
    "dilated": ("Conv", conv_attrs(1, 1, 512, 1, 512), ((1, 64, 4001), (64, 64, 3))),
    "audio": ("Conv", conv_attrs(1, 160), ((1, 1, 16001), (514, 1, 400))),
    "volume": ("Conv", conv_attrs(3, 1, 1), ((1, 16, 5, 7, 11), (17, 16, 3, 3, 3))),
    "no images": ("Conv", conv_attrs(2, 1, 1), ((0, 16, 7, 7), (17, 16, 3, 3))),
    "no channels": ("Conv", conv_attrs(2, 1, 1), ((1, 0, 7, 7), (17, 0, 3, 3))),
    "up": ("ConvTranspose", {**conv_attrs(2, 2, 1), "output_padding": (1, 0)}, ((1, 64, 7, 9), (64, 33, 4, 4))),
    "mask": ("ConvTranspose", {**conv_attrs(2, 2), "output_padding": (0, 0)}, ((1, 24, 60, 60), (24, 1, 2, 2))),
    "max": ("Pool", pool_attrs("max", 3), ((1, 64, 112, 112),)),
    "average": ("Pool", pool_attrs("average", 7), ((1, 131, 14, 14),)),
}


def make_values(name: str, binding: Binding | None = None, variable: bool = False) -> Node:
    """The node called `name` with its values in the layouts of `binding`; weights constant unless `variable`."""
    op_name, attrs, shapes = NODES[name]
    op = make_op(op_name, attrs)
    ins: list[Value | None] = []
    for i, shape in enumerate(shapes):
        layout = (binding.inputs[i] if binding else None) or FLAT
        data = np.zeros(shape, np.float32) if i > 0 and not variable else None
        ins.append(Value(f"x{i}", TensorType(DType.FLOAT32, shape, OPENCL.with_layout(layout)), data))
    types = [v and v.type for v in ins]
    op.check_shape(types)
    outs = [
        Value(f"y{i}", t.with_place(OPENCL.with_layout(binding.outputs[i] if binding else FLAT)))
        for i, t in enumerate(op.infer_shape(types))
    ]
    return Node(op, ins, outs, name=name)


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", NODES)
def test_defaults_are_legal_and_launches_fit(device: DeviceInfo, name: str) -> None:
    plain = make_values(name)
    cost = plain.cost()
    accepted = [k for k in kernels_for(plain.op.name) if k.refuse(k.problem(plain, device)) is None]
    assert accepted
    for kernel in accepted:
        assert kernel.seconds(kernel.problem(plain, device), cost) > 0
        for binding in kernel.bindings(kernel.problem(plain, device)):
            node = make_values(name, binding)
            params = kernel.defaults(kernel.problem(node, device))
            assert kernel.illegal(kernel.problem(node, device), params) is None
            for launch in kernel.launch(kernel.problem(node, device), params):
                if launch.group is not None:
                    assert len(launch.group) == len(launch.grid)
                    assert np.prod(launch.group) <= device.max_work_group_size


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", [n for n in NODES if NODES[n][0] != "Pool"])
def test_variable_weights_are_served(device: DeviceInfo, name: str) -> None:
    node = make_values(name, variable=True)
    assert any(k.refuse(k.problem(node, device)) is None for k in kernels_for(node.op.name))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.id + d.name)
def test_private_memory_is_read_as_global_only_where_it_is_the_same(device: DeviceInfo) -> None:
    kernel = next(k for k in kernels_for("Conv") if k.name == "ConvRowMajorToPacked")
    binding = next(iter(kernel.bindings(kernel.problem(make_values("first"), device))))
    node = make_values("first", binding)
    (launch,) = kernel.launch(kernel.problem(node, device), kernel.defaults(kernel.problem(node, device)))
    assert launch.defines["DIRECT"] == (device.is_cpu and device.family in ("pocl", "intel"))
