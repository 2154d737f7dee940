"""The classification extension: the largest elements of an output in place of all, as texts VALUE:INDEX.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_classification.md
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .infer_messages import InferRequest, InferResponse, Tensor
from .serve_errors import Invalid

if TYPE_CHECKING:
    from ..engine.inference_server import Server


class Classification:
    """Replaces the outputs of a request that have the parameter `classification`. Invalid for a wrong value."""

    def __init__(self, server: Server, request: InferRequest) -> None:
        self._counts: dict[str, int] = {}
        for output in request.outputs:
            count = output.parameters.get("classification", 0)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise Invalid(f"output '{output.name}': 'classification' is a number of classes, got {count!r}")
            if count:
                self._counts[output.name] = count
        config = server.model_config(request.model, request.version) if self._counts else {}
        self._batched = bool(config.get("max_batch_size", 0))

    def apply(self, response: InferResponse) -> InferResponse:
        """The response with classes in place of tensors."""
        if not self._counts:
            return response
        counts = self._counts
        outputs = (largest(t, counts[t.name], self._batched) if t.name in counts else t for t in response.outputs)
        return replace(response, outputs=tuple(outputs))


def largest(tensor: Tensor, classes: int, batched: bool) -> Tensor:
    """The largest elements, in descending order, of each row of the first dimension if `batched`, else of all."""
    array = tensor.array
    if tensor.datatype in ("BYTES", "BOOL"):
        raise Invalid(f"output '{tensor.name}' is {tensor.datatype}, of which there are no classes")
    is_batch = batched and array.ndim > 0
    rows = array.reshape(array.shape[0], -1) if is_batch else array.reshape(1, -1)
    count = min(classes, rows.shape[1])
    order = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    form = "%d:%d" if array.dtype.kind in "iu" else "%f:%d"
    texts = np.empty(order.shape, object)
    for position, index in np.ndenumerate(order):
        texts[position] = (form % (rows[position[0], index], index)).encode()
    return Tensor(tensor.name, "BYTES", texts if is_batch else texts[0])
