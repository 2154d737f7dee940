"""The worker process: one model on one device, which answers the server's messages in turn until the server is gone.

    server → worker   open {path, kind, device, …} · run {id, slot, inputs, outputs, parameters} + memory · cancel {id}
    worker → server   ready {inputs, outputs, …} | failed · piece {id, text} · done {id, outputs, ns} + memory | error

It is started before it is told what to open, so that its imports are done by then.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from ...errors import InputError, ShapeError
from ...run.api.process.shared_memory import Block, align
from ..wire.datatypes import array_from_raw, dtype_of, raw_from_array
from ..wire.infer_messages import Array
from ..wire.serve_errors import Internal, Invalid, ServeError, TooLarge
from .worker_channel import Message, WorkerChannel
from .worker_models import Cancelled, Served, open_served

_STATS_S = 1.0
_GIVES_WAY = 4
"""How much nicer threads are that compute on all cores, so that requests are read, and refused, at once meanwhile."""


class Worker:
    """The loop of a worker, in as many threads as its model runs at once."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel
        self._inputs: dict[int, Block] = {}  # the server writes them
        self._outputs: dict[int, Block] = {}  # this process does
        self._most = 0
        self._told = time.monotonic()

    def serve(self) -> None:
        """Open what the server says, then run what it sends until it closes the socket."""
        message, _ = self._channel.receive()
        started = time.monotonic()
        try:
            model = open_served(message)
            self._most = message["max_output_bytes"]
            told = {**model.describe(), "stats": model.stats()}
        except Exception as e:
            self._channel.send({"op": "failed", **failure_of(e)})
            return
        if told["at_once"] > 1:
            os.nice(_GIVES_WAY)  # this thread and those that it starts
        # What is there now stays: no collection need look at it again.
        gc.collect()
        gc.freeze()
        self._channel.send({"op": "ready", "pid": os.getpid(), "seconds": time.monotonic() - started, **told})
        others = [threading.Thread(target=self._answer, args=(model,)) for _ in range(told["at_once"] - 1)]
        for thread in others:
            thread.start()
        self._answer(model)
        for thread in others:
            thread.join()
        model.close()

    def _answer(self, model: Served) -> None:
        """Run what comes until the server is gone."""
        while True:
            try:
                message, fds = self._channel.receive()
                if message["op"] == "run":
                    self._run(model, message, fds)
            except (EOFError, OSError):
                return

    def _run(self, model: Served, message: Message, fds: list[int]) -> None:
        started = time.monotonic_ns()
        number, slot = message["id"], message["slot"]
        if fds:
            self._inputs[slot] = Block.open(fds[0], message["block"])
        try:
            feeds = {name: self._read(slot, *rest) for name, *rest in message["inputs"]}
            read = time.monotonic_ns()
            outputs, parameters = model.run(feeds, message["outputs"], message["parameters"], self._piece_of(number))
            ran = time.monotonic_ns()
            told, made = self._write(slot, outputs)
        except Exception as e:
            self._channel.send({"op": "error", "id": number, "started": started, **failure_of(e)})
            return
        ended = time.monotonic_ns()
        answer: Message = {
            "op": "done",
            "id": number,
            "outputs": told,
            "parameters": parameters,
            "ns": [started, read - started, ran - read, ended - ran],
        }
        if time.monotonic() - self._told > _STATS_S:
            self._told = time.monotonic()
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
            return _decoded(texts)
        return block.view(offset, dtype_of(datatype), shape)

    def _write(self, slot: int, outputs: list[tuple[str, str, Array]]) -> tuple[list[Any], Block | None]:
        """Where in the slot's memory each output lies, and that memory where it is new."""
        told: list[Any] = []
        raws, end = [], 0
        for name, datatype, array in outputs:
            raw = raw_from_array(datatype, array)
            offset = align(end)
            end = offset + raw.nbytes
            told.append([name, datatype, list(array.shape), offset, raw.nbytes])
            raws.append(raw)
        if end > self._most:
            raise TooLarge(f"the outputs take {end} bytes, and the server sends {self._most} at most")
        block, made = self._outputs.get(slot), None
        if block is None or block.nbytes < end:
            block = made = self._outputs[slot] = Block.make(end)
        for (_, _, _, offset, nbytes), raw in zip(told, raws, strict=True):
            block.bytes[offset : offset + nbytes] = raw
        return told, made

    def _piece_of(self, number: int) -> Any:
        """What a model that writes text calls with each piece. Cancelled when the server wants no more of it."""

        def piece(text: str) -> None:
            while (found := self._channel.waiting()) is not None:
                if found[0]["op"] == "cancel" and found[0]["id"] == number:
                    raise Cancelled
            self._channel.send({"op": "piece", "id": number, "text": text})

        return piece


def failure_of(e: Exception) -> Message:
    """An exception as the server hears of it."""
    if isinstance(e, ServeError):
        kind = type(e)
    elif isinstance(e, InputError | ShapeError):
        kind = Invalid
    else:
        kind = Internal
    return {"kind": kind.__name__, "message": str(e) or type(e).__name__}


def _decoded(texts: Array) -> Array:
    for i, text in enumerate(texts.flat):
        try:
            texts.flat[i] = text.decode()
        except UnicodeDecodeError as e:
            raise Invalid(f"element {i} of a BYTES input is not UTF-8: {e}") from None
    return texts


def main(arguments: list[str]) -> None:
    """arguments: the number of the socket's descriptor."""
    # Ctrl-C reaches all processes of a terminal, and systemd's SIGTERM all of a service; the server says when this one
    # ends. A handler, unlike SIG_IGN, is not passed on to processes that compile, which SIGTERM is to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    sock = socket.socket(fileno=int(arguments[0]))
    sock.set_inheritable(False)  # or processes that compile kept it open after this one's death
    try:
        Worker(WorkerChannel(sock)).serve()
    except (EOFError, OSError):
        os._exit(0)  # the server is gone


if __name__ == "__main__":
    main(sys.argv[1:])
