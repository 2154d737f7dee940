"""What the tests of kernels on images share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from opalite.cl.runtime import Runtime
from opalite.ir import FLAT, DType
from opalite.ir.place import IMAGE
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding

from ..conv_checks import check_kernel, find_kernel


def check_image(
    rt: Runtime,
    op: str,
    name: str,
    attrs: Mapping[str, Any],
    arrays: Sequence[Any],
    *,
    const: Sequence[int] = (),
    precision: DType | None = None,
    flat: Sequence[int] = (),
    sides: int = 0,
    **params: Any,
) -> None:
    """Kernel `name` on images agrees with the reference; inputs in `const` are constants, those in `flat` in buffers.

    sides: 1 where the first input, 2 where the output is a row-major buffer.
    """
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    layouts = tuple(
        None if a is None or i in const else FLAT if i in flat or a.size == 1 else IMAGE for i, a in enumerate(arrays)
    )
    binding = Binding((FLAT, *layouts[1:]) if sides & 1 else layouts, (FLAT if sides & 2 else IMAGE,))
    node = make_node(op, attrs, arrays, const=const, binding=binding, precision=precision)
    kernel = find_kernel(op, name)
    assert binding in kernel.bindings(kernel.problem(node, rt.info))
    check_kernel(rt, kernel, node, arrays, params)
