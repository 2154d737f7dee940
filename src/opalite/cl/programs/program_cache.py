"""ProgramCache: built programs of one context. Sources: this process, bundles, the disk store, workers, the compiler.
Longer than 400 lines: one class decides between the sources of a program.

PoCL compiles one program at a time, in 0.3 s each; loading a binary takes 1.2 ms (measured with PoCL 3.0). If many
programs are missing, worker processes build them (build_pool.py) with pruned headers (pocl/prune_header.py).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial

import pyopencl as cl

from ...cache.binary_store import FORMAT, BinaryStore
from ...cache.cache_keys import digest
from ...cache.hit_counters import count_lookup
from ...errors import BuildError
from ...ir.device.device_family import FRAGILE_COMPILER, SERIAL_BUILDS
from ...ir.device.device_info import DeviceInfo
from ...pocl import cpu_workarounds as pocl
from ...pocl.check_loadable import UnloadableError
from ..runtime_counters import Counters, ProgramCounts
from .build_parallelism import may_start_processes, worker_count
from .build_pool import BuildPool, Lane
from .build_worker import PART
from .compile_source import NO_OPTIMIZATION, SourceCompiler

_log = logging.getLogger(__name__)
_FEW = 2  # missing programs up to which this process compiles: workers take as long to start
_LINKS = Lane("links", 1, is_background=True)
_NICE_LINK, _NICE_FIRST, _NICE_URGENT, _NICE_BACKGROUND = 0, 1, 5, 15  # of worker processes

Spec = tuple[str, str, str]
"""Source text, build options, name in messages."""

Part = tuple[str, str]
"""Source text and build options of one translation unit of a linked program."""


class ProgramCache:
    """Built programs by source and options. Thread-safe: concurrent equal requests build once.

    is_serving: some session already runs optimized programs; background builds then get a lower priority.
    """

    def __init__(
        self,
        context: cl.Context,
        device: cl.Device,
        info: DeviceInfo,
        fingerprint: str,
        store: BinaryStore | None,
        counters: Counters,
        index: str = "",
    ) -> None:
        """fingerprint: identifies device and driver. store: None keeps programs in memory only.

        index: the device as 'platform:device'; without index no worker process builds.
        """
        self._context = context
        self._device = device
        self._info = info
        self._fingerprint = fingerprint
        self._store = store
        self._counters = counters
        self._programs: dict[tuple[str, str], Future[cl._Program]] = {}
        self._worker_binaries: dict[tuple[str, str], bytes] = {}
        self._crashes: dict[tuple[str, str], str] = {}  # programs that crash the compiler, and how
        self._bundled: dict[tuple[str, str], Callable[[], bytes]] = {}  # readers of binaries in bundles
        self._lock = threading.Lock()
        self.is_serving = False
        self._has_linked = False
        self._link_locks: dict[str, threading.Lock] = {}  # by key of the linked program
        # PoCL compiles under one lock: two threads were no faster than one.
        self._serial = info.family == "pocl"
        self._compiler = SourceCompiler(context, device, info, store)
        self._fragile = FRAGILE_COMPILER in info.quirks
        self._calls, self._background = Lane("calls", worker_count()), Lane("background", worker_count(), True)
        # Workers build for callers, unless there would be a single one.
        self._calls_use_workers = worker_count() > 1 or self._fragile
        # Linking takes as long as all builds together. A worker does it, even on a single core, so that runs are not
        # slowed down.
        uses_workers = (
            self._serial and index and os.name == "posix" and (self._calls_use_workers or may_start_processes())
        )
        self._pool = BuildPool(index, info.version) if uses_workers else None

    def prestart_workers(self, count: int | None = None, even_if_filled: bool = False) -> None:
        """Start `count` workers (default: the limit) if the store is empty, so that every program is missing.

        even_if_filled: some programs are known to be missing.
        """
        if even_if_filled or self._store is None or self._store.is_empty():
            self._start_workers(count or self._calls.limit)

    def prestart_for_generic(self) -> None:
        """Start one worker, unless the store is marked as holding all generic programs (`report_generic`).

        Finding the missing programs takes as long as starting a worker, so the worker starts first. One suffices: most
        models need one or two programs, which it builds before a second worker would be ready.
        """
        if not self._has_all_generic:
            self._start_workers(1)

    def _start_workers(self, count: int) -> None:
        if self._pool is not None and self._calls_use_workers:
            self._pool.start(self._calls, count)

    def report_generic(self) -> None:
        """Mark the store as holding all generic programs."""
        if self._store is not None and not self._has_all_generic:
            self._store.put(self._generic_key, b"all")

    @property
    def _has_all_generic(self) -> bool:
        return self._store is not None and self._store.path(self._generic_key).exists()

    def add_bundled(self, binaries: Mapping[tuple[str, str], Callable[[], bytes]]) -> None:
        """Add a bundle's binaries by (text, options), for this device and driver; each is read on demand."""
        with self._lock:
            self._bundled |= {k: read for k, read in binaries.items() if k not in self._programs}

    def binary(self, text: str, options: str, name: str = "") -> bytes:
        """The driver's binary of a program, built if missing; b"" if the driver returns none.

        A stored binary comes first, so that all processes with one cache return the same bytes.
        """
        program = self.get(text, options, name)
        stored = None if self._store is None else self._store.get(self._key(text, options))
        return stored or self._binary_of(program)

    def get(self, text: str, options: str, name: str = "", counts: ProgramCounts | None = None) -> cl._Program:
        """The built program. Raises BuildError with options, compiler output and the path of the saved source.

        counts: the caller's, updated.
        """
        with self._lock:
            future = self._programs.get((text, options))
            mine = future is None
            if future is None:
                future = self._programs[text, options] = Future()
        if not mine and counts is not None:
            counts.add(shared=1)
        if mine:
            try:
                future.set_result(self._make(text, options, name, counts or ProgramCounts()))
            except BaseException as e:
                if isinstance(e, BuildError):
                    e.program = text, options
                with self._lock:
                    del self._programs[text, options]
                future.set_exception(e)
        return future.result()

    def missing(self, specs: Sequence[Spec]) -> list[Spec]:
        """The programs that would have to be compiled, without repetitions."""
        with self._lock:
            made = {k for k, future in self._programs.items() if future.done()}
        distinct = {spec[:2]: spec for spec in specs}
        return [spec for key, spec in distinct.items() if key not in made and not self._is_stored(key)]

    def expedite_builds(self) -> AbstractContextManager[None]:
        """Context in which a caller waits for background builds or linking: both run at normal priority."""
        return nullcontext() if self._pool is None else self._pool.expedite_builds()

    @property
    def may_build_in_background(self) -> bool:
        """Return whether programs can be compiled in the background without blocking runs."""
        return not self._serial or self._pool is not None

    def build_in_background(
        self, specs: Sequence[Spec], stop: Callable[[], bool], counts: ProgramCounts, urgent: bool = False
    ) -> None:
        """Compile missing programs at low priority, in workers if there are any, until `stop()` is true.

        urgent: the session is slow without these programs. Urgent builds get an equal share of a busy core (a quarter
        if `is_serving`), other builds a thirtieth. Programs that fail are left to `get`, which raises the error.
        """
        missing = self.missing(specs)
        if self._pool is not None and missing:
            started = time.perf_counter()
            by_key = {spec[:2]: spec for spec in missing}
            for key in self._build_in_pool(list(by_key), self._background, self._niceness(urgent), stop):
                self.get(*by_key[key], counts)
            counts.add(build_s=time.perf_counter() - started)
            return
        for spec in missing:
            if stop():
                return
            with suppress(BuildError):
                self.get(*spec, counts)

    def prestart_background_workers(self, may_link: bool) -> None:
        """Start workers for urgent background builds. may_link: one more worker, for linking at the same time."""
        if self._pool is not None:
            count = self._background.limit + (may_link and not self._has_linked)
            self._pool.start(self._background, count, self._niceness(is_urgent=True))

    def _niceness(self, is_urgent: bool, first: int = _NICE_FIRST) -> int:
        """Niceness of background workers; `first` for urgent ones while no session runs at full speed."""
        if not is_urgent:
            return _NICE_BACKGROUND
        return _NICE_URGENT if self.is_serving else first

    def get_all(
        self,
        specs: Sequence[Spec],
        progress: Callable[[int, int], None] | None = None,
        counts: ProgramCounts | None = None,
    ) -> list[cl._Program]:
        """`get` for every spec, in parallel (OPALITE_BUILD_THREADS). Calls progress(done, total) after each."""
        done = 0

        def report(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None and more:
                progress(done, len(specs))

        from_workers = self._build_by_workers(specs, report)
        threads = 1 if self._serial or SERIAL_BUILDS in self._info.quirks else min(worker_count(), len(specs))
        built: list[cl._Program] = []
        if threads > 1 and self._build_by_threads(threads, specs, counts, report, built):
            return built
        for spec in specs[len(built) :]:
            built.append(self.get(*spec, counts))
            report(spec[:2] not in from_workers)
        return built

    def _build_by_threads(
        self,
        threads: int,
        specs: Sequence[Spec],
        counts: ProgramCounts | None,
        report: Callable[[int], None],
        built: list[cl._Program],
    ) -> bool:
        """Append the programs of `specs` to `built`. False if a thread cannot start: some are then missing."""
        with ThreadPoolExecutor(threads, "opalite-build") as pool:
            try:
                futures = [pool.submit(self.get, *spec, counts) for spec in specs]
            except RuntimeError:  # thread limit of a container
                pool.shutdown(cancel_futures=True)
                return False
            try:
                for future in futures:
                    built.append(future.result())
                    report(1)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return True

    def link(self, parts: Sequence[Part]) -> cl._Program | None:
        """Link several (text, options), compiled separately, into one program, in a worker process.

        None without a worker, or if the parts do not build. Concurrent equal requests link once.
        """
        text, options, key = self._linked(parts)
        with self._link_lock(key):
            program = self.load_linked(key) or self._accept(self._worker_binaries.pop((text, options), b""))
            if program is not None:
                return program
            program = self._accept(self._link(text, options, key))
        if program is None:
            _log.info("%d sources were not linked into one program", len(parts))
        return program

    def linked_key(self, parts: Sequence[Part]) -> str:
        """The key under which `link` stores the program, for `load_linked`."""
        return self._linked(parts)[2]

    def load_linked(self, key: str) -> cl._Program | None:
        """The program that `link` has stored under `key`; None if the store does not have it."""
        program = self._find(key)
        count_lookup("programs", program is not None)
        if program is not None:
            self._count(None, loaded=1)
        return program

    def link_in_background(self, parts: Sequence[Part], stop: Callable[[], bool]) -> None:
        """Link a program in advance for a later `link`, until `stop()` is true."""
        text, options, key = self._linked(parts)
        with self._link_lock(key):
            if self._store is not None and self._store.path(key).exists():
                return
            binary = self._link(text, options, key, stop)
            if binary and (self._store is None or not self._store.path(key).exists()):
                self._worker_binaries[text, options] = binary

    def _link_lock(self, key: str) -> threading.Lock:
        with self._lock:
            return self._link_locks.setdefault(key, threading.Lock())

    def _linked(self, parts: Sequence[Part]) -> tuple[str, str, str]:
        """Joined texts, joined options and key of a linked program."""
        text, options = PART.join(t for t, _ in parts), PART.join(self._compiler.full_options(o) for _, o in parts)
        return text, options, self._key(text, options)

    def _link(self, text: str, options: str, key: str, stop: Callable[[], bool] | None = None) -> bytes:
        """Link in a worker and store the binary; b"" if that fails."""
        if self._pool is None:
            return b""
        # The first link of a process is urgent.
        niceness, self._has_linked = self._niceness(not self._has_linked, _NICE_LINK), True
        for _, binary in self._pool.build(_LINKS, [(text, options)], niceness=niceness, waits=True, stop=stop):
            self._count(ProgramCounts(in_background=True), built=1)
            self._save(key, binary)
            return binary
        return b""

    def _build_by_workers(self, specs: Sequence[Spec], report: Callable[[int], None]) -> set[tuple[str, str]]:
        """Let workers build missing programs if there are many; returns the programs built."""
        if self._pool is None or not self._calls_use_workers:
            return set()
        keys = [(text, options) for text, options, _ in specs]
        missing = [k for k in dict.fromkeys(keys) if k not in self._programs and not self._is_stored(k)]
        if not missing or (len(missing) <= _FEW and not self._fragile and not self._pool.has_idle_worker):
            return set()
        # Longest first: a long program started last would be waited for alone.
        missing.sort(key=lambda key: len(key[0]), reverse=True)
        built = set()
        for key in self._build_in_pool(missing, self._calls):
            built.add(key)
            report(keys.count(key))
        return built

    def _build_in_pool(
        self, missing: Sequence[Part], lane: Lane, niceness: int = 0, stop: Callable[[], bool] | None = None
    ) -> Iterator[Part]:
        """Let workers build `missing`; yields each program when it is built.

        A program that crashes the compiler is built without optimization; a second crash is recorded in `_crashes`.
        """
        assert self._pool is not None
        crashed: dict[int, str] = {}
        builds = [(text, self._compiler.full_options(options)) for text, options in missing]
        waits = self._fragile or lane.is_background
        build = partial(self._pool.build, lane, niceness=niceness, stop=stop)
        for number, binary in build(builds, waits=waits, crashed=crashed):
            self._worker_binaries[missing[number]] = binary
            yield missing[number]
        for number, crash in crashed.items():
            text, options = builds[number]
            for _, binary in build([(text, f"{options} {NO_OPTIMIZATION}")], waits=True):
                self._worker_binaries[missing[number]] = binary
                _log.warning(
                    "the compiler of %s crashed (%s) on a program with options %r; it is built with %s",
                    *(self._info.title, crash, missing[number][1], NO_OPTIMIZATION),
                )
            if missing[number] not in self._worker_binaries and (stop is None or not stop()):
                self._crashes[missing[number]] = crash

    def _is_stored(self, program: tuple[str, str]) -> bool:
        """Return whether the program's binary is in a bundle or the store."""
        if program in self._bundled:
            return True
        text, options = program
        return self._store is not None and self._store.path(self._key(text, options)).exists()

    def _key(self, text: str, options: str) -> str:
        return digest(str(FORMAT), self._fingerprint, options, text)

    @property
    def _generic_key(self) -> str:
        return digest(str(FORMAT), self._fingerprint, "generic programs")

    def _count(self, counts: ProgramCounts | None, built: int = 0, loaded: int = 0) -> None:
        with self._lock:
            self._counters.programs_built += built
            self._counters.programs_loaded += loaded
            if counts is not None and counts.in_background:
                self._counters.programs_built_in_background += built
        if counts is not None:
            counts.add(built, loaded)

    def _make(self, text: str, options: str, name: str, counts: ProgramCounts) -> cl._Program:
        program = self._accept(self._bundled.pop((text, options), bytes)())
        if program is not None:
            count_lookup("programs", True)
            self._count(counts, loaded=1)
            self._counters.programs_from_bundle += 1
            return program
        key = self._key(text, options)
        program = self._find(key)
        count_lookup("programs", program is not None)
        if program is not None:
            self._count(counts, loaded=1)
            return program
        known = (text, options) in self._worker_binaries or (text, options) in self._crashes
        if self._fragile and self._pool is not None and not known:
            list(self._build_in_pool([(text, options)], self._calls))
        # A worker's binary is stored as it is. Asking PoCL for it would load each kernel again, and PoCL keeps 128
        # loaded kernels at most: beyond that, each launch opens a library.
        binary = self._worker_binaries.pop((text, options), b"")
        program = self._accept(binary)
        if program is None:
            program = self._compiler.compile(text, options, name, key, self._crashes.get((text, options), ""))
            binary = self._binary_of(program) if self._store is not None else b""
        self._count(counts, built=1)
        self._save(key, binary)
        return program

    def _find(self, key: str) -> cl._Program | None:
        """The program stored under `key`; None if there is none or the driver refuses it."""
        binary = self._store.get(key) if self._store is not None else None
        if binary is None or self._store is None:
            return None
        try:
            return self._load(binary)
        except UnloadableError as e:
            self._store.discard(key, str(e))
            return None
        except cl.Error as e:
            self._store.discard(key, f"the driver refuses it ({e})")
            return None

    def _accept(self, binary: bytes) -> cl._Program | None:
        """Load a worker's or a bundle's binary; None if it is empty or the driver refuses it."""
        if not binary:
            return None
        try:
            return self._load(binary)
        except (cl.Error, UnloadableError) as e:
            _log.warning("%s refuses a binary from a worker or a bundle: %s", self._info.title, e)
            return None

    def _load(self, binary: bytes) -> cl._Program:
        if self._serial:
            binary = pocl.prepare_binary(binary)
        program = cl._Program(self._context, [self._device], [binary])
        program._build(b"", [self._device])
        return program

    def _save(self, key: str, binary: bytes) -> None:
        if self._store is not None and binary:
            self._store.put(key, pocl.strip_bitcode(binary))

    def _binary_of(self, program: cl._Program) -> bytes:
        try:
            return pocl.strip_bitcode(bytes(program.get_info(cl.program_info.BINARIES)[0]))
        except cl.Error as e:
            _log.info("no binary of a program on %s: %s", self._info.title, e)
            return b""

    def close(self) -> None:
        """Stop the worker processes."""
        if self._pool is not None:
            self._pool.close()
