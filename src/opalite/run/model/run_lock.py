"""RunLock: the lock under which a session's programs run one after the other, and one run's hold on it.

A program's memory and arguments belong to one run at a time, so running programs needs the lock. Checking inputs,
importing, planning, building and host operators between two programs do not: a run releases the lock for them. A value
may stay on the device, in the memory of the program that made it, for the next program of the same run. The run then
keeps the lock between the two. If it must release the lock, the next holder copies the value to the host first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ...cl.memory.device_tensor import DeviceTensor
from ...cl.programs.background_throttle import report_contention
from .concurrent_runs import ConcurrentRuns

if TYPE_CHECKING:
    from ...importer import ImportRun
    from ...plan.program import Program
    from ..execute.executable import Executable
    from ..execute.strategies.time_slicing import DeviceShare


PATIENCE_S = 1e-3
"""Seconds after which a waiting run goes before runs that came later."""


class RunLock:
    """The lock of one session's runs. Reentrant, so that a measurement may exclude other runs.

    A thread that runs a small model in a loop releases the lock for microseconds, in which no other thread wakes up. A
    thread that has waited for PATIENCE_S goes first. Strict turns would cost such a loop a wake-up in each run.

    concurrent: the runs without the lock. is_shared: threads have waited for each other in the last second, so that
    runs should ask for a replica first. waiting_since: when the first waiting run came, 0 for none. waits, waited_s:
    number and seconds of waits. pending: values of runs that have released the lock, which the next holder copies to
    the host.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._next = threading.Lock()  # held by the thread that gets `_lock` next
        self.waiting_since = 0.0
        self.is_shared = False
        self.concurrent = ConcurrentRuns(self)
        self.waits = 0
        self.waited_s = 0.0
        self.pending: list[PendingValues] = []
        self.try_acquire = self._lock.acquire  # called with False; the caller then looks at `is_shared` and `pending`
        self.release = self._lock.release

    def acquire(self, own: Sequence[PendingValues] = ()) -> None:
        """Wait for the lock. `own` values stay on the device."""
        has_time = not self.waiting_since or time.perf_counter() - self.waiting_since < PATIENCE_S
        if not (has_time and self.try_acquire(False)):
            self._wait()
        if self.pending:
            self.spill_to_host(own)

    def acquire_for_slice(self) -> None:
        """Wait for the lock between two slices: waiting runs go first, then the caller, then runs that come later."""
        if self.waiting_since or not self.try_acquire(False):
            self._wait(PATIENCE_S)
        if self.pending:
            self.spill_to_host()

    def _wait(self, waited_s: float = 0.0) -> None:
        """waited_s: seconds that count as waited already."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.acquire()
            return
        self.concurrent.note_contention()
        started = time.perf_counter()
        with self._next:
            self.waiting_since = started - waited_s
            try:
                self._lock.acquire()
            finally:
                self.waiting_since = 0.0
        report_contention()
        self.waited_s += time.perf_counter() - started
        self.waits += 1

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """A `with` block in which the session runs nothing but the caller's runs."""
        with nullcontext() if self._lock._is_owned() else self.concurrent.paused(), self:  # type: ignore[attr-defined]
            yield

    def spill_to_host(self, own: Sequence[PendingValues] = ()) -> None:
        """Copy pending values of other runs to the host. The caller holds the lock, which is released on an error."""
        try:
            for values in [v for v in self.pending if v not in own]:
                values.copy_to_host()
        except BaseException:
            self.release()
            raise
        self.pending.clear()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class Access(Enum):
    """The way in which a run enters an executable."""

    EXCLUSIVE = "with the run lock"
    SHARED = "with the run lock, or by a replica while other threads run; leaves nothing on the device"
    UNLOCKED = "without the run lock"


Lease: TypeAlias = "tuple[Executable, DeviceShare | None]"
"""A running executable, and its share of the device beside other threads; None for the whole device."""


