"""A Server whose models are functions, for tests of what stands in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opalite.serve.engine.helper_process import HelperProcess
from opalite.serve.engine.inference_server import Server
from opalite.serve.engine.system_shared_memory import SystemSharedMemory
from opalite.serve.engine.telemetry_settings import TelemetrySettings
from opalite.serve.wire.infer_messages import (
    BatchStatistics,
    Duration,
    IndexEntry,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Statistics,
    Tensor,
    TensorMetadata,
)
from opalite.serve.wire.memory_budget import MemoryBudget
from opalite.serve.wire.serve_errors import Busy, Invalid, NotFound

Arrays = Mapping[str, Any]
Ends = Sequence[tuple[str, str, tuple[int, ...]]]


def _sums(x: Arrays) -> Arrays:
    return {"sum": x["a"] + x["b"], "difference": x["a"] - x["b"]}


def _shout(x: Arrays) -> Arrays:
    return {"text": np.array([v.upper() for v in x["text"].flat], object).reshape(x["text"].shape)}


MODELS: dict[str, tuple[Ends, Ends, Callable[[Arrays], Arrays]]] = {
    "sums": (
        [("a", "FP32", (-1, 4)), ("b", "FP32", (-1, 4))],
        [("sum", "FP32", (-1, 4)), ("difference", "FP32", (-1, 4))],
        _sums,
    ),
    "shout": ([("text", "BYTES", (-1, -1))], [("text", "BYTES", (-1, -1))], _shout),
    "echo": ([("text", "BYTES", (-1,))], [("same", "BYTES", (-1,))], lambda x: {"same": x["text"]}),
    "half": ([("x", "FP16", (-1,))], [("y", "FP16", (-1,))], lambda x: {"y": x["x"] * np.float16(2)}),
    "counts": ([("x", "INT64", (-1,))], [("y", "INT64", (-1,))], lambda x: {"y": x["x"] + 1}),
    "flags": ([("x", "BOOL", (-1,))], [("y", "BOOL", (-1,))], lambda x: {"y": ~x["x"]}),
    "picture": (
        [("input", "FP32", (-1, 3, 224, 224))],
        [("output", "FP32", (-1, 1000))],
        lambda x: {"output": np.ascontiguousarray(x["input"].reshape(len(x["input"]), -1)[:, :1000])},
    ),
    "writer": ([("text_input", "BYTES", (1,))], [("text_output", "BYTES", (1,))], _shout),
    "full": ([("x", "FP32", (-1,))], [("y", "FP32", (-1,))], lambda x: {}),
    "fails": ([("x", "FP32", (-1,))], [("y", "FP32", (-1,))], lambda x: {"y": x["nothing"]}),
}


class Double(Server):
    """Answers on the event loop. slow_s: how long each answer takes; finished, cancelled: how many ended so."""

    def __init__(self, slow_s: float = 0.0, memory_bytes: int = 1 << 30) -> None:
        self.slow_s = slow_s
        self.telemetry, self.shared_memory = TelemetrySettings(can_trace=True), SystemSharedMemory()
        self.memory, self.helper = MemoryBudget(memory_bytes), HelperProcess()
        self.running = False
        self.unloaded: set[str] = set()
        self.refusing: set[str] = set()
        self.configs: dict[str, Mapping[str, Any] | None] = {}
        self.requests: list[InferRequest] = []
        self.keep = True
        self.finished = self.cancelled = self.pieces = 0

    async def start(self) -> None:
        self.running = True

    async def close(self, grace_s: float) -> None:
        self.running = False
        self.helper.close()

    @property
    def live(self) -> bool:
        return self.running

    ready = live

    @property
    def devices(self) -> tuple[str, ...]:
        return ("functions",)

    def metadata(self) -> dict[str, Any]:
        return {"name": "double", "version": "1.0", "extensions": ("binary_tensor_data",)}

    def _ends(self, name: str, version: str) -> tuple[Ends, Ends, Callable[[Arrays], Arrays]]:
        if name not in MODELS or name in self.unloaded or version not in ("", "1"):
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        return MODELS[name]

    def admit(self, name: str, version: str = "") -> None:
        self._ends(name, version)
        if name in self.refusing:
            raise Busy("2 requests wait for the model already, and no more may")

    def model_ready(self, name: str, version: str = "") -> bool:
        return name in MODELS and name not in self.unloaded and version in ("", "1")

    def model_metadata(self, name: str, version: str = "") -> ModelMetadata:
        inputs, outputs, _ = self._ends(name, version)
        ends = (tuple(TensorMetadata(*end) for end in side) for side in (inputs, outputs))
        return ModelMetadata(name, ("1",), "onnx_opalite", *ends)

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        inputs, _, _ = self._ends(name, version)
        own = {"name": name, "platform": "onnx_opalite", "max_batch_size": 4 if len(inputs[0][2]) > 1 else 0}
        return own | (self.configs.get(name) or {})

    def statistics(self, name: str = "", version: str = "") -> tuple[Statistics, ...]:
        names = [name] if name else sorted(MODELS)
        for each in names:
            self._ends(each, version)
        took = Duration(2, 3000)
        return tuple(
            Statistics(n, "1", 5, 2, 1, success=took, batches=(BatchStatistics(2, took, took, took),)) for n in names
        )

    def index(self, ready: bool = False) -> tuple[IndexEntry, ...]:
        entries = [IndexEntry(n, "1", "UNAVAILABLE" if n in self.unloaded else "READY", "") for n in sorted(MODELS)]
        return tuple(e for e in entries if e.state == "READY" or not ready)

    async def load(self, name: str, config: Mapping[str, Any] | None = None) -> None:
        if name not in MODELS:
            raise NotFound(f"there is no model '{name}'")
        self.configs[name] = config
        self.unloaded.discard(name)

    async def unload(self, name: str) -> None:
        self._ends(name, "")
        self.unloaded.add(name)

    async def infer(self, request: InferRequest) -> InferResponse:
        inputs, outputs, function = self._ends(request.model, request.version)
        if self.keep:
            self.requests.append(request)
        if request.model == "full":
            raise Busy("the queue of 'full' has 128 requests", 2.0)
        given = {tensor.name: tensor for tensor in request.inputs}
        for name, datatype, shape in inputs:
            tensor = given.get(name)
            if tensor is None or tensor.datatype != datatype or tensor.array.ndim != len(shape):
                raise Invalid(f"input '{name}' is {datatype} of shape {list(shape)}")
            if any(n not in (-1, m) for n, m in zip(shape, tensor.array.shape, strict=True)):
                raise Invalid(f"input '{name}' has shape {list(tensor.array.shape)}, expected {list(shape)}")
        if request.model == "writer":
            return self._written(request, b"".join([piece async for piece in self._write(request)]))
        if self.slow_s:
            await self._wait()
        found = function({name: tensor.array for name, tensor in given.items()})
        asked = [output.name for output in request.outputs] or [name for name, _, _ in outputs]
        types = {name: datatype for name, datatype, _ in outputs}
        if not set(asked) <= set(types):
            raise Invalid(f"the model has the outputs {', '.join(types)}")
        answer = tuple(Tensor(name, types[name], found[name]) for name in asked)
        return InferResponse(request.model, "1", request.id, answer)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        if request.model != "writer":
            yield replace(await self.infer(request), parameters={"triton_final_response": True})
            return
        async for piece in self._write(request):
            yield self._written(request, piece)

    async def _write(self, request: InferRequest) -> AsyncIterator[bytes]:
        words = request.inputs[0].array[0].split() if request.inputs else []
        if not words:
            raise Invalid("input 'text_input' is missing")
        try:
            for _ in range(int(request.parameters.get("max_tokens", 1))):
                for word in words:
                    await self._wait()
                    self.pieces += 1
                    yield word + b" "
        except GeneratorExit:
            self.cancelled += 1
            raise

    def _written(self, request: InferRequest, text: bytes) -> InferResponse:
        output = np.array([text], object)
        return InferResponse(request.model, "1", request.id, (Tensor("text_output", "BYTES", output),))

    async def _wait(self) -> None:
        try:
            await asyncio.sleep(self.slow_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
