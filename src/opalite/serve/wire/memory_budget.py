"""MemoryBudget: the memory that requests may take, of all protocols together, with a share for each client."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from .serve_errors import MemoryFull

_MOST = 1 << 30
_PART = 0.25  # of this process's memory
_SHARE = 0.5
_LITTLE = 1 / 64  # that other requests of a client hold beside a large one
_LARGE = 1 << 25
"""Bytes of a request after which freed memory is given back to the system."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a container, of the two versions of control groups."""


class MemoryBudget:
    """Counts bytes that are held for requests: as they came, decompressed, decoded, copied, and their answers.

    held: of all requests. A client has half of the limit, or all of it for a single request.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.has_freed_large = False  # for `give_back_memory`
        self._clients: dict[str, int] = {}
        self._lock = threading.Lock()  # bodies are decompressed in threads

    def account(self, client: str) -> Account:
        """The account of a new request. client: its address."""
        return Account(self, client)

    def _hold(self, client: str, size: int, before: int) -> bool:
        """Count `size` bytes of a request that held `before`; return whether they fit."""
        with self._lock:
            others = self._clients.get(client, 0) - before
            own = self._clients[client] = others + before + size
            self.held += size
            if not own:
                del self._clients[client]
            return self.held <= self.limit and (own <= self.limit * _SHARE or others <= self.limit * _LITTLE)


class Account:
    """The bytes held for one request until it has been answered."""

    def __init__(self, budget: MemoryBudget, client: str) -> None:
        self._budget, self._client = budget, client
        self._held = 0
        self._is_closed = False

    def hold(self, size: int) -> bool:
        """Count `size` bytes, which may be negative; return whether they fit. No effect once it is closed."""
        if self._is_closed or not size:
            return True
        before, self._held = self._held, self._held + size
        return self._budget._hold(self._client, size, before)

    def add(self, size: int) -> None:
        """Count `size` bytes. MemoryFull if they do not fit."""
        if not self.hold(size):
            raise MemoryFull

    def close(self) -> None:
        """Release all bytes."""
        self._budget.has_freed_large |= self._held > _LARGE
        self.hold(-self._held)
        self._is_closed = True


def default_limit() -> int:
    """A quarter of the memory of this container or machine, at most 1 GiB."""
    found = [_MOST * 4]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            found.append(int(Path(path).read_text(encoding="ascii")))
    return int(min(found) * _PART)
