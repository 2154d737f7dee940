"""Our .proto texts say what Triton's client says, in names, numbers and types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

from opalite.serve.proto import message_classes

TRITON = (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR)


def described(field: Any) -> tuple[Any, ...]:
    """The properties of a field that its wire, text and JSON forms contain."""
    kind = field.message_type or field.enum_type
    oneof = field.containing_oneof
    repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return field.number, field.type, repeated, kind and kind.full_name, oneof and oneof.name, field.json_name


def check_message(ours: Any, theirs: Any) -> None:
    assert ours.full_name == theirs.full_name
    for name, field in ours.fields_by_name.items():
        assert described(field) == described(theirs.fields_by_name[name]), f"{ours.full_name}.{name}"
    for name, nested in ours.nested_types_by_name.items():
        assert nested.GetOptions().map_entry == theirs.nested_types_by_name[name].GetOptions().map_entry
        check_message(nested, theirs.nested_types_by_name[name])
    for name, enum in ours.enum_types_by_name.items():
        check_enum(enum, theirs.enum_types_by_name[name])


def check_enum(ours: Any, theirs: Any) -> None:
    assert {v.name: v.number for v in ours.values} == {v.name: v.number for v in theirs.values}


@pytest.mark.parametrize("name,theirs", [("inference.proto", TRITON[0]), ("model_config.proto", TRITON[1])])
def test_messages_are_the_protocols(name: str, theirs: Any) -> None:
    ours = message_classes.POOL.FindFileByName(name)
    assert ours.message_types_by_name
    for message, descriptor in ours.message_types_by_name.items():
        check_message(descriptor, theirs.message_types_by_name[message])
    for enum, descriptor in ours.enum_types_by_name.items():
        check_enum(descriptor, theirs.enum_types_by_name[enum])


def test_requests_and_answers_of_inference_are_complete() -> None:
    for name in ("ModelInferRequest", "ModelInferResponse", "InferParameter", "InferTensorContents"):
        ours, theirs = (
            message_classes.message_class(f"inference.{name}").DESCRIPTOR,
            getattr(service_pb2, name).DESCRIPTOR,
        )
        assert list(ours.fields_by_name) == list(theirs.fields_by_name)


def test_methods_are_the_protocols() -> None:
    theirs = TRITON[0].services_by_name["GRPCInferenceService"].methods_by_name
    ours = message_classes.SERVICE.methods_by_name
    for name, method in ours.items():
        of = theirs[name]
        assert method.full_name == of.full_name
        types = (of.input_type.full_name, of.output_type.full_name)
        assert (method.input_type.full_name, method.output_type.full_name) == types
        streams = (of.client_streaming, of.server_streaming)
        assert (method.client_streaming, method.server_streaming) == streams
    assert set(theirs) == set(ours)


def test_bytes_are_understood_by_tritons_classes() -> None:
    request = message_classes.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"\x01\x02"])
    request.inputs.add(name="x", datatype="UINT8", shape=[2]).parameters["classification"].int64_param = 3
    request.parameters["timeout"].int64_param = 5000
    theirs = service_pb2.ModelInferRequest.FromString(request.SerializeToString())
    assert theirs.inputs[0].parameters["classification"].int64_param == 3
    assert message_classes.ModelInferRequest.FromString(theirs.SerializeToString()) == request


def test_the_compiled_files_are_those_of_protoc(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    folder = Path(message_classes.__file__).parent
    names = sorted(p.name for p in folder.glob("*.proto"))
    made = tmp_path / "made.binpb"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={made}", *names]) == 0
    read = descriptor_pb2.FileDescriptorSet.FromString
    assert read((folder / message_classes.COMPILED).read_bytes()) == read(made.read_bytes()), "run `make protos`"