class RunLockHold:
    """One run's hold on a RunLock, until the `with` block ends. Without a lock there are no other runs."""

    def __init__(self, lock: RunLock | None, *, throughout: bool = False) -> None:
        """throughout: hold the lock from now to the end, for runs that are measured."""
        self._lock, self._throughout = lock, throughout
        self._is_held = False
        self._values: list[PendingValues] = []
        self._exclusion: ExitStack | None = None
        if throughout and lock is not None:
            self._exclusion = ExitStack()
            self._exclusion.enter_context(lock.exclusive())
            self.acquire()

    def acquire(self) -> None:
        """Wait for the lock, unless this run holds it."""
        if self._is_held or self._lock is None:
            return
        self._lock.acquire(self._values)
        self._is_held = True
        for values in self._values:
            values.restore()

    @contextmanager
    def enter(
        self, executable: Executable, program: Program, access: Access, state: Mapping[int, Any] | None = None
    ) -> Iterator[Lease | None]:
        """A `with` block in which the run may run `program` by the lease's executable; None if that was released.

        state: as of `Executable.entered`.
        """
        share: DeviceShare | None = None
        with ExitStack() as held:
            if access is Access.UNLOCKED:
                self.release()
                if self._lock is not None and self._lock.is_shared:
                    share = self._lock.concurrent
            elif access is Access.EXCLUSIVE:
                self.acquire()
            elif (replica := held.enter_context(self._replica(executable, program))) is not None:
                assert self._lock is not None
                executable, share = replica, self._lock.concurrent
            yield (executable, share) if held.enter_context(executable.entered(program, state)) else None

    @contextmanager
    def _replica(self, executable: Executable, program: Program) -> Iterator[Executable | None]:
        """A `with` block that leases a replica of `executable`; None if the run holds the lock instead."""
        lock = self._lock
        if lock is None or self._throughout or any(self._values):
            self.acquire()
            yield None
            return
        if not lock.is_shared:
            if self._try_acquire(lock):
                yield None
                return
            lock.concurrent.note_contention()
        self.release()
        with lock.concurrent.lease_replica(executable, program) as replica:
            if replica is None:
                self.acquire()
            yield replica

    def _try_acquire(self, lock: RunLock) -> bool:
        """Acquire the lock if no other run holds it; whether this run holds it."""
        if self._is_held:
            return True
        if not lock.try_acquire(False):
            return False
        if lock.pending:
            lock.spill_to_host(self._values)
        self._is_held = True
        return True

    def release_if_idle(self) -> None:
        """Release the lock if no value of this run is on the device."""
        if not any(self._values):
            self.release()

    def release(self) -> None:
        """Let waiting runs continue."""
        if self._is_held and not self._throughout:
            assert self._lock is not None
            self._lock.pending.extend(v for v in self._values if v)
            self._release()

    def track(self, run: ImportRun) -> PendingValues:
        """The record of what `run` leaves on the device for its next programs."""
        values = PendingValues(run)
        self._values.append(values)
        return values

    def untrack(self, values: PendingValues) -> None:
        """Forget the record of a run that is over."""
        self._values.remove(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_held:
            self._release()
        elif self._lock is not None:
            for values in self._values:
                with suppress(ValueError):
                    self._lock.pending.remove(values)
        if self._exclusion is not None:
            self._exclusion.close()

    def _release(self) -> None:
        assert self._lock is not None
        self._is_held = False
        self._lock.release()


class PendingValues:
    """Values of a run in the memory of its programs, valid until those run again.

    uploaded: arrays that a program has on the device, by identity; the reference keeps the identity valid.
    """

    def __init__(self, run: ImportRun) -> None:
        self._run = run
        self._on_device: dict[int, DeviceTensor] = {}
        self._copies: dict[int, Any] | None = None
        self.uploaded: dict[int, tuple[Any, DeviceTensor]] = {}

    def add(self, outputs: Iterable[Any]) -> None:
        """Record outputs; arrays among them are skipped."""
        self._on_device.update((id(v), v) for v in outputs if type(v) is DeviceTensor)

    def copy_to_host(self) -> None:
        """Copy all values to the host; called by the thread that will use the memory."""
        self._copies = {number: tensor.numpy() for number, tensor in self._on_device.items()}

    def restore(self) -> None:
        """Replace the run's values by the host copies, if any were made; called by the run itself."""
        if self._copies is not None:
            self._run.replace(self._copies)
            self._copies = None
            self._on_device.clear()
            self.uploaded.clear()

    def __bool__(self) -> bool:
        return bool(self._on_device or self.uploaded)
