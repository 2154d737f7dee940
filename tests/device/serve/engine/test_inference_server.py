"""The engine with Opalite's sessions in its workers: what comes back, from batches too, and after a kill; and texts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import np_to_triton_dtype

import onnx
import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime
from opalite.serve.engine.inference_server import Server
from opalite.serve.engine.model_config import ServerSettings
from opalite.serve.wire.infer_messages import InferRequest, InferResponse, Tensor
from opalite.serve.wire.serve_errors import Invalid, WorkerLost

from ....helpers.decoders import KINDS
from ....helpers.small_models import classifier, make_model, noise, port
from ....helpers.words import make_folder


def serve(models: dict[str, Path], rt: Runtime, test: Callable[[Server], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        server = Server(ServerSettings(models=models, devices=(rt.info.id,), **more))
        try:
            await server.start()
            assert server.ready, server.index()
            await test(server)
        finally:
            await server.close(5)

    asyncio.run(asyncio.wait_for(run(), 120))


def request(model: str, parameters: dict[str, Any] | None = None, **arrays: Any) -> InferRequest:
    tensors = tuple(Tensor(n, np_to_triton_dtype(a.dtype), a) for n, a in arrays.items())
    return InferRequest(model, tensors, parameters=parameters or {})


def output(response: InferResponse) -> Any:
    return response.outputs[0].array


def test_rows_of_batches_are_those_of_single_runs_before_and_after_a_kill(tmp_path: Path, rt: Runtime) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(classifier(("N", 3, 13, 11)), path)
    pictures = [noise(1 + n % 3, 3, 13, 11, seed=n) for n in range(12)]
    with opalite.InferenceSession(path, device=rt.info.id) as session:
        expected = [session.run(None, {"x": p})[0] for p in pictures]

    async def test(server: Server) -> None:
        async def check() -> None:
            answers = await asyncio.gather(*(server.infer(request("m", x=p)) for p in pictures))
            for answer, wanted in zip(answers, expected, strict=True):
                np.testing.assert_allclose(output(answer), wanted, rtol=1e-4, atol=1e-6)

        await check()
        (told,) = server.statistics("m")
        assert told.inference_count == 24
        assert told.execution_count < 12
        with pytest.raises(Invalid, match=r"input 'x' has the shape \[-1, 3, 13, 11\]"):
            await server.infer(request("m", x=noise(1, 3, 13, 12)))
        (pid,) = server.workers()
        os.kill(pid, signal.SIGKILL)
        while True:
            try:
                await server.infer(request("m", x=pictures[0]))
                break
            except WorkerLost:  # the server has not seen it yet
                await asyncio.sleep(0.01)
        assert pid not in server.workers()
        await check()

    serve({"m": path}, rt, test, max_batch_size=4)


def test_texts_numbers_and_sizes_that_are_open(tmp_path: Path, rt: Runtime) -> None:
    nodes = [helper.make_node("Identity", ["t"], ["u"]), helper.make_node("Mul", ["x", "x"], ["y"])]
    inputs = [port("t", ["k"], TensorProto.STRING), port("x", ["rows", "columns"], TensorProto.INT64)]
    outputs = [port("u", ["k"], TensorProto.STRING), port("y", ["rows", "columns"], TensorProto.INT64)]
    onnx.save(make_model(nodes, inputs, outputs), tmp_path / "model.onnx")

    async def test(server: Server) -> None:
        texts = np.array([b"", "ä".encode(), b"abc"], object)
        for rows, columns in ((2, 3), (1, 7), (0, 3)):
            x = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns) - 2
            answer = await server.infer(request("m", t=texts, x=x))
            assert output(answer).tolist() == texts.tolist()
            assert answer.outputs[1].array.tolist() == (x * x).tolist()
        other = np.array([b"\xff"], object)  # no UTF-8
        assert output(await server.infer(request("m", t=other, x=x))).tolist() == other.tolist()

    serve({"m": tmp_path / "model.onnx"}, rt, test)


def test_texts_are_written_in_pieces(tmp_path: Path, rt: Runtime) -> None:
    pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
    pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
    folder = make_folder(tmp_path, {"model.onnx": KINDS[next(iter(KINDS))]()})
    options = {"max_tokens": 12, "ignore_end": True}
    prompts = ["Once (5)", "Twice"]
    with opalite.Generator(folder, device=rt.info.id) as generator:
        expected = [generator.generate(p, **options).text for p in prompts]

    def asking(prompt: str, **parameters: Any) -> InferRequest:
        return request("writer", parameters, text_input=np.array([prompt.encode()], object))

    async def test(server: Server) -> None:
        assert server.model_metadata("writer").platform == "text_opalite"

        async def streamed(prompt: str) -> list[InferResponse]:
            return [r async for r in server.stream(asking(prompt, **options))]

        found = await asyncio.gather(*(streamed(p) for p in prompts))
        for responses, wanted in zip(found, expected, strict=True):
            assert "".join(output(r)[0].decode() for r in responses) == wanted
            assert len(responses) > 2
            assert responses[-1].parameters["triton_final_response"] is True
            assert responses[-1].parameters["reason"] == "length"
        whole = await server.infer(asking(prompts[0], **options))
        assert output(whole).tolist() == [expected[0].encode()]
        assert whole.parameters["tokens"] == 12

        endless = server.stream(asking("On and on", max_tokens=500, ignore_end=True))
        await anext(endless)
        await endless.aclose()  # type: ignore[attr-defined]
        assert output(await server.infer(asking(prompts[1], **options)))[0].decode() == expected[1]
        assert server.statistics("writer")[0].cancel.count == 1
        with pytest.raises(Invalid, match="'max_tokens' is int, got 'many'"):
            await server.infer(asking("x", max_tokens="many"))
        with pytest.raises(Invalid, match=r"no parameter 'max_token'.*did you mean 'max_tokens'"):
            await server.infer(asking("x", max_token=3))
        with pytest.raises(Invalid, match="max_tokens is a number from 1"):
            await server.infer(asking("x", max_tokens=0))
        told = server.statistics("writer")[0]
        assert (told.success.count, told.fail.count, told.cancel.count) == (4, 3, 1)

    serve({"writer": folder}, rt, test)
