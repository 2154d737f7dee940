"""Inputs of decoders by name: roles, feeds, and errors for unknown ones."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.ir.dtype import DType
from opalite.llm.decoder_inputs import find_decoder_inputs
from opalite.run.model.model_inputs_outputs import NodeArg


def args(*names: str, dtype: DType = DType.INT64, rank: int = 2) -> list[NodeArg]:
    return [NodeArg(n, f"tensor({dtype.name.lower()})", [None] * rank, dtype) for n in names]


CACHE = args("past_key_values.0.key", "past_key_values.0.value", dtype=DType.FLOAT32, rank=4)
OUTPUTS = args("logits", "present.0.key", "present.0.value", dtype=DType.FLOAT32)


def test_feeds_of_a_step() -> None:
    inputs = [*args("input_ids", "attention_mask"), *args("position_ids", dtype=DType.INT32), *CACHE]
    ports = find_decoder_inputs(inputs, OUTPUTS, {})
    assert ports.logits == "logits"
    assert list(ports.caches) == ["past_key_values.0.key", "past_key_values.0.value"]
    feeds = ports.feeds([7, 8], 3)
    assert feeds["input_ids"].tolist() == [[7, 8]]
    assert feeds["attention_mask"].shape == (1, 5)
    assert feeds["position_ids"].tolist() == [[3, 4]]
    assert feeds["position_ids"].dtype == np.int32
    assert set(feeds) == {"input_ids", "attention_mask", "position_ids"}


def test_scalars_and_counts() -> None:
    inputs = [
        *args("input_ids"),
        *args("num_logits_to_keep", rank=0),
        *args("cache_position", rank=1),
        *args("past_sequence_length", rank=1),
        *args("total_sequence_length", rank=0, dtype=DType.INT32),
    ]
    feeds = find_decoder_inputs(inputs, args("logits"), {}).feeds([1, 2, 3], 4)
    assert feeds["num_logits_to_keep"].shape == ()
    assert feeds["cache_position"].tolist() == [4, 5, 6]
    assert feeds["past_sequence_length"].tolist() == [4]
    assert int(feeds["total_sequence_length"]) == 7


def test_names_of_genai_config() -> None:
    inputs = [*args("ids"), *args("kv_in_0", "kv_in_1", dtype=DType.FLOAT32)]
    told = {
        "inputs": {"input_ids": "ids", "past_key_names": "kv_in_%d"},
        "outputs": {"logits": "y", "present_key_names": "kv_out_%d"},
    }
    with pytest.raises(InputError, match="does not know the input 'kv_in_0'"):
        find_decoder_inputs(inputs, args("y", "kv_out_0", "kv_out_1"), {"inputs": {"input_ids": "ids"}})
    ports = find_decoder_inputs(inputs, args("y", "kv_out_0", "kv_out_1"), told)
    assert ports.logits == "y"
    assert ports.pairs == {"kv_in_0": "kv_out_0", "kv_in_1": "kv_out_1"}


def test_unknown_inputs_are_listed() -> None:
    with pytest.raises(InputError, match=r"does not know the input 'pixel_values': .* are input_ids, pixel_values"):
        find_decoder_inputs(args("input_ids", "pixel_values"), OUTPUTS, {})
    with pytest.raises(InputError, match="finds no input that takes tokens"):
        find_decoder_inputs(args("attention_mask"), OUTPUTS, {})
    with pytest.raises(InputError, match=r"no output is named logits: .* are a, b"):
        find_decoder_inputs(args("input_ids"), args("a", "b"), {})
