"""Caches that are bound as input and as output, as onnxruntime's shared buffers are: written where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ...model.run_request import RunRequest
from ..values.io_binding import IOBinding

if TYPE_CHECKING:
    from ...model.kv_cache.kv_cache_runs import KVCacheRuns
    from ..session.inference_session import InferenceSession


@dataclass
class SharedCaches:
    """How a binding's runs go. tensors: by input, and the output that each is; runs: None where they are copied."""

    tensors: dict[str, tuple[str, DeviceTensor]]
    runs: KVCacheRuns | None


def run_with_binding(session: InferenceSession, binding: IOBinding, request: RunRequest) -> list[Any]:
    """The model's outputs in order, those that are on the device as tensors.

    What is bound as an input and an output is written in place where the model writes into it alone (TensorScatter,
    GroupQueryAttention); else it is copied, by the usual way.
    """
    feeds = binding.fed()
    tensors = _tensors(binding, feeds)
    if not tensors:
        return session._execute(feeds, request)[0]
    from ...model.kv_cache.kv_cache_runs import KVCacheRuns, NoKVCacheRunError
    from .kv_cache import kv_cache_model

    shared: SharedCaches | None = binding.shared
    if shared is None or shared.tensors.keys() != tensors.keys() or shared.tensors != tensors:
        model = kv_cache_model(session)
        presents = {n: output for n, (output, _) in tensors.items()}
        shared = binding.shared = SharedCaches(
            tensors, None if model is None else KVCacheRuns(model, presents, presents)
        )
    if shared.runs is not None:
        shared.runs.caches = {n: GrowableDeviceTensor.wrap_full(t) for n, (_, t) in tensors.items()}
        try:
            outputs = session._execute({n: v for n, v in feeds.items() if n not in tensors}, request, shared.runs)[0]
        except NoKVCacheRunError:
            shared.runs = None
        else:
            by_output = dict(tensors.values())
            return [by_output.get(a.name, v) for a, v in zip(session.get_outputs(), outputs, strict=True)]
    return session._execute(feeds, request)[0]


def _tensors(binding: IOBinding, feeds: dict[str, Any]) -> dict[str, tuple[str, DeviceTensor]]:
    """Tensors by the input that they are bound to, with the output that they are bound to as well."""
    given = {
        id(o.result.value): name
        for name, o in binding.outputs.items()
        if o.is_given and o.on_device and o.result is not None
    }
    return {
        n: (given[id(v)], v) for n, v in feeds.items() if isinstance(v, DeviceTensor) and id(v) in given and v.nbytes
    }
