"""What the tests of kernels on images share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from opalite.cl.runtime import Runtime
from opalite.ir import FLAT, DType
from opalite.ir.place import IMAGE
from opalite.kernels.base import Binding
from opalite.run.execute.node import make_node

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
    **params: Any,
) -> None:
    """Kernel `name` on images agrees with the reference; inputs in `const` are constants."""
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    layouts = tuple(None if i in const else IMAGE if a.size > 1 else FLAT for i, a in enumerate(arrays))
    node = make_node(op, attrs, arrays, const=const, binding=Binding(layouts, (IMAGE,)), precision=precision)
    kernel = find_kernel(op, name)
    assert kernel.bindings(kernel.problem(node, rt.info))[0] == Binding(layouts, (IMAGE,))
    check_kernel(rt, kernel, node, arrays, params)
