"""Main module of a worker process: serves one model on one device until the server closes the socket.

    server → worker   open {path, kind, device, …} · run {id, slot, inputs, outputs, parameters} + memory · cancel {id}
    worker → server   ready {inputs, outputs, …} | failed · alive {}, twice a second · piece {id, text, logprobs}
                      done {id, outputs, ns} + memory | error

It starts before the message `open`, so that its imports overlap with other work.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from functools import partial
from typing import Any

from ...run.api.process.shared_memory import Block, align
from ..wire.datatypes import array_from_raw, as_text, dtype_of, raw_from_array
from ..wire.infer_messages import Array
from ..wire.serve_errors import TooLarge
from .active_run import ActiveRun, Cancelled
from .failure_messages import failure_message
from .shared_memory_batches import KEPT_BYTES
from .worker_channel import Message, WorkerChannel
from .worker_models import Served, open_served

_STATS_S = 1.0
_ALIVE_S = 0.5
_END_S = 1.0
"""Time to close the model in, when the server has closed its end."""
_COMPUTE_NICENESS = 4
"""Niceness of computing threads, so that the front can read and refuse requests meanwhile."""


class Worker:
    """The message loop of a worker, in one thread for each concurrent run."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel
        self._inputs: dict[int, Block] = {}  # the server writes them
        self._outputs: dict[int, Block] = {}  # this process does
        self._running: dict[int, ActiveRun] = {}
        self._newest = 0  # the largest number of a run that has begun; later runs have larger numbers
        self._cancelled: set[int] = set()  # runs cancelled before they have begun
        self._most = 0
        self._stats_sent = time.monotonic()

    def serve(self) -> None:
        """Open the model, then run batches until the server closes the socket."""
        threading.Thread(target=self._watch, daemon=True).start()
        message, _ = self._channel.receive()
        started = time.monotonic()
        try:
            model = open_served(message)
            self._most = message["max_output_bytes"]
            description = {**model.describe(), "stats": model.stats()}
        except Exception as e:
            self._channel.send({"op": "failed", **failure_message(e)})
            return
        if description["concurrency"] > 1:
            os.nice(_COMPUTE_NICENESS)  # also of threads started later
        # Existing objects are permanent: exclude them from collections.
        gc.collect()
        gc.freeze()
        self._channel.send({"op": "ready", "pid": os.getpid(), "seconds": time.monotonic() - started, **description})
        others = [threading.Thread(target=self._answer, args=(model,)) for _ in range(description["concurrency"] - 1)]
        for thread in others:
            thread.start()
        self._answer(model)
        for thread in others:
            thread.join()
        model.close()

    def _answer(self, model: Served) -> None:
        """Run batches until the server closes the socket."""
        while True:
            try:
                message, fds = self._channel.receive()
                if message["op"] == "run":
                    self._run(model, message, fds)
                else:
                    self._cancel(message["id"])
            except (EOFError, OSError):
                return

    def _watch(self) -> None:
        """Tell the server that this process is alive, cancel runs, and end with the server, also during a run."""
        try:
            while not self._channel.wait_for_end(_ALIVE_S):
                self._channel.send({"op": "alive"})
                self._cancel_arrived()
        except OSError:
            pass
        time.sleep(_END_S)
        os._exit(0)

    def _cancel_arrived(self) -> None:
        for number in self._channel.cancelled():
            self._cancel(number)

    def _cancel(self, number: int) -> None:
        run = self._running.get(number)
        if run is not None:
            run.options.terminate = True
        elif number > self._newest:
            self._cancelled.add(number)

    def _run(self, model: Served, message: Message, fds: list[int]) -> None:
        started = time.monotonic_ns()
        number, slot = message["id"], message["slot"]
        if fds:
            self._inputs[slot] = Block.open(fds[0], message["block"])
        active = self._running[number] = ActiveRun(partial(self._send_piece, number), self._cancel_arrived)
        self._newest = max(self._newest, number)
        try:
            if number in self._cancelled:
                self._cancelled.discard(number)
                raise Cancelled("the run was cancelled before it began")
            feeds = {name: self._read(slot, *rest) for name, *rest in message["inputs"]}
            read = time.monotonic_ns()
            outputs, parameters = model.run(feeds, message["outputs"], message["parameters"], active)
            ran = time.monotonic_ns()
            placed, made = self._write(slot, outputs)
        except Exception as e:
            self._channel.send({"op": "error", "id": number, "started": started, **failure_message(e)})
            return
        finally:
            del self._running[number]
            for blocks in (self._inputs, self._outputs):
                if slot in blocks and blocks[slot].nbytes > KEPT_BYTES:
                    del blocks[slot]
        ended = time.monotonic_ns()
        answer: Message = {
            "op": "done",
            "id": number,
            "outputs": placed,
            "parameters": parameters,
            "ns": [started, read - started, ran - read, ended - ran],
        }
        if time.monotonic() - self._stats_sent > _STATS_S:
            self._stats_sent = time.monotonic()
            answer["stats"] = model.stats()
        if made is None:
            self._channel.send(answer)
        else:
            self._channel.send({**answer, "block": made.nbytes}, [made.fd])
            made.close_file()

    def _read(self, slot: int, datatype: str, shape: list[int], offset: int, nbytes: int) -> Array:
        block = self._inputs[slot]
        if datatype == "BYTES":
            texts = array_from_raw(datatype, shape, block.bytes[offset : offset + nbytes].data, "an input")
            for i, text in enumerate(texts.flat):
                texts.flat[i] = as_text(text)
            return texts
        return block.view(offset, dtype_of(datatype), shape)

    def _write(self, slot: int, outputs: list[tuple[str, str, Array]]) -> tuple[list[Any], Block | None]:
        """Copy outputs to the slot's memory; their descriptions, and the memory if it is new."""
        placed: list[Any] = []
        raws, end = [], 0
        for name, datatype, array in outputs:
            raw = raw_from_array(datatype, array)
            offset = align(end)
            end = offset + raw.nbytes
            placed.append([name, datatype, list(array.shape), offset, raw.nbytes])
            raws.append(raw)
        if end > self._most:
            raise TooLarge(f"the outputs take {end} bytes, and the server sends {self._most} at most")
        block, made = self._outputs.get(slot), None
        if block is None or block.nbytes < end:
            block = made = self._outputs[slot] = Block.make(end)
        for (_, _, _, offset, nbytes), raw in zip(placed, raws, strict=True):
            block.bytes[offset : offset + nbytes] = raw
        return placed, made

    def _send_piece(self, number: int, text: str, logprobs: list[Any]) -> None:
        self._channel.send({"op": "piece", "id": number, "text": text, "logprobs": logprobs})


def main(arguments: list[str]) -> None:
    """arguments: the number of the socket's descriptor."""
    # Ctrl-C reaches all processes of a terminal, systemd's SIGTERM all of a service; only the server ends a worker. A
    # handler, unlike SIG_IGN, is not inherited by compiler processes, which SIGTERM must end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    sock = socket.socket(fileno=int(arguments[0]))
    sock.set_inheritable(False)  # compiler processes must not keep it open
    try:
        Worker(WorkerChannel(sock)).serve()
    except (EOFError, OSError):
        os._exit(0)  # the server has ended


if __name__ == "__main__":
    main(sys.argv[1:])
