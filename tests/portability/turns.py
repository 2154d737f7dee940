"""One call at a time, for Oclgrind: its runtime keeps what is enqueued and what runs in places that all threads share.

Two threads that wait for the device at once end the process, on queues and contexts of their own too
(`faults/oclgrind_threads.py`). So calls that pyopencl makes without Python's lock take turns here, and what simulates,
a wait, is called with that lock held, so that no other thread lets go of memory meanwhile.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import pyopencl as cl

_turn = threading.RLock()


def take_turns() -> None:
    """Have all calls of this process take turns."""
    loader = ctypes.PyDLL(cl._cl.__file__)  # holds Python's lock during calls, as ctypes.CDLL does not

    def finish(queue: cl.CommandQueue) -> None:
        with _turn:
            code = loader.clFinish(ctypes.c_void_p(queue.int_ptr))
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

    cl.CommandQueue.finish = finish  # type: ignore[method-assign]
    cl.CommandQueue.flush = finish  # type: ignore[method-assign]
    cl.Event.wait = wait  # type: ignore[method-assign]
    cl.enqueue_copy = enqueue_copy
    cl._Program._build = _in_turn(cl._Program._build)  # type: ignore[method-assign]
    for name in ("enqueue_nd_range_kernel", "enqueue_fill_buffer"):
        setattr(cl, name, _in_turn(getattr(cl, name)))


def _in_turn(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _turn:
            return call(*args, **kwargs)

    return called
