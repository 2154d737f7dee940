"""One call at a time, for Oclgrind: its runtime keeps what is enqueued and what runs in places that all threads share.

Two threads that wait for the device at once end the process, on queues and contexts of their own too
(`faults/oclgrind_threads.py`). So calls that pyopencl makes without Python's lock take turns here, and what simulates,
a wait, is called with that lock held, so that no other thread lets go of memory meanwhile. It is called by one thread,
which made the context too: what finds uninitialised values has memory of its own in that thread alone.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyopencl as cl

from opalite.cl.runtime import Runtime

_NAME = "simulator"
_turn = threading.RLock()
_thread = ThreadPoolExecutor(1, _NAME)


def time_alternately() -> None:
    """Have all calls of this process take turns."""
    loader = ctypes.PyDLL(cl._cl.__file__)  # holds Python's lock during calls, as ctypes.CDLL does not

    def finish(queue: cl.CommandQueue) -> None:
        with _turn:
            code = _by_one_thread(loader.clFinish, ctypes.c_void_p(queue.int_ptr))
        if code:
            raise RuntimeError(f"clFinish gives {code}")

    copy = cl.enqueue_copy

    def enqueue_copy(queue: cl.CommandQueue, dest: Any, src: Any, *, is_blocking: bool = True, **kwargs: Any) -> Any:
        with _turn:
            if isinstance(dest, cl.MemoryObjectHolder) and isinstance(src, cl.MemoryObjectHolder):
                return copy(queue, dest, src, **kwargs)
            event = copy(queue, dest, src, is_blocking=False, **kwargs)
        if is_blocking:
            finish(queue)
        return event

    def wait(event: cl.Event) -> None:
        finish(event.command_queue)

    begin = Runtime.__init__

    def made(self: Runtime, *found: Any) -> None:
        _by_one_thread(begin, self, *found)

    Runtime.__init__ = made  # type: ignore[method-assign]
    cl.CommandQueue.finish = finish  # type: ignore[method-assign]
    cl.CommandQueue.flush = finish  # type: ignore[method-assign]
    cl.Event.wait = wait  # type: ignore[method-assign]
    cl.enqueue_copy = enqueue_copy
    cl._Program._build = _in_turn(cl._Program._build)  # type: ignore[method-assign]
    for name in ("enqueue_nd_range_kernel", "enqueue_fill_buffer"):
        setattr(cl, name, _in_turn(getattr(cl, name)))


def _by_one_thread(call: Callable[..., Any], *args: Any) -> Any:
    if threading.current_thread().name.startswith(_NAME):
        return call(*args)
    return _thread.submit(call, *args).result()


def _in_turn(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _turn:
            return call(*args, **kwargs)

    return called
