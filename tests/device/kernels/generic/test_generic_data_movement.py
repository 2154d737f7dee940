"""What is the movement's own: Resize that repeats elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for


def resize(x: Any, scales: tuple[float, ...], **attrs: Any) -> Any:
    sizes = tuple(int(d * s) for d, s in zip(x.shape, scales, strict=True))
    usual = {"mode": "nearest", "coordinate": "asymmetric", "nearest_mode": "floor", "cubic_a": -0.75}
    usual |= {"exclude_outside": False, "antialias": False, "roi": None, "extrapolation": 0.0}
    return make_node("Resize", {**usual, "sizes": sizes, "scales": scales, **attrs}, [x])


def takes(rt: Runtime, name: str, node: Any) -> bool:
    kernel = next(k for k in kernels_for("Resize") if k.name == name)
    return kernel.refuse(kernel.problem(node, rt.info)) is None


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "float16"])
@pytest.mark.parametrize("scales", [(1.0, 1.0, 2.0, 2.0), (1.0, 3.0, 1.0, 1.0), (2.0, 1.0, 1.0, 5.0)])
def test_elements_are_repeated(rt: Runtime, dtype: str, scales: tuple[float, ...]) -> None:
    x = (np.arange(2 * 3 * 7 * 37).reshape(2, 3, 7, 37) % 251).astype(dtype)
    node = resize(x, scales)
    kernel = next(k for k in kernels_for("Resize") if k.name == "ResizeRepeatGeneric")
    assert takes(rt, "ResizeRepeatGeneric", node)
    (got,) = run_node(rt, kernel, node, [x])
    np.testing.assert_array_equal(got, node.op.reference([x])[0])


@pytest.mark.parametrize(
    "change",
    [
        {"scales": (1.0, 1.0, 1.5, 2.0)},
        {"scales": (1.0, 1.0, 0.5, 0.5)},
        {"nearest_mode": "ceil"},
        {"coordinate": "align_corners"},
        {"mode": "linear"},
    ],
)
def test_what_repeats_unevenly_is_another_kernel_s(rt: Runtime, change: dict[str, Any]) -> None:
    x = np.ones((1, 2, 6, 8), np.float32)
    node = resize(x, **{"scales": (1.0, 1.0, 2.0, 2.0), **change})
    assert not takes(rt, "ResizeRepeatGeneric", node)
    if change.get("mode") != "linear":
        assert takes(rt, "ResizeNearestGeneric", node)
