"""Configurations that contradict themselves are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opalite.errors import OptionError
from opalite.serve.engine.model_config import DynamicBatching, ModelConfig, QueuePolicy, ServerSettings, VersionPolicy


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: ModelConfig(max_batch_size=-1), "max_batch_size is a whole number from 0"),
        (lambda: ModelConfig(instances=0), "instance_group"),
        (lambda: ModelConfig(default_model_filename="../x.onnx"), "a name in the folder"),
        (lambda: ModelConfig(max_batch_size=4, dynamic_batching=DynamicBatching((8,))), "8 is above max_batch_size, 4"),
        (lambda: DynamicBatching((0,)), "preferred_batch_size"),
        (lambda: DynamicBatching(priority_levels=2), "default_priority_level is from 1"),
        (lambda: QueuePolicy("LATER"), "REJECT or DELAY"),  # type: ignore[arg-type]
        (lambda: VersionPolicy("specific"), "lists some"),
        (lambda: ServerSettings(max_queue_size=0), "max_queue_size"),
        (lambda: ServerSettings(model_control="all"), "none, explicit or poll"),  # type: ignore[arg-type]
    ],
)
def test_contradictions(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        make()
