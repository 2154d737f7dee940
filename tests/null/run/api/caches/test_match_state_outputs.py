"""Which inputs and outputs are taken for state."""

from __future__ import annotations

import pytest

from opalite.errors import OptionError
from opalite.ir.dtype import DType
from opalite.run.api.caches.match_state_outputs import find_pairs
from opalite.run.model.model_inputs_outputs import NodeArg


def arg(name: str, shape: list[int | str | None], dtype: DType = DType.FLOAT32) -> NodeArg:
    return NodeArg(name, f"tensor({dtype.short})", shape, dtype)


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.11.decoder.value", "present.11.decoder.value"),
        ("past_key_values_0_key", "present_key_values_0_key"),
        ("past_0", "present_0"),
        ("past_key_10", "present_key_10"),
        ("past.3.key", "present.3.key"),
        ("cache_k", "cache_k_out"),
        ("cache_k_0", "new_cache_k_0"),
        ("state", "stateN"),
        ("h0", "hn"),
        ("h", "hn"),
        ("c0", "c1"),
        ("in_state", "out_state"),
        ("state_in", "state_out"),
        ("hidden_input", "hidden_output"),
        ("conv_cache", "conv_cache_out"),
    ],
)
def test_names_that_are_pairs(past: str, present: str) -> None:
    found = find_pairs([arg("x", [1, 4]), arg(past, [1, 2, 3])], [arg("y", [1, 4]), arg(present, [1, 2, 3])])
    assert [(p.past, p.present) for p in found] == [(past, present)]


@pytest.mark.parametrize(("one", "other"), [("input", "output"), ("input_ids", "output_ids"), ("x", "y"), ("x0", "x1")])
def test_names_that_are_none(one: str, other: str) -> None:
    with pytest.raises(OptionError, match="no input and output look like state"):
        find_pairs([arg(one, [1, 4])], [arg(other, [1, 4])])


def test_types_decide_too() -> None:
    with pytest.raises(OptionError):
        find_pairs([arg("state", [1, 4])], [arg("state_out", [1, 5])])
    with pytest.raises(OptionError):
        find_pairs([arg("state", [1, 4])], [arg("state_out", [1, 4], DType.INT64)])


def test_axes_of_time_and_of_the_batch() -> None:
    past = arg("past_key_values.0.key", ["batch_size", 2, "past_sequence_length", 16])
    present = arg("present.0.key", ["batch_size", 2, "past_sequence_length + 1", 16])
    stacked = arg("past_1", [2, "batch_size", 4, "past_sequence_length", 16])
    after = arg("present_1", [2, "batch_size", 4, "total_sequence_length", 16])
    layers = arg("state", [2, "batch", 128])
    next_layers = arg("stateN", ["a", "b", "c"])
    found = find_pairs([past, stacked, layers], [present, after, next_layers])
    assert [(p.time, p.batch) for p in found] == [(2, 0), (3, 1), (None, 1)]


def test_caches_of_cross_attention_are_recognised() -> None:
    past = arg("past_key_values.0.encoder.key", ["batch_size", 2, "encoder_sequence_length", 16])
    present = arg("present.0.encoder.key", ["batch_size", 2, "encoder_sequence_length_out", 16])
    assert find_pairs([past], [present])[0].is_cross


@pytest.mark.parametrize(
    ("name", "shape", "time", "batch"),
    [
        ("state", [2, None, 128], None, 1),  # layers, sequences, hidden values
        ("h", [1, "B", 64], None, 1),
        ("past_h", [2, None, 128], 1, None),
        ("state", [2, "cached", 128], 1, None),
        ("cache", [1, None, 128], 1, None),
        ("state", [None, None, 128], 1, 0),
        ("state", [1, 4, None, 16], 2, 0),
    ],
)
def test_open_axes_without_a_name(
    name: str, shape: list[int | str | None], time: int | None, batch: int | None
) -> None:
    (pair,) = find_pairs([arg(name, shape)], [arg("y", [None] * len(shape))], {name: "y"})
    assert (pair.time, pair.batch) == (time, batch)
