"""Message classes and RPCs of the serving protocol, from the compiled .proto files (`make protos`).

They have their own descriptor pool, because the default pool holds each name once, and a process may also import
Triton's client.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

COMPILED = "descriptors.binpb"
"""The FileDescriptorSet that protoc compiles from this folder's .proto files."""

POOL: Any = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(files(__package__).joinpath(COMPILED).read_bytes()).file:
    POOL.Add(_file)


def message_class(full_name: str) -> Any:
    """The class of a message by its full name, such as "inference.ModelInferRequest"."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


SERVICE = POOL.FindServiceByName("inference.GRPCInferenceService")
ModelConfig: Any = message_class("inference.ModelConfig")
ModelInferRequest: Any = message_class("inference.ModelInferRequest")
ModelInferResponse: Any = message_class("inference.ModelInferResponse")
ModelStreamInferResponse: Any = message_class("inference.ModelStreamInferResponse")
