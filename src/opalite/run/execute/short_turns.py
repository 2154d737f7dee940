"""How Python's threads share the interpreter while one of them imports, plans or builds.

A thread that wants the interpreter back, as one does after each call of OpenCL's, waits until the thread that has it
gives it away, which one that plans does when it was asked to for `sys.getswitchinterval()` seconds: 5 ms, several times
what a small model takes. Inside `short_turns` that is TURN_S.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TURN_S = 2e-4

_lock = threading.Lock()
_users = 0
_before = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """Inside, whoever waits for the interpreter gets it after TURN_S. It costs a thread that nobody waits for nothing.

    The interval is the process's: one that is shorter already stays, and one that somebody else sets meanwhile, too.
    """
    global _users, _before
    with _lock:
        _users += 1
        if _users == 1:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, TURN_S))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and abs(sys.getswitchinterval() - min(_before, TURN_S)) < 1e-6:
                sys.setswitchinterval(_before)
