"""RunLockHold: a run's turn on the device, which runs of one session take one after the other.

What goes in turn is the running of programs, whose memory and arguments are one run's at a time. Looking at inputs,
importing, planning, building and operators on the host between two programs go side by side: whoever does that has
left its turn. Where a value waits in the memory of the program that made it, for the next program of the same run, the
turn is kept between the two; if it must be left all the same, whoever takes it next copies the value to the host.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ...cl.memory.device_tensor import DeviceTensor
from ...cl.programs.background_throttle import report_contention
from .concurrent_runs import ConcurrentRuns

if TYPE_CHECKING:
    from ...importer import ImportRun
    from ...plan.program import Program
    from ..execute.executable import Executable


PATIENCE_S = 1e-3
"""How long a run waits before others, which come and go without leaving it a moment, let it go first."""


class RunLock:
    """What runs of one session take in turn. Reentrant, so that a session that measures may keep others out.

    A thread that runs a small model again and again lets go of it for microseconds, in which no other wakes up. Who has
    waited for PATIENCE_S goes first; always to take turns would cost such threads a wake-up each time.

    is_shared: threads have waited for each other lately, so that runs should ask `beside` first. first_came: when the
    run that waits first came, 0 for none. waits, waited_s: how often runs have waited for each other, and how long in
    all. parked: values of runs that have left their turn; whoever takes it next copies them to the host.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._line = threading.Lock()  # of those that wait; who has it is the next
        self.first_came = 0.0
        self.is_shared = False
        self.beside = ConcurrentRuns(self)
        self.waits = 0
        self.waited_s = 0.0
        self.parked: list[PendingValues] = []
        self.acquire_at_once = self._lock.acquire  # called with False, by who sees to `is_shared` and `parked`
        self.release = self._lock.release

    def acquire(self, own: Sequence[PendingValues] = ()) -> None:
        """Wait until nobody else has it. `own` values stay where they are."""
        has_time = not self.first_came or time.perf_counter() - self.first_came < PATIENCE_S
        if not (has_time and self.acquire_at_once(False)):
            self._wait()
        if self.parked:
            self.spill_to_host(own)

    def acquire_soon(self) -> None:
        """As `acquire`, for a moment between two of which others may have it: they, and then the caller, go before
        those that come later."""
        if self.first_came or not self.acquire_at_once(False):
            self._wait(PATIENCE_S)
        if self.parked:
            self.spill_to_host()

    def _wait(self, had_s: float = 0.0) -> None:
        """had_s: of patience, that count as waited."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.acquire()
            return
        self.beside.tell()
        started = time.perf_counter()
        with self._line:
            self.first_came = started - had_s
            try:
                self._lock.acquire()
            finally:
                self.first_came = 0.0
        report_contention()
        self.waited_s += time.perf_counter() - started
        self.waits += 1

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no run of the session is under way but the caller's."""
        with nullcontext() if self._lock._is_owned() else self.beside.kept_out(), self:  # type: ignore[attr-defined]
            yield

    def spill_to_host(self, own: Sequence[PendingValues] = ()) -> None:
        """Copy to the host what other runs have left on the device. Whoever calls has the lock, and loses it if that
        fails."""
        try:
            for values in [v for v in self.parked if v not in own]:
                values.fetch()
        except BaseException:
            self.release()
            raise
        self.parked.clear()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class RunLockHold:
    """One run's hold on a RunLock; without a lock nobody else wants the programs. Ends with the `with` block."""

    def __init__(self, lock: RunLock | None, *, whole: bool = False) -> None:
        """whole: hold it from now to the end, for what must be measured undisturbed."""
        self._lock, self._whole = lock, whole
        self._is_held = False
        self._values: list[PendingValues] = []
        self._alone: ExitStack | None = None
        if whole and lock is not None:
            self._alone = ExitStack()
            self._alone.enter_context(lock.alone())
            self.take()

    def take(self) -> None:
        """Wait for the turn, unless this run has it."""
        if self._is_held or self._lock is None:
            return
        self._lock.acquire(self._values)
        self._is_held = True
        for values in self._values:
            values.take_resident_back()

    @contextmanager
    def beside(self, executable: Executable, program: Program) -> Iterator[Executable | None]:
        """Inside, a twin of `executable` for a run that leaves nothing on the device; None where it goes in turn,
        which it then has."""
        lock = self._lock
        if lock is None or self._whole or any(self._values):
            self.take()
            yield None
            return
        if not lock.is_shared:
            if self._take_at_once(lock):
                yield None
                return
            lock.beside.tell()
        self.leave()
        with lock.beside.twin(executable, program) as twin:
            if twin is None:
                self.take()
            yield twin

    def _take_at_once(self, lock: RunLock) -> bool:
        """Take the turn if nobody has it; whether this run has."""
        if self._is_held:
            return True
        if not lock.acquire_at_once(False):
            return False
        if lock.parked:
            lock.spill_to_host(self._values)
        self._is_held = True
        return True

    def pause(self) -> None:
        """Leave the turn if no value of this run waits on the device."""
        if not any(self._values):
            self.leave()

    def leave(self) -> None:
        """Let others run."""
        if self._is_held and not self._whole:
            assert self._lock is not None
            self._lock.parked.extend(v for v in self._values if v)
            self._release()

    def watch(self, run: ImportRun) -> PendingValues:
        """Keeps account of what waits on the device for the next programs of `run`."""
        values = PendingValues(run)
        self._values.append(values)
        return values

    def forget(self, values: PendingValues) -> None:
        """Its run is over."""
        self._values.remove(values)

    def __enter__(self) -> RunLockHold:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_held:
            self._release()
        elif self._lock is not None:
            for values in self._values:
                with suppress(ValueError):
                    self._lock.parked.remove(values)
        if self._alone is not None:
            self._alone.close()

    def _release(self) -> None:
        assert self._lock is not None
        self._is_held = False
        self._lock.release()


class PendingValues:
    """Values of a run that lie in the memory of its programs, right until those run again.

    uploaded: arrays that a program has on the device, by identity, which is theirs as long as they are held here.
    """

    def __init__(self, run: ImportRun) -> None:
        self._run = run
        self._lent: dict[int, DeviceTensor] = {}
        self._fetched: dict[int, Any] | None = None
        self.uploaded: dict[int, tuple[Any, DeviceTensor]] = {}

    def add(self, outputs: Iterable[Any]) -> None:
        """Outputs that were lent, as far as they did stay on the device."""
        self._lent.update((id(v), v) for v in outputs if type(v) is DeviceTensor)

    def fetch(self) -> None:
        """Copy all of it to the host, by whoever will use the memory, while the run itself is at something else."""
        self._fetched = {number: tensor.numpy() for number, tensor in self._lent.items()}

    def take_resident_back(self) -> None:
        """Go on by the copies, if there are any; by the run itself."""
        if self._fetched is not None:
            self._run.replace(self._fetched)
            self._fetched = None
            self._lent.clear()
            self.uploaded.clear()

    def __bool__(self) -> bool:
        return bool(self._lent or self.uploaded)
