"""RequestValidator: checks requests against a model's inputs and outputs before they are queued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..wire.datatypes import raw_size
from ..wire.infer_messages import InferRequest, Tensor, TensorMetadata
from ..wire.serve_errors import NO_SEQUENCES, Invalid, TooLarge, Unsupported
from .model_config import ServerSettings


class RequestValidator:
    """Validates requests of one model. rows: whether the first dimension of inputs is the batch."""

    def __init__(
        self,
        inputs: Sequence[TensorMetadata],
        outputs: Sequence[TensorMetadata],
        settings: ServerSettings,
        rows: bool,
        max_rows: int,
    ) -> None:
        """max_rows: of a request, 0 for no limit."""
        self._inputs: Mapping[str, TensorMetadata] = {t.name: t for t in inputs}
        self._outputs = {t.name for t in outputs}
        self._settings, self._rows, self._max_rows = settings, rows, max_rows

    def check(self, request: InferRequest) -> tuple[int, Any, int]:
        """Rows of the request, its batch key (equal for requests that may share a batch), bytes of its inputs.

        Invalid, TooLarge, Unsupported.
        """
        if request.parameters.get("sequence_id") or request.parameters.get("sequence_start"):
            raise Unsupported(f"parameter 'sequence_id': sequences are not offered; {NO_SEQUENCES}")
        known = self._inputs
        given = {t.name: t for t in request.inputs}
        if len(given) < len(request.inputs):
            twice = next(t.name for i, t in enumerate(request.inputs) if t.name in {o.name for o in request.inputs[:i]})
            raise Invalid(f"input '{twice}' is given twice")
        if given.keys() != known.keys():
            self._raise_names(request, given)
        for output in request.outputs:
            if output.name not in self._outputs:
                raise Invalid(
                    f"model '{request.model}' has no output named '{output.name}'; its outputs are "
                    f"{', '.join(sorted(self._outputs))}"
                )
        nbytes, rows, shapes = 0, -1, []
        for name, expected in known.items():
            tensor = given[name]
            nbytes += self._check_tensor(tensor, expected)
            shape = tensor.array.shape
            if self._rows:
                if rows not in (-1, shape[0]):
                    raise Invalid(
                        f"input '{name}' has {shape[0]} rows, and the inputs before it {rows}: the first dimension is "
                        "the batch's, and the same for all inputs"
                    )
                rows = shape[0]
                shapes.append(shape[1:])
        if nbytes > self._settings.max_input_bytes:
            raise TooLarge(f"the inputs take {nbytes} bytes, and the server takes {self._settings.max_input_bytes}")
        if not self._rows:
            return 1, None, nbytes
        if self._max_rows and rows > self._max_rows:
            raise Invalid(f"the request has a batch of {rows}, and model '{request.model}' takes {self._max_rows}")
        # A batch without rows runs alone.
        return rows, (tuple(shapes), tuple(o.name for o in request.outputs)) if rows else None, nbytes

    def _check_tensor(self, tensor: Tensor, expected: TensorMetadata) -> int:
        if tensor.datatype != expected.datatype:
            raise Invalid(f"input '{tensor.name}' is {expected.datatype}, got {tensor.datatype}")
        shape, wanted = tensor.array.shape, expected.shape
        if len(shape) != len(wanted) or any(d not in (-1, s) for d, s in zip(wanted, shape, strict=True)):
            raise Invalid(
                f"input '{tensor.name}' has the shape {list(wanted)}, where -1 is any size, got {list(shape)}"
            )
        if tensor.array.size > self._settings.max_elements:
            raise TooLarge(
                f"input '{tensor.name}' has {tensor.array.size} elements, and the server takes "
                f"{self._settings.max_elements}"
            )
        return raw_size(tensor.datatype, tensor.array)

    def _raise_names(self, request: InferRequest, given: Mapping[str, Tensor]) -> None:
        known = ", ".join(f"'{t.name}' ({t.datatype}{list(t.shape)})" for t in self._inputs.values()) or "none"
        strange = [name for name in given if name not in self._inputs]
        if strange:
            raise Invalid(f"model '{request.model}' has no input named '{strange[0]}'; its inputs are {known}")
        missing = [name for name in self._inputs if name not in given]
        raise Invalid(f"input '{missing[0]}' of model '{request.model}' is missing; its inputs are {known}")
