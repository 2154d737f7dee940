"""ModelConfig from Triton's model configuration and back."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.serve.engine.model_config import DynamicBatching, ModelConfig, QueuePolicy, TensorConfig, VersionPolicy
from opalite.serve.engine.triton_config import check_tensors, config_from_json, config_from_text, config_to_json
from opalite.serve.wire.infer_messages import ModelMetadata, TensorMetadata
from opalite.serve.wire.serve_errors import Invalid

METADATA = ModelMetadata(
    "net",
    ("1",),
    "onnx_opalite",
    (TensorMetadata("x", "FP32", (-1, 3, 8)), TensorMetadata("t", "BYTES", (-1, 1))),
    (TensorMetadata("y", "INT64", (-1, -1)),),
)
TEXT = """
name: "net" backend: "onnxruntime" max_batch_size: 8 default_model_filename: "net.onnx"
input { name: "x" data_type: TYPE_FP32 dims: [ 3, 8 ] }
input { name: "t" data_type: TYPE_STRING dims: [ 1 ] }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 2000 priority_levels: 3
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 500 max_queue_size: 64 }
  priority_queue_policy { key: 1 value { allow_timeout_override: true } }
}
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 2 ] }, { count: 2 kind: KIND_CPU } ]
version_policy { specific { versions: [ 2, 5 ] } }
parameters { key: "precision" value { string_value: "fp16" } }
parameters { key: "intra_op_thread_count" value { string_value: "4" } }
model_warmup { name: "w" batch_size: 8 inputs { key: "x" value { dims: 3 zero_data: true } } }
"""
CONFIG = ModelConfig(
    name="net",
    backend="onnxruntime",
    max_batch_size=8,
    inputs=(TensorConfig("x", "FP32", (3, 8)), TensorConfig("t", "BYTES", (1,))),
    dynamic_batching=DynamicBatching(
        (4, 8), 2000, False, 3, 2, QueuePolicy("DELAY", 500, False, 64), {1: QueuePolicy("REJECT", 0, True, 0)}
    ),
    version_policy=VersionPolicy("specific", specific=(2, 5)),
    default_model_filename="net.onnx",
    instances=2,
    devices=("gpu:0", "gpu:2", "cpu"),
    precision="fp16",
    warm_sizes=(8,),
    parameters={"intra_op_thread_count": "4"},
)


def test_a_text_is_read_and_what_has_no_effect_is_named() -> None:
    config, ignored = config_from_text(TEXT, "net/config.pbtxt")
    assert config == CONFIG
    assert ignored == ("model_warmup.inputs", "parameters['intra_op_thread_count']")


def test_what_is_not_there_is_left_to_the_server() -> None:
    assert config_from_text("", "c") == (ModelConfig(), ())
    assert config_from_text("max_batch_size: 0", "c")[0].max_batch_size == 0
    assert config_from_text("dynamic_batching {}", "c")[0].dynamic_batching == DynamicBatching()
    assert config_from_text("instance_group { kind: KIND_AUTO }", "c")[0] == ModelConfig(instances=1)


def test_the_device_parameter_counts_for_more_than_instance_groups() -> None:
    text = 'instance_group { kind: KIND_CPU } parameters { key: "device" value { string_value: "pocl, gpu:1" } }'
    assert config_from_text(text, "c")[0].devices == ("pocl", "gpu:1")


@pytest.mark.parametrize(
    "text,message",
    [
        ('platform: "tensorrt_plan"', "net.pbtxt: platform 'tensorrt_plan' is not served here"),
        ('backend: "python"', "net.pbtxt: backend 'python' is not served here"),
        ("max_batch_size: -1", "net.pbtxt: max_batch_size is a whole number from 0 on, got -1"),
        ("max_batch_size: 2 dynamic_batching { preferred_batch_size: 4 }", "preferred_batch_size 4 is above"),
        ('input { name: "x" dims: 3 }', "'x' has no data_type, such as TYPE_FP32"),
        ("instance_group [ { count: 1 }, { count: 3 } ]", "groups of 1 and 3 instances"),
        ('default_model_filename: "../../secret"', "default_model_filename is a name in the folder"),
        ("version_policy { specific {} }", "lists some"),
    ],
)
def test_what_cannot_be_served_is_an_error_that_names_the_file(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        config_from_text(text, "net.pbtxt")


@pytest.mark.parametrize(
    "config",
    [CONFIG, ModelConfig(dynamic_batching=DynamicBatching()), ModelConfig(version_policy=VersionPolicy("all"))],
    ids=["full", "batching", "all-versions"],
)
def test_what_is_told_is_read_again(config: ModelConfig) -> None:
    told = config_to_json(config, METADATA)
    again, _ = config_from_json(told, "c")
    for name in ("dynamic_batching", "version_policy", "devices", "precision", "warm_sizes", "parameters"):
        assert getattr(again, name) == getattr(config, name), name
    check_tensors(again, METADATA)


def test_clients_read_the_models_tensors_without_the_batch() -> None:
    told: dict[str, Any] = config_to_json(CONFIG, METADATA)
    assert told["input"][0] == {"name": "x", "data_type": "TYPE_FP32", "dims": [3, 8]}
    assert told["output"] == [{"name": "y", "data_type": "TYPE_INT64", "dims": [-1]}]
    whole = config_to_json(ModelConfig(), METADATA, decoupled=True)
    assert whole["input"][0]["dims"] == [-1, 3, 8]
    assert (whole["max_batch_size"], whole["parameters"], whole["model_warmup"]) == (0, {}, [])
    assert whole["instance_group"] == [{"count": 1, "name": "", "kind": "KIND_AUTO", "gpus": []}]
    assert (whole["backend"], whole["platform"]) == ("opalite", "onnx_opalite")
    assert whole["model_transaction_policy"] == {"decoupled": True}


@pytest.mark.parametrize(
    "text,message",
    [
        ('max_batch_size: 4 input { name: "q" data_type: TYPE_FP32 dims: 1 }', r"declares input 'q', .* has 'x', 't'"),
        (
            'max_batch_size: 4 input { name: "x" data_type: TYPE_FP16 dims: [3, 8] }',
            r"input 'x': .* declares FP16 \[3, 8\], the model has FP32 \[3, 8\] after the batch's dimension",
        ),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [3, 8] }',
            r"declares FP32 \[3, 8\], the model has FP32 \[-1, 3",
        ),
        (
            'max_batch_size: 4 output { name: "y" data_type: TYPE_INT32 dims: 1 }',
            r"output 'y': .* INT32 .* INT64 \[-1\]",
        ),
        ('max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [3, 9] }', r"FP32 \[3, 9\], the model has"),
    ],
)
def test_tensors_that_are_not_the_models_are_an_error_that_names_both(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        check_tensors(config_from_text(text, "c")[0], METADATA)


@pytest.mark.parametrize("field", ["sequence_batching", "ensemble_scheduling"])
def test_fields_that_change_what_a_request_means_are_refused(field: str) -> None:
    with pytest.raises(Invalid, match=f"{field} is not offered"):
        config_from_json({field: {"max_sequence_idle_microseconds": 5} if "seq" in field else {"step": []}}, "here")
    with pytest.raises(Invalid, match=f"{field} is not offered"):
        config_from_text(field + " { }", "here")
