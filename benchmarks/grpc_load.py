"""gRPC load like http_load's HTTP load: several connections, each sends when it has its answer.

One thread per connection in the calling process. Requests are serialised once and answers are not parsed, so that the
client's time is grpc's alone.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Sequence

import grpc

from opalite.serve.proto.message_classes import ModelInferRequest

from .http_load import Load, inputs_for, resident

STATUS = {grpc.StatusCode.OK: 200, grpc.StatusCode.UNAVAILABLE: 503}
_LARGEST = 128 << 20


def request_for(address: str, model: str) -> bytes:
    """A ModelInferRequest with random inputs. address: the server's for HTTP."""
    message = ModelInferRequest(model_name=model)
    for name, datatype, shape, raw in inputs_for(address, model):
        message.inputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_input_contents.append(raw)
    serialised: bytes = message.SerializeToString()
    return serialised


def run(place: str, request: bytes, connections: int, seconds: float, pids: Sequence[int] = ()) -> Load:
    """Generates load for `seconds`; waits for the last answers. place: host and port."""
    load, lock = Load(connections), threading.Lock()
    started = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF)

    def connection(number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", _LARGEST)]
        with grpc.insecure_channel(place, options) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            while (began := time.perf_counter()) < started + seconds:
                try:
                    call(request)
                    status = 200
                except grpc.RpcError as e:
                    status = STATUS.get(e.code(), 500)
                took = time.perf_counter() - began
                with lock:
                    load.statuses[status] += 1
                    if status == 200:
                        load.latencies.append(took)
                    elif status == 503:
                        load.refused_s.append(took)

    threads = [threading.Thread(target=connection, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    while pids and time.perf_counter() < started + seconds:
        load.memory.append((time.perf_counter() - started, sum(map(resident, pids))))
        time.sleep(1.0)
    for thread in threads:
        thread.join()
    load.seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    load.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return load
