"""Runs engine and fronts in one event loop, until a signal or the end of a block."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

try:
    from uvloop import new_event_loop
except ImportError:
    new_event_loop = None

if TYPE_CHECKING:
    from .engine.inference_server import Server
    from .wire.memory_budget import MemoryBudget


# glibc maps allocations above 128 KiB anew and unmaps them when freed, and the kernel clears each new page. For bodies
# of 600 KB this took half of all CPU time.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>
_FREE = 128 << 20
_PIECE = 32 << 20
_TRIM_S = 1.0
_OTHER_FILES = 256


class Front(Protocol):
    """A server of one protocol, bound to its port at construction. is_open: other machines need no key."""

    name: str
    address: str
    is_open: bool

    async def start(self, server: Server) -> None:
        """Accept requests."""

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, and finish running ones within `grace_s`."""

    def close(self) -> None:
        """Release the port of a front that was not started."""


async def serve(
    server: Server, fronts: Sequence[Front], stop: asyncio.Event, grace_s: float, say: Callable[[str], None]
) -> None:
    """Serve until `stop` is set; accepted requests then have `grace_s` seconds.

    Fronts accept requests while models are loading, and stop before the engine. say: receives the
    ready line and warnings.
    """
    for front in fronts:
        if front.is_open:
            say(f"warning: {front.name} is open to other machines and asks for no key; see --api-key-file")
    started: list[Front] = []
    try:
        for front in fronts:
            await front.start(server)
            started.append(front)
        starting = asyncio.create_task(server.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            say(ready_line(server, fronts))
        else:
            starting.cancel()
        giving_back = asyncio.create_task(give_back_memory(server.memory))
        await stopping
        giving_back.cancel()
    finally:
        end = time.monotonic() + grace_s
        await asyncio.gather(*(front.stop(grace_s) for front in started))
        for front in fronts[len(started) :]:
            front.close()
        await server.close(max(end - time.monotonic(), 0.0))


def ready_line(server: Server, fronts: Sequence[Front]) -> str:
    """The line that names models, devices and addresses."""
    entries = server.index()
    models = ", ".join(f"{e.name} ({e.version})" for e in entries if e.state == "READY") or "no model"
    failed = "".join(f"; {e.name} ({e.version}) is not: {e.reason}" for e in entries if e.state != "READY" and e.reason)
    places = ", ".join(f"{front.name} {front.address}" for front in fronts)
    devices = ", ".join(server.devices) or "no device"
    return f"ready: {models} on {devices} at {places}{failed}"


def run(server_of: Callable[[], Server], fronts: Sequence[Front], grace_s: float, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, in the main thread; a second signal ends the process at once."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()  # excludes loaded modules from collections

    async def main() -> None:
        stop = asyncio.Event()

        def on_signal(number: signal.Signals) -> None:
            if stop.is_set():
                os._exit(128 + number)
            say(f"stopping within {grace_s:g} seconds; once more to stop at once")
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows has Ctrl+C as an exception
                asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
        await serve(server_of(), fronts, stop, grace_s, say)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@contextlib.contextmanager
def serving(server_of: Callable[[], Server], fronts: Sequence[Front], grace_s: float = 10.0) -> Iterator[list[str]]:
    """Serve in a thread during the block; yields the fronts' addresses. For tests and notebooks."""
    stop, ready, lines = asyncio.Event(), threading.Event(), []
    failure: list[BaseException] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())

        def say(line: str) -> None:
            lines.append(line)
            if line.startswith("ready:"):
                ready.set()

        await serve(server_of(), fronts, stop, grace_s, say)

    def body() -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(main())
        except BaseException as e:
            failure.append(e)
        finally:
            ready.set()

    thread = threading.Thread(target=body, name="opalite-serve", daemon=True)
    thread.start()
    ready.wait()
    try:
        if failure:
            raise failure[0]
        yield [front.address for front in fronts]
    finally:
        if thread.is_alive():
            loops[0].call_soon_threadsafe(stop.set)
        thread.join()
    if failure:
        raise failure[0]


async def give_back_memory(memory: MemoryBudget) -> None:
    """Give freed memory back to the system after large requests. Linux with glibc only.

    grpc receives messages in small pieces on several threads, whose heaps would keep their largest size for ever.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    while trim is not None:
        await asyncio.sleep(_TRIM_S)
        if memory.has_freed_large:
            memory.has_freed_large = False
            await asyncio.to_thread(trim, _FREE)


def raise_file_limit(connections: int) -> Iterator[str]:
    """Allow this process as many open files as `connections` take. Yields a warning where the system allows fewer."""
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reached = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
    if reached < wanted:
        yield (
            f"warning: {connections} connections and other files need {wanted} descriptors, and this process may open "
            f"{reached}: raise 'ulimit -n', or lower --max-connections"
        )


def keep_freed_memory() -> None:
    """Keep up to 128 MiB of freed memory, in allocations up to 32 MiB. Linux with glibc only."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, _PIECE)
            mallopt(_TRIM_THRESHOLD, _FREE)
