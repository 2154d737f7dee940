"""What runs on caches take, told without the importer: which feeds fit, and the sizes that they have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.ir.growable_tensor import GrowableTensor
from opalite.plan.kv_cache_spec import Cache, InputSpec, KVCacheSpec

RECORD = KVCacheSpec(
    open_sizes=3,
    capacity=2,
    tensors={
        "ids": InputSpec("int64", (1, 4), (None, 0)),
        "mask": InputSpec("int64", (1, 9), (None, 1)),
        "past": InputSpec("float32", (1, 2, 5, 8), (None, None, 1, None)),
    },
    contents={"total": InputSpec("int32", (2,), (1, None), (9, 1))},
    fixed={"branch": ("bool", (1,), b"\x01")},
    caches={"past": Cache(2, True, "present")},
    inputs=("ids", "past"),
    input_output_aliases=((1, 1),),
    lengths={"past": "s0 + s1"},
    outputs={"logits": 0, "present": 1, "echo": "ids"},
)


def feeds(tokens: int = 3, length: int = 7, capacity: int = 32, **others: Any) -> dict[str, Any]:
    past = GrowableTensor(np.dtype(np.float32), (1, 2, length, 8), 2, capacity, "present")
    return {
        "ids": np.zeros((1, tokens), np.int64),
        "mask": np.ones((1, length), np.int64),
        "past": past,
        "total": np.array([length, 1], np.int32),
        "branch": np.array([True]),
        **others,
    }


def test_sizes_and_lengths() -> None:
    sizes = RECORD.sizes_of(feeds())
    assert sizes == (3, 7, 32)
    assert RECORD.lengths_at(sizes) == {"past": 10}


@pytest.mark.parametrize(
    "given",
    [
        feeds(tokens=1),  # is no open size
        feeds(mask=np.ones((1, 8), np.int64)),  # not as long as the past
        feeds(mask=np.ones((2, 7), np.int64)),
        feeds(mask=np.ones((1, 7), np.int32)),
        feeds(mask=np.ones(7, np.int64)),
        feeds(past=np.zeros((1, 2, 7, 8), np.float32)),  # lies in no reserved memory
        feeds(past=GrowableTensor(np.dtype(np.float32), (1, 2, 7, 8), 2, 32, "present", grows=False)),
        feeds(past=GrowableTensor(np.dtype(np.float32), (1, 2, 7, 8), 2, 32, "logits")),
        feeds(past=GrowableTensor(np.dtype(np.float16), (1, 2, 7, 8), 2, 32, "present")),
        feeds(past=GrowableTensor(np.dtype(np.float32), (1, 2, 7, 8), 2, 32, "present", narrow=True)),
        feeds(ids=GrowableTensor(np.dtype(np.int64), (1, 3), 1, 32, "present")),
        feeds(total=np.array([8, 1], np.int32)),
        feeds(total=np.array([7, 2], np.int32)),
        feeds(branch=np.array([False])),
        feeds(more=np.zeros(1)),
        {n: v for n, v in feeds().items() if n != "mask"},
    ],
)
def test_other_feeds_are_refused(given: dict[str, Any]) -> None:
    assert RECORD.sizes_of(given) is None


def test_it_is_plain_data() -> None:
    found = KVCacheSpec.from_json(json.loads(json.dumps(RECORD.to_json())))
    assert found == RECORD
    with pytest.raises(ValueError, match="constant"):
        replace(RECORD, outputs={"logits": np.zeros(1)}).to_json()
    with pytest.raises(ValueError, match="expression"):
        KVCacheSpec.from_json({**json.loads(json.dumps(RECORD.to_json())), "lengths": {"past": "open(1)"}})
