"""Programs of one context: equal sources are compiled once in a process, and once for all processes through the store.
Longer than 400 lines: of the places that a program may come from, one decides.

Compiling for PoCL costs a few tenths of a second for each program, and one program at a time: where many are missing,
worker processes build them (build_pool.py), with the part of PoCL's header that each needs (pocl/prune_header.py).
Measured with PoCL 3.0: 1.2 ms to load a binary, 0.3 s to make it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

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
from .build_pool import BuildPool
from .build_worker import PART
from .compile_source import PLAIN, SourceCompiler

_log = logging.getLogger(__name__)
_FEW = 2  # programs that are built here rather than by workers, which take as long to start
_LINKS, _FIRST, _URGENT, _CALM = 0, 1, 5, 15  # niceness of processes that build while others run

Spec = tuple[str, str, str]
"""Source text, build options, and a name for messages."""

Part = tuple[str, str]
"""Source text and options of a part of a program that is linked."""


@dataclass
class CacheStats:
    """Where programs came from."""

    memory_hits: int = 0
    from_bundle: int = 0  # taken from a bundle
    disk_hits: int = 0
    misses: int = 0
    saved: int = 0
    build_s: float = 0.0


class ProgramCache:
    """Built programs by source and options. Thread-safe: equal requests at once build once.

    is_serving: some session runs by the programs made for its model, at full speed, which what is built should spare.
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
        """`fingerprint` names everything but source and options that decides the binary; no `store`: memory only.

        `index` of the device ('platform:device') lets worker processes build for it.
        """
        self.stats = CacheStats()
        self._context = context
        self._device = device
        self._info = info
        self._fingerprint = fingerprint
        self._store = store
        self._counters = counters
        self._programs: dict[tuple[str, str], Future[cl._Program]] = {}
        self._delivered: dict[tuple[str, str], bytes] = {}  # binaries that workers made
        self._deadly: dict[tuple[str, str], str] = {}  # programs that end the process that compiles them, and how
        self._offered: dict[tuple[str, str], Callable[[], bytes]] = {}  # binaries of bundles
        self._lock = threading.Lock()
        self.is_serving = False
        self._has_linked = False
        self._linking: dict[str, threading.Lock] = {}  # programs that are linked, or were
        self._pool: BuildPool | None = None
        self._link_pool: BuildPool | None = None
        self._background_pool: BuildPool | None = None
        # PoCL compiles under one lock: two threads were no faster than one.
        self._serial = info.family == "pocl"
        self._compiler = SourceCompiler(context, device, info, store)
        self._fragile = FRAGILE_COMPILER in info.quirks
        if self._serial and index and os.name == "posix":
            if worker_count() > 1 or self._fragile:
                self._pool = BuildPool(index, info.version, worker_count())
            # Linking takes as long as all the builds, beside a program that runs and should not be slowed down: even
            # where there is one core, a worker does it.
            if self._pool is not None or may_start_processes():
                self._link_pool = BuildPool(index, info.version, 1, niceness=_CALM)
                self._background_pool = BuildPool(index, info.version, worker_count(), niceness=_CALM)

    def prestart_workers(self, count: int | None = None) -> None:
        """Get worker processes ready where that pays and nothing is stored yet, so that all programs are missing.

        count: of the processes; as many as there may be by default.
        """
        if self._pool is not None and (self._store is None or self._store.is_empty()):
            self._pool.start(count)

    def prestart_for_generic(self) -> None:
        """Get a worker process ready where that pays, unless a process has seen all general programs in the store.

        Finding out which are missing takes as long as a worker takes to start. Where some have gone since, or another
        version has others, one starts when it is needed. A second one would be ready no sooner than the first has built
        a program or two, which are all that most models need.
        """
        is_there = self._store is not None and self._store.path(self._general_key).exists()
        if self._pool is not None and not is_there:
            self._pool.start(1)

    def report_generic(self) -> None:
        """All general programs are in the store."""
        if self._store is not None and not self._store.path(self._general_key).exists():
            self._store.put(self._general_key, b"all")

    def add_bundled(self, binaries: Mapping[tuple[str, str], Callable[[], bytes]]) -> None:
        """Binaries by (text, options), made for this device and driver; each is read when its program is needed."""
        with self._lock:
            self._offered |= {k: read for k, read in binaries.items() if k not in self._programs}

    def binary(self, text: str, options: str, name: str = "") -> bytes:
        """The driver's binary of a program, built if it is not yet; b"" where the driver gives none.

        It is the stored one where there is one, so that all processes that share the cache give the same bytes.
        """
        program = self.get(text, options, name)
        stored = None if self._store is None else self._store.get(self._key(text, options))
        return stored or self._binary_of(program)

    def get(self, text: str, options: str, name: str = "", counts: ProgramCounts | None = None) -> cl._Program:
        """The built program. BuildError shows options, compiler output and where the source was saved.

        tally: of whoever asks.
        """
        with self._lock:
            future = self._programs.get((text, options))
            mine = future is None
            if future is None:
                future = self._programs[text, options] = Future()
            else:
                self.stats.memory_hits += 1
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
        """Those that would have to be compiled, each once."""
        with self._lock:
            made = {k for k, future in self._programs.items() if future.done()}
        distinct = {spec[:2]: spec for spec in specs}
        return [spec for key, spec in distinct.items() if key not in made and not self._is_at_hand(key)]

    @contextmanager
    def expedite_builds(self) -> Iterator[None]:
        """Meanwhile somebody waits for what is built behind, or linked: it gives way to nobody any more."""
        with ExitStack() as entered:
            for pool in (self._background_pool, self._link_pool):
                if pool is not None:
                    entered.enter_context(pool.expedite_builds())
            yield

    @property
    def may_build_in_background(self) -> bool:
        """Whether programs can be compiled while others run, without taking more of them than their share of time."""
        return not self._serial or self._background_pool is not None

    def build_in_background(
        self,
        specs: Sequence[Spec],
        stop: Callable[[], bool],
        counts: ProgramCounts,
        urgent: bool = False,
    ) -> None:
        """Compile what is missing, in processes that let others go first where there are any, until `stop`.

        urgent: what runs meanwhile is slow without these programs, so they get as much of a busy core as it (a quarter
        where `is_serving`), not a thirtieth. What does not compile is left to `get`, which says why.
        """
        missing = self.missing(specs)
        if self._background_pool is not None and missing:
            lost: dict[int, str] = {}
            given = [(text, self._compiler.given(options)) for text, options, _ in missing]
            started = time.perf_counter()
            self._background_pool.lower_priority(self._niceness(urgent))
            if self._pool is not None:
                self._background_pool.take_over_workers(self._pool)  # which have read the driver's library
            for number, binary in self._background_pool.build(given, waits=True, lost=lost, stop=stop):
                text, options, name = missing[number]
                self._delivered[text, options] = binary
                self.get(text, options, name, counts)
            counts.add(build_s=time.perf_counter() - started)
            for number, death in lost.items():
                if self._pool is not None and not stop():
                    self._build_plain(missing[number][:2], death)
            return
        for spec in missing:
            if stop():
                return
            with suppress(BuildError):
                self.get(*spec, counts)

    def prestart_background_workers(self, may_link: bool) -> None:
        """Get as many processes ready as build urgently, for what is found out to be missing.

        may_link: a program may be linked beside others, which takes one process as long as these take all; it has one
        that is ready.
        """
        if self._background_pool is None or self._link_pool is None:
            return
        self._background_pool.lower_priority(self._niceness(True))
        if self._pool is not None:
            if may_link and not self._has_linked:
                self._link_pool.lower_priority(self._link_niceness)
                self._link_pool.take_over_workers(self._pool)
            self._background_pool.take_over_workers(self._pool)  # which have read the driver's library
        self._background_pool.expect()

    @property
    def _link_niceness(self) -> int:
        """Of a process that links: one links what several build meanwhile."""
        if self._has_linked:
            return _CALM
        return _URGENT if self.is_serving else _LINKS

    def _niceness(self, is_urgent: bool) -> int:
        """Of processes that build: where nothing runs as fast as it may yet, all wait for these."""
        if not is_urgent:
            return _CALM
        return _URGENT if self.is_serving else _FIRST

    def get_all(
        self,
        specs: Sequence[Spec],
        progress: Callable[[int, int], None] | None = None,
        counts: ProgramCounts | None = None,
    ) -> list[cl._Program]:
        """`get` for every spec, several at once (OPALITE_BUILD_THREADS); `progress(done, total)` is told of each."""
        done = 0

        def tell(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None and more:
                progress(done, len(specs))

        told = self._build_outside(specs, tell)
        threads = 1 if self._serial or SERIAL_BUILDS in self._info.quirks else min(worker_count(), len(specs))
        built: list[cl._Program] = []
        if threads > 1 and self._build_by_threads(threads, specs, counts, tell, built):
            return built
        for spec in specs[len(built) :]:
            built.append(self.get(*spec, counts))
            tell(spec[:2] not in told)
        return built

    def _build_by_threads(
        self,
        threads: int,
        specs: Sequence[Spec],
        counts: ProgramCounts | None,
        tell: Callable[[int], None],
        built: list[cl._Program],
    ) -> bool:
        """Append the programs of `specs` to `built`; False where no thread can be started, so that some are missing."""
        with ThreadPoolExecutor(threads, "opalite-build") as pool:
            try:
                futures = [pool.submit(self.get, *spec, counts) for spec in specs]
            except RuntimeError:  # a limit on threads, as containers set
                pool.shutdown(cancel_futures=True)
                return False
            try:
                for future in futures:
                    built.append(future.result())
                    tell(1)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return True

    def link(self, parts: Sequence[Part]) -> cl._Program | None:
        """One program of several (text, options), compiled apart, whose functions may call each other.

        A worker process does the work, one program after the other, and the calling thread waits; who asks for the same
        waits with it. None where there is no worker or the parts do not build: the caller has another way. The first
        one of a process is urgent.
        """
        text, options, key = self._linked(parts)
        with self._lock:
            linking = self._linking.setdefault(key, threading.Lock())
        with linking:
            program = self._find(key) or self._accept(self._delivered.pop((text, options), b""))
            count_lookup("programs", program is not None)
            if program is not None:
                self._count(None, loaded=1)
                return program
            program = self._accept(self._link(text, options, key))
        if program is None:
            _log.info("%d sources were not linked into one program", len(parts))
        return program

    def link_in_background(self, parts: Sequence[Part], stop: Callable[[], bool]) -> None:
        """Have the program linked that somebody will ask `link` for, until `stop`."""
        text, options, key = self._linked(parts)
        with self._lock:
            linking = self._linking.setdefault(key, threading.Lock())
        with linking:
            if self._store is not None and self._store.path(key).exists():
                return
            binary = self._link(text, options, key, stop)
            if binary and (self._store is None or not self._store.path(key).exists()):
                self._delivered[text, options] = binary

    def _linked(self, parts: Sequence[Part]) -> tuple[str, str, str]:
        """Text and options of the program that `parts` are linked into, and its key."""
        text, options = PART.join(t for t, _ in parts), PART.join(self._compiler.given(o) for _, o in parts)
        return text, options, self._key(text, options)

    def _link(self, text: str, options: str, key: str, stop: Callable[[], bool] | None = None) -> bytes:
        """The binary of a linked program, stored; b"" if there is none."""
        if self._link_pool is None:
            return b""
        self._link_pool.lower_priority(self._link_niceness)
        self._has_linked = True
        for _, binary in self._link_pool.build([(text, options)], waits=True, stop=stop):
            self._count(ProgramCounts(in_background=True), built=1)
            self._save(key, binary)
            return binary
        return b""

    def _build_outside(self, specs: Sequence[Spec], tell: Callable[[int], None]) -> set[tuple[str, str]]:
        """Have worker processes build what is missing, if it is much; returns what they delivered to `get`."""
        if self._pool is None:
            return set()
        keys = [(text, options) for text, options, _ in specs]
        missing = [k for k in dict.fromkeys(keys) if k not in self._programs and not self._is_at_hand(k)]
        if not missing or (len(missing) <= _FEW and not self._fragile and not self._pool.pids):
            return set()
        # The longest first: one that is begun last would be waited for alone.
        missing.sort(key=lambda key: len(key[0]), reverse=True)
        started = time.perf_counter()
        delivered = set()
        for key in self._deliver(missing):
            delivered.add(key)
            tell(keys.count(key))
        self.stats.build_s += time.perf_counter() - started
        return delivered

    def _deliver(self, missing: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Have worker processes build `missing`, and tell which they built."""
        assert self._pool is not None
        lost: dict[int, str] = {}
        given = [(text, self._compiler.given(options)) for text, options in missing]
        for number, binary in self._pool.build(given, waits=self._fragile, lost=lost):
            self._delivered[missing[number]] = binary
            yield missing[number]
        for number, death in lost.items():
            self._build_plain(missing[number], death)

    def _build_plain(self, program: tuple[str, str], death: str) -> None:
        """Have a worker build what ended another one (`death` says how) without optimisation, which ends fewer."""
        assert self._pool is not None
        text, options = program
        for _, binary in self._pool.build([(text, f"{self._compiler.given(options)} {PLAIN}")], waits=True):
            self._delivered[program] = binary
            _log.warning(
                "the compiler of %s ended its process (%s) on a program with options %r; it is built with %s",
                *(self._info.name, death, options, PLAIN),
            )
            return
        self._deadly[program] = death

    def _is_at_hand(self, program: tuple[str, str]) -> bool:
        """Whether its binary lies in the store or in a bundle."""
        if program in self._offered:
            return True
        text, options = program
        return self._store is not None and self._store.path(self._key(text, options)).exists()

    def _key(self, text: str, options: str) -> str:
        return digest(str(FORMAT), self._fingerprint, options, text)

    @property
    def _general_key(self) -> str:
        return digest(str(FORMAT), self._fingerprint, "general programs")

    def _count(self, counts: ProgramCounts | None, built: int = 0, loaded: int = 0) -> None:
        with self._lock:
            self._counters.programs_built += built
            self._counters.programs_loaded += loaded
            if counts is not None and counts.in_background:
                self._counters.programs_built_in_background += built
        if counts is not None:
            counts.add(built, loaded)

    def _make(self, text: str, options: str, name: str, counts: ProgramCounts) -> cl._Program:
        program = self._accept(self._offered.pop((text, options), bytes)())
        if program is not None:
            self.stats.from_bundle += 1
            count_lookup("programs", True)
            self._count(counts, loaded=1)
            return program
        key = self._key(text, options)
        program = self._find(key)
        count_lookup("programs", program is not None)
        if program is not None:
            self.stats.disk_hits += 1
            self._count(counts, loaded=1)
            return program
        self.stats.misses += 1
        known = (text, options) in self._delivered or (text, options) in self._deadly
        if self._fragile and self._pool is not None and not known:
            list(self._deliver([(text, options)]))
        # Of what a worker made the binary is at hand. PoCL, asked for it, would load each kernel once more, and it
        # keeps 128 of those that it has loaded: with more, each launch opens a library.
        binary = self._delivered.pop((text, options), b"")
        program = self._accept(binary)
        if program is None:
            started = time.perf_counter()
            program = self._compiler.compile(text, options, name, key, self._deadly.get((text, options), ""))
            self.stats.build_s += time.perf_counter() - started
            binary = self._binary_of(program) if self._store is not None else b""
        self._count(counts, built=1)
        self._save(key, binary)
        return program

    def _find(self, key: str) -> cl._Program | None:
        """The program stored under `key`, if there is one that the driver takes."""
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
        """The program of a worker's or a bundle's `binary`; None if it is empty, or the driver refuses it."""
        if not binary:
            return None
        try:
            return self._load(binary)
        except (cl.Error, UnloadableError) as e:
            _log.warning("%s refuses a program that was built for it elsewhere: %s", self._info.name, e)
            return None

    def _load(self, binary: bytes) -> cl._Program:
        if self._serial:
            binary = pocl.prepare_binary(binary)
        program = cl._Program(self._context, [self._device], [binary])
        program._build(b"", [self._device])
        return program

    def _save(self, key: str, binary: bytes) -> None:
        if self._store is not None and binary and self._store.put(key, pocl.strip_bitcode(binary)):
            self.stats.saved += 1

    def _binary_of(self, program: cl._Program) -> bytes:
        try:
            return pocl.strip_bitcode(bytes(program.get_info(cl.program_info.BINARIES)[0]))
        except cl.Error as e:
            _log.info("no binary of a program on %s: %s", self._info.name, e)
            return b""

    def close(self) -> None:
        """End worker processes."""
        for pool in (self._pool, self._link_pool, self._background_pool):
            if pool is not None:
                pool.close()
