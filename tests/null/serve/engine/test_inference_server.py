"""The engine with real worker processes, whose sessions are NumPy's: batches, priorities, kills, versions, closing."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from opalite.serve.engine.inference_server import Server
from opalite.serve.engine.model_config import DynamicBatching, ModelConfig
from opalite.serve.engine.worker_pool import Device, Placement, placements_on
from opalite.serve.wire.infer_messages import InferRequest, InferResponse, RequestedOutput, Tensor
from opalite.serve.wire.serve_errors import (
    Busy,
    Internal,
    Invalid,
    NotFound,
    NotReady,
    ServeError,
    TimedOut,
    TooLarge,
    Unsupported,
    WorkerLost,
)

from ....helpers.numpy_server import Seen, found, gates, hold, request, served, until, write
from ....helpers.serve_sessions import DIES, FAILS, HELD


def test_answers_statistics_and_what_is_watched(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        answer = await server.infer(request(1, 2, id="q"))
        assert found(answer, "y") == [[2, 0, 0], [4, 0, 0]]
        assert [(t.name, t.datatype) for t in answer.outputs] == [("y", "FP32"), ("size", "INT64"), ("pid", "INT64")]
        assert (answer.model, answer.version, answer.id) == ("m", "1", "q")
        one = await server.infer(request(3, outputs=(RequestedOutput("size"),)))
        assert [(t.name, t.array.tolist()) for t in one.outputs] == [("size", [1])]
        (streamed,) = [r async for r in server.stream(request(3))]
        assert streamed.parameters["triton_final_response"] is True
        metadata = server.model_metadata("m")
        assert metadata.inputs[0].shape == (-1, 3)
        assert metadata.versions == ("1",)
        (told,) = server.statistics("m")
        assert (told.inference_count, told.execution_count, told.success.count) == (4, 3, 3)
        assert [b.batch_size for b in told.batches] == [1, 2]
        assert told.success.ns >= told.queue.ns + told.compute_infer.ns > 0
        with pytest.raises(Invalid, match="got"):
            await server.infer(InferRequest("m", (Tensor("x", "FP32", np.zeros((1, 4), np.float32)),)))
        with pytest.raises(NotFound, match="unknown model: 'other'"):
            await server.infer(InferRequest("other", ()))
        with pytest.raises(NotFound, match="version '9'"):
            await server.infer(request(version="9"))

    seen = served(tmp_path, test, max_batch_size=4)
    assert [t.failure for (t,) in seen.of("finished")] == ["", "", ""]
    trace = seen.of("finished")[0][0]
    assert trace.total_s >= trace.queue_s + trace.infer_s > 0
    assert (trace.bytes_in, trace.bytes_out, trace.batch) == (24, 24 + 2 * 16, 2)
    assert [kind for *_, kind in seen.of("rejected")] == ["Invalid", "NotFound", "NotFound"]
    assert [e.kind for (e,) in seen.of("worker")] == ["starting", "ready", "stopped"]
    assert [e.device for (e,) in seen.of("worker")][1:] == ["host", "host"]


def test_requests_that_wait_share_batches_and_one_that_fails_fails_alone(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        gate = gates(tmp_path)
        first = await hold(server, seen, gate)
        rest = [asyncio.create_task(server.infer(request(f))) for f in (1, 2, FAILS, 3)]
        more = asyncio.create_task(server.infer(request(4, 5, 6, 7)))
        await until(lambda: seen.of("queued")[-1][2] == 5)
        gate.open()
        answers = await asyncio.gather(*first, *rest, more, return_exceptions=True)
        failed = [a for a in answers if isinstance(a, BaseException)]
        assert [str(e) for e in failed] == ["a row that fails"]
        assert isinstance(failed[0], Internal)
        good = [a for a in answers[2:] if isinstance(a, InferResponse)]
        assert [[row[0] for row in found(a, "y")] for a in good] == [[2], [4], [6], [8, 10, 12, 14]]
        again = await hold(server, seen, gate, 1)
        joined = [asyncio.create_task(server.infer(request(float(n)))) for n in range(6)]
        await until(lambda: seen.of("queued")[-1][2] == 6)
        gate.open(1)
        assert [found(a, "size") for a in await asyncio.gather(*joined)] == [[4]] * 4 + [[2]] * 2
        await asyncio.gather(*again)

    served(tmp_path, test, max_batch_size=4)


def test_rows_are_told_of_but_not_joined_on_a_cpu(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        config = server.model_config("m")
        assert config["max_batch_size"] == 4
        assert "dynamic_batching" not in config
        gate = gates(tmp_path)
        held = await hold(server, seen, gate)
        waiting = [asyncio.create_task(server.infer(request(float(n)))) for n in range(3)]
        await until(lambda: seen.of("queued")[-1][2] == 3)
        gate.open()
        assert [found(a, "size") for a in await asyncio.gather(*waiting)] == [[1], [1], [1]]
        assert found(await server.infer(request(1.0, rows=6)), "size") == [6] * 6
        await asyncio.gather(*held)

    served(tmp_path, test)


def test_a_full_queue_answers_at_once_and_recovers(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        gate = gates(tmp_path)
        held = await hold(server, seen, gate)
        waiting = [asyncio.create_task(server.infer(request(1.0))) for _ in range(3)]
        await until(lambda: seen.of("queued")[-1][2] == 3)
        with pytest.raises(Busy):
            await server.infer(request())
        with pytest.raises(Busy):
            server.admit("m")
        assert not any(task.done() for task in held + waiting)
        gate.open()
        assert [told[2] for told in seen.of("rejected")] == ["Busy", "Busy"]
        await asyncio.gather(*held, *waiting)
        server.admit("m", "1")
        await server.infer(request())
        with pytest.raises(NotFound):
            server.admit("m", "2")

    served(tmp_path, test, max_queue_size=3, max_batch_size=0)


def test_time_is_over_in_the_queue_and_clients_leave(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        gate = gates(tmp_path)
        held = await hold(server, seen, gate)
        left = asyncio.create_task(server.infer(request(1.0)))
        await until(lambda: seen.of("queued")[-1][2] == 1)
        left.cancel()
        with pytest.raises(TimedOut, match=r"waited 0\.050 s"):
            await server.infer(request(2.0, parameters={"timeout": 50_000}))
        assert not any(task.done() for task in held)
        gate.open()
        await asyncio.gather(*held)
        assert (await asyncio.gather(left, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        (told,) = server.statistics()
        assert (told.success.count, told.fail.count, told.cancel.count) == (2, 1, 1)

    seen = served(tmp_path, test)
    assert sorted(t.failure for (t,) in seen.of("finished")) == ["", "", "Cancelled", "TimedOut"]


def test_a_killed_worker_loses_what_it_held_and_no_more(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        held = asyncio.create_task(server.infer(request(HELD)))
        await until(lambda: gates(tmp_path).waiting() == 1)
        waiting = [asyncio.create_task(server.infer(request(float(n)))) for n in range(5)]
        await until(lambda: len(seen.of("accepted")) == 6)
        (pid,) = server.workers()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            await held
        answers = await asyncio.gather(*waiting)
        assert [found(a, "y")[0][0] for a in answers] == [0, 2, 4, 6, 8]
        assert {p for a in answers for p in found(a, "pid")} == set(server.workers()) != {pid}
        with pytest.raises(WorkerLost):
            await server.infer(request(DIES))
        assert found(await server.infer(request(3)), "y") == [[6, 0, 0]]

    seen = served(tmp_path, test)
    lost = [e for (e,) in seen.of("worker") if e.kind == "lost"]
    assert [e.reason for e in lost] == ["it was ended by SIGKILL"] * 2


def test_several_workers_take_from_one_queue(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        tasks = [asyncio.create_task(server.infer(request(HELD))) for _ in range(2)]
        await until(lambda: gates(tmp_path).waiting() == 2)
        gates(tmp_path).open()
        pids = {p for a in await asyncio.gather(*tasks) for p in found(a, "pid")}
        assert pids == set(server.workers())
        assert len(pids) == 2

    served(tmp_path, test, instances=2)


def test_workers_divide_the_cores_of_a_cpu() -> None:
    devices = [Device("cpu", True), Device("gpu", False)]
    assert placements_on(devices, 2) == [
        Placement("cpu", (0, 2)),
        Placement("cpu", (1, 2)),
        Placement("gpu"),
        Placement("gpu"),
    ]
    assert placements_on(devices, 1) == [Placement("cpu"), Placement("gpu")]


def test_a_new_version_takes_over_without_a_failed_request(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        factors: list[float] = []

        async def ask() -> None:
            while 5.0 not in factors[-9:]:
                factors.append(found(await server.infer(request(1.0)), "y")[0][0])
                await asyncio.sleep(0.002)

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        await until(lambda: 2.0 in factors)
        write(tmp_path, "3")
        await server.load("m")
        await until(lambda: 3.0 in factors)
        write(tmp_path, "5", version=2)
        await server.load("m")
        await asyncio.gather(*asking)
        assert set(factors) == {2.0, 3.0, 5.0}
        assert [(e.version, e.state) for e in server.index()] == [("1", "UNAVAILABLE"), ("2", "READY")]
        write(tmp_path, "broken", version=3)
        with pytest.raises(ServeError, match="this model is broken"):
            await server.load("m")
        assert found(await server.infer(request(1.0)), "y")[0][0] == 5
        assert [(e.version, e.state) for e in server.index(ready=True)] == [("2", "READY")]
        await server.unload("m")
        assert not server.model_ready("m")
        with pytest.raises(NotReady, match="not ready"):
            await server.infer(request(1.0))
        with pytest.raises(NotFound):
            await server.load("../m")

    served(tmp_path, test)


def test_models_that_cannot_be_served_say_why(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, "broken", name="bad")

    async def test(server: Server, seen: Seen) -> None:
        entries = {e.name: e for e in server.index()}
        assert (entries["bad"].state, entries["bad"].reason) == ("UNAVAILABLE", "this model is broken")
        with pytest.raises(NotReady, match="this model is broken"):
            await server.infer(InferRequest("bad", ()))
        assert found(await server.infer(request(1.0)), "y") == [[2, 0, 0]]
        with pytest.raises(Unsupported, match="'none'"):
            await server.load("m")

    served(tmp_path, test, model_control="none")


def test_the_folder_is_followed(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        write(tmp_path, "7", name="other")
        write(tmp_path, "4")
        while not server.model_ready("other") or found(await server.infer(request(1.0)), "y")[0][0] != 4:
            await asyncio.sleep(0.05)
        (tmp_path / "other" / "1" / "model.onnx").unlink()
        (tmp_path / "other" / "1").rmdir()
        (tmp_path / "other").rmdir()
        await until(lambda: not server.model_ready("other"))

    served(tmp_path, test, model_control="poll", poll_s=0.1)


def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        pids = list(server.workers())
        accepted = [asyncio.create_task(server.infer(request(HELD))) for _ in range(4)]
        await until(lambda: gates(tmp_path).waiting() == 1 and len(seen.of("accepted")) == 4)
        closing = asyncio.create_task(server.close(60))
        await until(lambda: not server.ready)
        with pytest.raises(NotReady, match="closing"):
            await server.infer(request())
        gates(tmp_path).open()
        assert all(isinstance(a, InferResponse) for a in await asyncio.gather(*accepted))
        await closing
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)

    served(tmp_path, test, max_batch_size=0)


def test_a_signal_to_the_whole_service_leaves_the_end_to_the_server(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        task = asyncio.create_task(server.infer(request(HELD)))
        await until(lambda: gates(tmp_path).waiting() == 1)
        for pid in server.workers():
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
        gates(tmp_path).open()
        assert (await task).model == "m"

    seen = served(tmp_path, test)
    assert [e.kind for (e,) in seen.of("worker")] == ["starting", "ready", "stopped"]


def test_closing_ends_what_takes_longer_than_the_grace(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        accepted = [asyncio.create_task(server.infer(request(HELD))) for _ in range(4)]
        await until(lambda: gates(tmp_path).waiting() == 1 and len(seen.of("accepted")) == 4)
        await server.close(0.2)
        failed = await asyncio.gather(*accepted, return_exceptions=True)
        assert {type(e) for e in failed} == {WorkerLost, NotReady}

    served(tmp_path, test, max_batch_size=0)


def test_outputs_are_limited(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        await server.infer(request(1.0))
        with pytest.raises(TooLarge, match="the outputs take"):
            await server.infer(request(1.0, rows=100))

    served(tmp_path, test, max_output_bytes=1000)


def test_batches_that_a_configuration_asks_for_need_open_dimensions(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        model = server._models["m"].versions[1]
        assert model.config.max_batch_size == 4
        assert model.config.dynamic_batching == DynamicBatching(preferred_batch_size=(2,))
        assert ModelConfig().max_batch_size is None

    served(tmp_path, test, preferred_batch_size=(2, 9), max_batch_size=4)
