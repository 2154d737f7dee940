"""Message classes and RPCs of our .proto texts, in a descriptor pool of their own.

A pool of their own, because the default one takes a name only once: a process may import Triton's client beside this.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pool, message_factory

from .schema import Method, methods_of, read_schema

POOL: Any = descriptor_pool.DescriptorPool()


def _load(name: str) -> Any:
    """Read one .proto text of this folder into the pool."""
    POOL.Add(read_schema(files(__package__).joinpath(name).read_text(encoding="utf-8"), name))
    return POOL.FindFileByName(name)


_load("model_config.proto")
INFERENCE: tuple[Method, ...] = methods_of(_load("inference.proto"), "GRPCInferenceService")
HEALTH: tuple[Method, ...] = methods_of(_load("health.proto"), "Health")


def message_class(full_name: str) -> Any:
    """The class of a message by its full name, such as "inference.ModelInferRequest"."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


ModelConfig: Any = message_class("inference.ModelConfig")
ModelInferRequest: Any = message_class("inference.ModelInferRequest")
ModelInferResponse: Any = message_class("inference.ModelInferResponse")
ModelStreamInferResponse: Any = message_class("inference.ModelStreamInferResponse")
HealthCheckResponse: Any = message_class("grpc.health.v1.HealthCheckResponse")
