"""Batches in shared memory: concatenates the inputs of requests, splits the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...run.api.process.shared_memory import Block, align
from ..wire.datatypes import array_from_raw, dtype_of, raw_from_array
from ..wire.infer_messages import InferResponse, Tensor
from ..wire.serve_errors import Internal
from .request_queue import Ticket

KEPT_BYTES = 1 << 25
"""Shared memory of a batch up to this size is used again; more is freed, as a client could claim it for ever."""
TensorSlot = tuple[str, str, list[int], int, int]
"""Name, datatype, shape, offset and bytes of a tensor in a Block."""


class BatchLayout:
    """The layout of a batch's inputs in shared memory."""

    def __init__(self, tickets: Sequence[Ticket]) -> None:
        """tickets: with equal keys."""
        self.inputs: list[TensorSlot] = []
        self._parts: list[list[Any]] = []
        end = 0
        for tensor in tickets[0].request.inputs:
            name, datatype = tensor.name, tensor.datatype
            arrays = [next(i.array for i in t.request.inputs if i.name == name) for t in tickets]
            shape = list(tensor.array.shape)
            if len(tickets) > 1:
                shape[0] = sum(t.size for t in tickets)
            if datatype == "BYTES":
                arrays = [np.frombuffer(raw_from_array(datatype, a), np.uint8) for a in arrays]
            offset, nbytes = align(end), sum(a.nbytes for a in arrays)
            end = offset + nbytes
            self.inputs.append((name, datatype, shape, offset, nbytes))
            self._parts.append(arrays)
        self.nbytes = end

    def write(self, block: Block) -> None:
        for (_, _, _, offset, _), parts in zip(self.inputs, self._parts, strict=True):
            at = offset
            for part in parts:
                at = block.put(at, part)


def unpack(tickets: Sequence[Ticket], version: str, places: Sequence[Any], block: Block | None) -> list[InferResponse]:
    """Split outputs into the responses of the requests. Internal if their rows do not match."""
    outputs: list[list[Tensor]] = [[] for _ in tickets]
    rows = sum(t.size for t in tickets)
    for name, datatype, shape, offset, nbytes in places:
        array = _output(datatype, shape, offset, nbytes, block)
        if len(tickets) == 1:
            tickets[0].request.hold(nbytes)
            outputs[0].append(Tensor(name, datatype, array.copy()))
            continue
        if not shape or shape[0] != rows:
            raise Internal(f"output '{name}' of a batch of {rows} has the shape {shape}")
        at = 0
        for ticket, own in zip(tickets, outputs, strict=True):
            ticket.request.hold(nbytes * ticket.size // rows)
            own.append(Tensor(name, datatype, array[at : at + ticket.size].copy()))
            at += ticket.size
    return [
        InferResponse(t.request.model, version, t.request.id, tuple(own))
        for t, own in zip(tickets, outputs, strict=True)
    ]


def _output(datatype: str, shape: list[int], offset: int, nbytes: int, block: Block | None) -> Any:
    if block is None:
        raise Internal("a worker named outputs that it has not sent")
    if datatype == "BYTES":
        return array_from_raw(datatype, shape, block.bytes[offset : offset + nbytes].data, "an output")
    return block.view(offset, dtype_of(datatype), shape)
