"""The classification extension: the largest elements of an output in place of all, as texts VALUE:INDEX.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_classification.md
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .infer_messages import RequestedOutput, Tensor
from .serve_errors import Invalid


def classes_of(outputs: Sequence[RequestedOutput]) -> dict[str, int]:
    """How many elements are asked for, of each output that has the parameter `classification`. Invalid."""
    found = {}
    for output in outputs:
        count = output.parameters.get("classification", 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise Invalid(f"output '{output.name}': 'classification' is a number of classes, got {count!r}")
        if count:
            found[output.name] = count
    return found


def largest(tensor: Tensor, classes: int, batched: bool) -> Tensor:
    """For each request of a batch its largest elements. batched: whether the first dimension is one of requests."""
    array = tensor.array
    if tensor.datatype in ("BYTES", "BOOL"):
        raise Invalid(f"output '{tensor.name}' is {tensor.datatype}, of which there are no classes")
    is_batch = batched and array.ndim > 0
    rows = array.reshape(array.shape[0], -1) if is_batch else array.reshape(1, -1)
    count = min(classes, rows.shape[1])
    order = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    form = "%d:%d" if array.dtype.kind in "iu" else "%f:%d"
    texts = np.empty(order.shape, object)
    for place, index in np.ndenumerate(order):
        texts[place] = (form % (rows[place[0], index], index)).encode()
    return Tensor(tensor.name, "BYTES", texts if is_batch else texts[0])
