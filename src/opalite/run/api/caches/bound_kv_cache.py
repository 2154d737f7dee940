"""KV caches bound as input and as output (onnxruntime's past-present buffer sharing), written in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....lazy_dataclass import dataclass
from ...model.run_request import RunRequest
from ..values.io_binding import IOBinding

if TYPE_CHECKING:
    from ...model.kv_cache.kv_cache_runs import KVCacheRuns
    from ..session.inference_session import InferenceSession


@dataclass
class SharedCaches:
    """The shared caches of a binding.

    tensors: output name and tensor by input. runs: the runs that write in place, None if caches are copied.
    """

    tensors: dict[str, tuple[str, DeviceTensor]]
    runs: KVCacheRuns | None


def run_with_binding(session: InferenceSession, binding: IOBinding, request: RunRequest) -> list[Any]:
    """Run on a binding; returns the model's outputs in order, those on the device as tensors.

    A tensor bound as input and output is written in place if the model only writes into it (TensorScatter,
    GroupQueryAttention). Otherwise the output is copied into it.
    """
    feeds = dict(binding.inputs)
    tensors = _tensors(binding, feeds)
    if not tensors:
        return _run_with_arrays(session, binding, feeds, request)
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


def _run_with_arrays(
    session: InferenceSession, binding: IOBinding, feeds: dict[str, Any], request: RunRequest
) -> list[Any]:
    """Run with caches as `session.run` has them, unless they are bound to device memory."""
    arrays, found = session._array_caches, None
    if arrays is not None and not arrays.presents.intersection(request.targets):
        picked = [i for i, a in enumerate(session.get_outputs()) if a.name in binding.outputs]
        found = arrays.run(feeds, picked, request)
    outputs = session._execute(feeds, request)[0] if found is None else found[0]
    if arrays is not None:
        arrays.record(feeds, outputs)
    return outputs


def _tensors(binding: IOBinding, feeds: dict[str, Any]) -> dict[str, tuple[str, DeviceTensor]]:
    """Output name and tensor by input, for tensors bound as both."""
    given = {
        id(o.result.value): name
        for name, o in binding.outputs.items()
        if o.is_given and o.on_device and o.result is not None
    }
    return {
        n: (given[id(v)], v) for n, v in feeds.items() if isinstance(v, DeviceTensor) and id(v) in given and v.nbytes
    }
