"""Raw tensors are cut out of messages, and written into them, as protobuf has them."""

from __future__ import annotations

import random

import pytest

from opalite.serve.grpc.wire_format import field_of, split_fields
from opalite.serve.proto.message_classes import ModelInferRequest, ModelInferResponse
from opalite.serve.wire.serve_errors import Invalid, TooLarge


def message(*raw: bytes) -> bytes:
    made = ModelInferRequest(model_name="m", id="x" * 300, raw_input_contents=raw)
    made.inputs.add(name="x", datatype="FP32", shape=[2, 2**40])
    return bytes(made.SerializeToString())


def test_a_message_is_split_without_a_copy() -> None:
    data = memoryview(message(b"a" * 1000, b"", b"bc"))
    head, raw = split_fields(data, 7, 100)
    assert [bytes(r) for r in raw] == [b"a" * 1000, b"", b"bc"]
    assert all(r.obj is data.obj for r in raw)
    assert head == message()


def test_fields_in_any_order_are_written_back() -> None:
    late = b"".join(field_of(7, [b"first"])) + message(b"second") + b"".join(field_of(7, [b"th", b"ird"]))
    head, raw = split_fields(memoryview(late), 7, 100)
    assert (head, [bytes(r) for r in raw]) == (message(), [b"first", b"second", b"third"])
    answer = ModelInferResponse.FromString(b"".join(field_of(6, [b"x" * 200])))
    assert list(answer.raw_output_contents) == [b"x" * 200]


def test_damaged_and_endless_messages_are_refused() -> None:
    data = message(b"a" * 100)
    with pytest.raises(Invalid, match="damaged"):
        split_fields(memoryview(data[:-1]), 7, 100)
    with pytest.raises(TooLarge, match="more than 100 fields"):
        split_fields(memoryview(b"\x08\x01" * 101), 7, 100)
    draw = random.Random(3)
    for _ in range(300):
        spoiled = bytearray(data)
        for _ in range(4):
            spoiled[draw.randrange(len(spoiled))] = draw.randrange(256)
        try:
            head, raw = split_fields(memoryview(spoiled), 7, 100)
        except (Invalid, TooLarge):
            continue
        assert len(head) + sum(map(len, raw)) <= len(spoiled)
