"""config.pbtxt and its JSON form as a message, with the names of what is not honoured."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from opalite.serve.proto.config_text import config_as_json, read_config_json, read_config_text
from opalite.serve.wire.serve_errors import Invalid

TEXT = """
# a comment with { in it
name: "net" platform: "onnxruntime_onnx"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1, -1 ] } ]
output { name: "y", data_type: TYPE_FP32; dims: 10 label_filename: "labels" ".txt" }
output < name: "z" data_type: TYPE_INT64 dims: [] >
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100
  default_queue_policy { timeout_action: DELAY max_queue_size: 16 } }
instance_group [ { count: 2 kind: KIND_CPU rate_limiter { resources [ { name: "}" count: 4 } ] } } ]
optimization { graph { level: -1 } cuda { graphs: true } }
parameters { key: "precision" value: { string_value: "fp16" } }
parameters: { key: "odd" value { string_value: "1" other: [1, 2] } }
newer_than_we { a { b: [1, -2.5, "x"] } }
"""
IGNORED = (
    *("input.format", "output.label_filename", "instance_group.rate_limiter", "optimization"),
    *("parameters.value.other", "newer_than_we"),
)


def test_fields_that_are_honoured_are_read_and_others_named() -> None:
    read = read_config_text(TEXT, "net/config.pbtxt")
    assert read.ignored == IGNORED
    assert read.gives_batch_size
    message = read.message
    assert (message.name, message.max_batch_size, list(message.input[0].dims)) == ("net", 8, [3, -1, -1])
    assert [o.name for o in message.output] == ["y", "z"]
    assert list(message.dynamic_batching.preferred_batch_size) == [4, 8]
    assert message.dynamic_batching.default_queue_policy.max_queue_size == 16
    assert message.parameters["precision"].string_value == "fp16"


def test_what_tritons_own_classes_write_is_read() -> None:
    theirs = model_config_pb2.ModelConfig(name="m", max_batch_size=4, backend="onnxruntime")
    theirs.input.add(name="x", data_type="TYPE_BF16", dims=[-1, 7])
    theirs.version_policy.specific.versions.extend([1, 3])
    theirs.optimization.execution_accelerators.gpu_execution_accelerator.add(name="tensorrt")
    text = read_config_text(text_format.MessageToString(theirs), "c")
    as_json = read_config_json(json_format.MessageToDict(theirs, preserving_proto_field_name=True), "c")
    camel = read_config_json(json_format.MessageToDict(theirs), "c")
    assert text.message == as_json.message == camel.message
    assert text.ignored == as_json.ignored == camel.ignored == ("optimization",)
    assert list(text.message.version_policy.specific.versions) == [1, 3]


def test_json_has_numbers_and_tritons_names() -> None:
    config = config_as_json(read_config_text(TEXT, "c").message)
    assert config["input"][0] == {"name": "x", "data_type": "TYPE_FP32", "dims": [3, -1, -1]}
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 100
    assert config["parameters"]["precision"] == {"string_value": "fp16"}
    theirs = json_format.ParseDict(json.loads(json.dumps(config)), model_config_pb2.ModelConfig())
    assert list(theirs.dynamic_batching.preferred_batch_size) == [4, 8]
    assert read_config_json(config, "c").message == read_config_text(TEXT, "c").message


@pytest.mark.parametrize("text", ["", "input [ ]", 'name: "a"'])
def test_an_absent_batch_size_is_not_zero(text: str) -> None:
    assert not read_config_text(text, "c").gives_batch_size


@pytest.mark.parametrize(
    "text,message",
    [
        ("max_batch_size: many", r"c: not a model configuration.*1:17"),
        ("input [ { name: 'x' data_type: TYPE_FLOAT } ]", "TYPE_FLOAT"),
        ("name: 'x", "not a model configuration"),
        ("name: 'x' optimization { graph {\n} max_batch_size: q", "c: not a model"),
        ("optimization { graph { } }\n  max_batch_size: q", "2:19"),
        ("input [ {", "not a model configuration"),
        ("}", "not a model configuration"),
        ("max_batch_size: 99999999999", "not a model configuration"),
    ],
)
def test_a_wrong_text_is_an_error_that_names_the_place(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read_config_text(text, "c")


@pytest.mark.parametrize(
    "config", [{"max_batch_size": "x"}, {"input": 3}, {"input": [3]}, {"parameters": {"a": 1}}, {"name": {}}]
)
def test_a_wrong_object_is_an_error(config: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="c: not a model configuration"):
        read_config_json(config, "c")
