"""Inputs of several requests in shared memory, and their outputs, as bytes that another process would see."""

from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest

from opalite.run.api.process.shared_memory import ALIGNMENT, Block
from opalite.serve.engine.request_queue import Ticket
from opalite.serve.engine.shared_memory_batches import BatchLayout, unpack
from opalite.serve.wire.datatypes import array_from_raw, dtype_of
from opalite.serve.wire.infer_messages import InferRequest, Tensor
from opalite.serve.wire.serve_errors import Internal


def ticket(size: int, start: int) -> Ticket:
    numbers = np.arange(start, start + 3 * size, dtype=np.float32).reshape(size, 3)
    texts = np.array([[f"{start + i}".encode()] for i in range(size)], object)
    tensors = (Tensor("n", "FP32", numbers[:, ::-1]), Tensor("t", "BYTES", texts))
    return Ticket(
        InferRequest("m", tensors, id=str(start)), asyncio.Future(loop=asyncio.new_event_loop()), size, 1, 0, 0, 0
    )


def test_rows_lie_one_after_the_other() -> None:
    tickets = [ticket(1, 0), ticket(2, 10)]
    packing = BatchLayout(tickets)
    block = Block.make(packing.nbytes)
    packing.write(block)
    seen = Block.open(os.dup(block.fd), block.nbytes)
    block.close_file()
    (_, _, shape, offset, _), (_, _, texts_shape, texts_offset, nbytes) = packing.inputs
    assert offset % ALIGNMENT == texts_offset % ALIGNMENT == 0
    assert seen.view(offset, dtype_of("FP32"), shape).tolist() == [[2, 1, 0], [12, 11, 10], [15, 14, 13]]
    texts = array_from_raw("BYTES", texts_shape, seen.bytes[texts_offset : texts_offset + nbytes].data, "t")
    assert texts.tolist() == [[b"0"], [b"10"], [b"11"]]

    first, second = unpack(tickets, "3", packing.inputs, seen)
    assert (first.id, second.id, first.version) == ("0", "10", "3")
    assert second.outputs[0].array.tolist() == [[12, 11, 10], [15, 14, 13]]
    assert first.outputs[1].array.tolist() == [[b"0"]]
    seen.bytes[:] = 0
    assert second.outputs[0].array[0, 0] == 12  # the memory may be used again


def test_outputs_without_the_batch_are_not_taken_apart() -> None:
    block = Block.make(64)
    with pytest.raises(Internal, match="output 'y' of a batch of 3"):
        unpack([ticket(1, 0), ticket(2, 10)], "1", [("y", "FP32", [2], 0, 8)], block)
    with pytest.raises(Internal, match="has not sent"):
        unpack([ticket(1, 0)], "1", [("y", "FP32", [2], 0, 8)], None)


def test_memory_that_is_smaller_than_was_said() -> None:
    block = Block.make(100)
    with pytest.raises(OSError, match="smaller"):
        Block.open(os.dup(block.fd), block.nbytes + 1)
    with pytest.raises(ValueError):
        block.view(block.nbytes - 4, np.dtype(np.float32), (2,))
    with pytest.raises(OSError):
        os.ftruncate(block.fd, 10)  # nobody can take it away from a reader
