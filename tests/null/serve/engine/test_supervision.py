"""Workers that hang, stop or lose their server: time-outs, cancellation, replacement, orphans."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opalite.serve.engine.inference_server import Server
from opalite.serve.engine.worker_channel import ServerChannel, WorkerChannel
from opalite.serve.engine.worker_pool import most_instances
from opalite.serve.engine.worker_process import _CODE
from opalite.serve.wire.serve_errors import Invalid, TimedOut, WorkerLost

from ....helpers.numpy_server import Seen, found, gates, request, served, until, write
from ....helpers.serve_sessions import HELD, SLOW

LONG_S = 1000.0
"""Nobody waits for such a run to end."""


def reasons(seen: Seen) -> list[str]:
    return [e.reason for (e,) in seen.of("worker") if e.kind == "lost"]


def test_a_run_that_hangs_is_killed_after_its_timeout_and_replaced(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        hung = asyncio.create_task(server.infer(request(HELD)))
        await until(lambda: gates(tmp_path).waiting() == 1)
        waiting = [asyncio.create_task(server.infer(request(float(n)))) for n in range(3)]
        with pytest.raises(TimedOut, match=r"took longer than 0\.5 s and was cancelled"):
            await hung
        # The one that the worker held ahead of its turn is not lost either.
        assert [found(a, "y")[0][0] for a in await asyncio.gather(*waiting)] == [0, 2, 4]
        assert server.model_ready("m")

    seen = served(tmp_path, test, run_timeout_s=0.5)
    assert reasons(seen) == ["it was killed, because a run took longer than 0.5 s, and it could not be cancelled"]


def test_a_models_own_timeout_counts(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "m" / "config.pbtxt").write_text('parameters { key: "run_timeout_s" value { string_value: "0.3" } }')

    async def test(server: Server, seen: Seen) -> None:
        with pytest.raises(TimedOut, match=r"longer than 0\.3 s"):
            await server.infer(request(SLOW, second=LONG_S))
        assert server.model_config("m")["parameters"]["run_timeout_s"]["string_value"] == "0.3"
        with pytest.raises(Invalid, match="run_timeout_s is a number of seconds"):
            await server.load("m", {"parameters": {"run_timeout_s": {"string_value": "soon"}}})

    served(tmp_path, test)


def test_a_requests_own_timeout_ends_its_run(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        with pytest.raises(TimedOut, match=r"its timeout, 0\.300 s"):
            await server.infer(request(SLOW, second=1.0, parameters={"timeout": 300_000}))
        # The run ends by itself before the process is killed.
        assert found(await server.infer(request(4.0)), "y") == [[8, 0, 0]]

    assert reasons(served(tmp_path, test)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        (pid,) = server.workers()
        held = asyncio.create_task(server.infer(request(HELD)))
        await until(lambda: gates(tmp_path).waiting() == 1)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerLost, match="no sign of life"):
            await held
        assert found(await server.infer(request(4.0)), "y") == [[8, 0, 0]]
        assert set(server.workers()) != {pid}

    assert "no sign of life" in reasons(served(tmp_path, test))[0]


def test_the_number_of_workers_has_a_limit(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        with pytest.raises(Invalid, match=f"asks for 100000 workers, and this machine takes {most_instances()}"):
            await server.load("m", {"instance_group": [{"count": 100000}]})
        assert len(server.workers()) == 1

    served(tmp_path, test)


def test_a_request_names_no_file_by_its_precision(tmp_path: Path) -> None:
    write(tmp_path)
    secret = tmp_path / "secret.json"
    secret.write_text("{}")

    async def test(server: Server, seen: Seen) -> None:
        said = set()
        for path in (secret, tmp_path / "nosuch.json"):
            with pytest.raises(Invalid) as e:
                await server.load("m", {"parameters": {"precision": {"string_value": str(path)}}})
            said.add(str(e.value).replace(str(path), ""))
        assert len(said) == 1

    served(tmp_path, test)


def test_a_broken_model_concerns_itself_alone(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, "broken", name="other")

    async def test(server: Server, seen: Seen) -> None:
        assert server.ready
        assert server.model_ready("m")
        assert not server.model_ready("other")

    async def strict(server: Server, seen: Seen) -> None:
        assert not server.ready

    served(tmp_path, test)
    served(tmp_path, strict, started=False, strict_readiness=True)


def test_cancellations_are_found_among_other_messages() -> None:
    async def run() -> None:
        own, others = socket.socketpair()
        channel, worker = ServerChannel(own, lambda m, fds: None, lambda: None), WorkerChannel(others)
        for message in ({"op": "run", "id": 1}, {"op": "cancel", "id": 1}, {"op": "run", "id": 2}):
            channel.send(message)
        assert worker.cancelled() == [1]
        assert [worker.receive()[0]["id"] for _ in range(2)] == [1, 2]
        assert not worker.wait_for_end(0)
        channel.close()
        assert worker.wait_for_end(10)
        others.close()

    asyncio.run(run())


def test_a_worker_ends_with_its_server_during_a_run(tmp_path: Path) -> None:
    """kill -9 of the server closes its end of the socket."""
    write(tmp_path)
    own, others = socket.socketpair()
    worker = subprocess.Popen([sys.executable, "-P", "-c", _CODE, str(others.fileno())], pass_fds=(others.fileno(),))
    others.close()
    try:
        side = WorkerChannel(own)
        side.send(
            {
                "op": "open",
                "path": str(tmp_path / "m" / "1" / "model.onnx"),
                "kind": "onnx",
                "options": {},
                "factory": "tests.helpers.serve_sessions:doubler",
                "import_path": sys.path,
                "warm_sizes": [1],
                "batchable": False,
                "batches": False,
                "core_share": None,
                "is_replacement": True,
                "concurrency": 1,
                "max_output_bytes": 1 << 20,
            }
        )
        while (message := side.receive()[0])["op"] == "alive":
            pass
        assert message["op"] == "ready", message
        x = request(HELD).inputs[0].array
        from opalite.run.api.process.shared_memory import Block

        block = Block.make(x.nbytes)
        block.bytes[: x.nbytes] = x.view("u1").ravel()
        inputs = [["x", "FP32", list(x.shape), 0, x.nbytes]]
        run = {
            "op": "run",
            "id": 1,
            "slot": 0,
            "block": block.nbytes,
            "inputs": inputs,
            "outputs": [],
            "parameters": {},
        }
        side.send(run, [block.fd])
        while not gates(tmp_path).waiting():
            time.sleep(0.002)
        own.close()
        worker.wait(60)
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
def test_a_lost_worker_is_replaced_by_the_spare_one_if_that_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opalite.serve.engine.spare_worker._PAUSE_S", 0.0)
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        async def spare() -> int:
            while server.spare.pid in (0, *server.workers()) or not server.spare._spare.heard:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            return server.spare.pid

        async def lost() -> int:
            (pid,) = server.workers()
            os.kill(pid, signal.SIGKILL)
            while pid in server.workers() or not server.workers():
                await asyncio.sleep(0.01)
            assert found(await server.infer(request(4.0)), "y") == [[8, 0, 0]]
            return next(iter(server.workers()))

        waiting = await spare()
        assert await lost() == waiting
        stopped = await spare()
        os.kill(stopped, signal.SIGSTOP)
        assert await lost() != stopped

    served(tmp_path, test, spare_worker=True)
