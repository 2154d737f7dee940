"""Which of Opalite's kernels a test ran: those that made launches, an entry of which was enqueued."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opalite.cl.queue.launch_sequence import LaunchSequence
from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.kernels import Kernel, Launch, all_kernels

_entries: dict[str, set[str]] = {}  # of the launches that each kernel made since the last `forget`
_enqueued: set[str] = set()


def follow_launches() -> None:
    """Note from now on what this process's kernels make and what is enqueued."""
    for kernel in all_kernels():
        kernel.launch = _noting(kernel, kernel.launch)  # type: ignore[method-assign]
    enqueue, run = PreparedLaunch.enqueue, LaunchSequence.run

    def noted_enqueue(self: PreparedLaunch, queue: Any) -> Any:
        _enqueued.add(self.kernel.wrapped.function_name)
        return enqueue(self, queue)

    def noted_run(self: LaunchSequence) -> Any:
        _enqueued.update(launch.kernel.wrapped.function_name for launch in self.launches)
        return run(self)

    PreparedLaunch.enqueue = noted_enqueue  # type: ignore[method-assign]
    LaunchSequence.run = noted_run  # type: ignore[method-assign]


def _noting(kernel: Kernel, launch: Callable[..., list[Launch]]) -> Callable[..., list[Launch]]:
    @functools.wraps(launch)
    def noted(*args: Any) -> list[Launch]:
        made = launch(*args)
        _entries.setdefault(kernel.name, set()).update(x.entry for x in made)
        return made

    return noted


def forget() -> None:
    """A test begins."""
    _entries.clear()
    _enqueued.clear()


def reached() -> list[str]:
    """Names of the kernels that ran since the last `forget`."""
    return sorted(name for name, entries in _entries.items() if entries & _enqueued)
