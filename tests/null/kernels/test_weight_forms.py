"""The name of a kernel's form of a constant tells all that decides its bytes: plans find weights by it."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import Any

import numpy as np

from opalite.ir import DType
from opalite.ir.constants.lazy_array import LazyArray, content_key
from opalite.ir.graph import Value
from opalite.ir.tensor_type import TensorType
from opalite.kernels.launch import Weight
from opalite.kernels.node_launches import launches_of
from opalite.plan.weights.packed_weights import weight_form

from .test_kernel_signatures import DEVICES, PRECISIONS, taken

POINTS = 4
"""Choices of parameters that each kernel is asked for, besides its own."""


def form_key(weight: Weight) -> Hashable:
    """What a plan would know it by, were its constant one of a model's file."""
    data = weight.value.data
    assert data is not None
    weight.value.data = LazyArray(data.dtype, data.shape, lambda: data, data, key=content_key(data))  # type: ignore[assignment]
    key = weight_form(weight).key
    weight.value.data = data
    assert key is not None
    return key


def test_forms_with_one_name_have_the_same_bytes() -> None:
    """Of every kernel on all devices, as one process may have several."""
    found: dict[Hashable, tuple[str, str]] = {}
    met: set[str] = set()
    for name, device in DEVICES.items():
        for precision in PRECISIONS:
            for kernel, node in taken(device, precision):
                p = kernel.problem(node, device)
                for params in (kernel.defaults(p), *islice(kernel.points(p), POINTS)):
                    for launch in launches_of(kernel, p, params):
                        for weight in (a for a in launch.args.values() if isinstance(a, Weight)):
                            made = weight.fn(weight.value.data)
                            where = f"{kernel.name} on {name} in {precision}, {params}"
                            digest, first = found.setdefault(form_key(weight), (content_key(made), where))
                            assert digest == content_key(made), f"{weight.form!r}: {where} and {first}"
                            met.add(weight.form)
    assert len(met) > 80
    assert len({digest for digest, _ in found.values()}) > len(met)


def test_a_form_of_a_narrower_constant_is_another() -> None:
    def weight(dtype: Any) -> Weight:
        array = np.zeros((2, 3), dtype)
        return Weight(Value("w", TensorType(DType.of(array), array.shape), array), "one", np.asarray)

    assert form_key(weight(np.float16)) != form_key(weight(np.float32))
