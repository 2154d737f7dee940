"""Runtime: context, queues, programs and memory of one OpenCL device."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyopencl as cl

from .. import knobs
from ..cache.binary_store import BinaryStore
from ..cache.cache_folder import is_writable, usable_folder
from ..errors import DeviceError, DeviceMemoryError
from ..ir.constants.lazy_array import LazyArray
from ..ir.device.device_family import ADDRESSES, SOFTWARE, UNBUILT
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..pocl import cpu_workarounds as pocl
from ..pocl.release_pages import release_pages
from .device.context import open_context, open_queue
from .device.driver_errors import cl_errors, translate
from .device.driver_hints import HintProperties, Hints, hint_properties, make_hints
from .device.enumerate_devices import FoundDevice, find_device
from .device.fork_guard import check_fork, keep_in_forked_children, process
from .device.query_device_info import fingerprint
from .memory import host_memory
from .memory.allocator import Allocator, Arena
from .memory.device_pointers import ADDRESS_SOURCE, AddressProbe
from .memory.host_device_copies import Transfers
from .memory.pinned_arrays import PinnedArrays
from .memory.shared_weights import SharedWeight, WeightStore
from .programs.kernel_trials import KernelTrials
from .programs.program_cache import ProgramCache, Spec
from .queue.launch_sequence import LaunchSequence
from .queue.prepared_launch import Grid, KernelArg, PreparedLaunch
from .queue.recordable_queues import RecordableQueues, find_recordable_queues
from .runtime_counters import Counters, ProgramCounts

_log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]


class Runtime(Transfers):
    """Context and in-order queue of one device, with its programs, memory and shared weights.

    Sessions on one device with equal hints share one Runtime (`find_runtime`). Its methods are thread-safe; a
    PreparedLaunch belongs to one thread at a time. lost: the error that killed the context, else '' (`check_lost`).
    """

    def __init__(self, found: FoundDevice, hints: HintProperties | None = None) -> None:
        """hints: properties of the context and every queue. Raises DeviceError if the driver refuses a context."""
        self._found = found
        self.lost = ""
        self._lost_lock = threading.Lock()
        self._replacement: Runtime | None = None
        self._can_replace = True
        device = found.device
        if pocl.has_wrong_cpu_name(found.info.platform, found.info.version):
            pocl.fix_cpu_name(device.int_ptr, found.info.version)
        self.device = device
        self.info: DeviceInfo = found.info
        self.counters = Counters()
        self.hints_refused = ""  # the driver's error, if it refused the hints
        self._open(hints or HintProperties())
        if self.info.family == "pocl":
            release_pages()
        self._resident: weakref.ref[Any] | None = None
        self.store = store = None
        if (folder := usable_folder()) is not None:
            self.store = store = BinaryStore(folder, knobs.get("OPALITE_CACHE_MB") << 20, is_writable(folder))
        self.fingerprint = fingerprint(self.info)  # key of device and driver, for binaries
        self.programs = ProgramCache(
            self.context, device, self.info, self.fingerprint, store, self.counters, found.index
        )
        self.trials = KernelTrials(found.index, self.info, self.fingerprint, store)
        self.allocator = Allocator(self.context, self.info, self.counters)
        self.weights = WeightStore(self._upload_weight)
        keep_in_forked_children(self)

    def _open(self, hints: HintProperties) -> None:
        self.hints = hints
        try:
            self.context = open_context(self.device, self.info.title, hints.context)
            self.queue = self.make_queue()
        except DeviceError as e:
            if not hints:
                raise
            self.hints_refused = f"hints have no effect: {e}"
            _log.warning("%s", self.hints_refused)
            self._open(HintProperties())

    @cached_property
    def profiling_queue(self) -> cl.CommandQueue:
        """A second in-order queue, with profiling. Finish one queue before using the other."""
        return self.make_queue(cl.command_queue_properties.PROFILING_ENABLE)

    @cached_property
    def transfer_queue(self) -> cl.CommandQueue:
        """Queue of copies that need not wait for launches: a second one on a device with dedicated memory."""
        return self.queue if self.info.on_host or self.info.unified_memory else self.make_queue()

    def make_queue(self, flags: int = 0) -> cl.CommandQueue:
        """Open another in-order queue. flags: of CL_QUEUE_PROPERTIES."""
        return open_queue(self.context, self.device, self.info.title, self.hints.queue, flags)

    # Programs and launches

    def build(self, text: str, options: str, name: str = "") -> cl._Program:
        """The built program, once for equal text and options. Raises BuildError with the compiler output."""
        return self.programs.get(text, options, name)

    def build_all(
        self,
        specs: Sequence[Spec],
        progress: Callable[[int, int], None] | None = None,
        counts: ProgramCounts | None = None,
    ) -> list[cl._Program]:
        """Programs of (text, options, name), built in parallel where that is faster."""
        return self.programs.get_all(specs, progress, counts)

    def exclude_kernels(self, kernels: Iterable[str]) -> None:
        """Exclude kernels from later plans: their programs do not compile on this device."""
        self.info = replace(self.info, quirks=(*self.info.quirks, *(UNBUILT + name for name in kernels)))

    def prepare(
        self,
        program: cl._Program,
        entry: str,
        args: Sequence[KernelArg],
        grid: Grid,
        group: Grid | None = None,
        label: str = "",
    ) -> PreparedLaunch:
        """A launch with its arguments set. grid, group: global and local size; grid is a multiple of group."""
        return PreparedLaunch(
            program, entry, args, grid, group, label=label, device=self.info.title, counters=self.counters
        )

    @property
    def replay(self) -> RecordableQueues | str:
        """The device's replay extension, or the reason why launches are enqueued one by one."""
        if not knobs.allows_strategy("replay"):
            return f"OPALITE_STRATEGY={knobs.get('OPALITE_STRATEGY')}"
        return self._replay

    @cached_property
    def _replay(self) -> RecordableQueues | str:
        return find_recordable_queues(self.device)

    @property
    def flush_every(self) -> int:
        """Number of launches between flushes, by OPALITE_FLUSH or the device; 0 leaves flushing to the driver."""
        asked = knobs.get("OPALITE_FLUSH")
        return self.info.flush_every if asked is None else int(asked)

    def record(self, launches: Sequence[PreparedLaunch], *, replay: bool = False) -> LaunchSequence:
        """A sequence of launches that run together on the queue.

        replay: record them at the second run, if the device has an extension for it. After setting an argument of a
        launch, call `LaunchSequence.invalidate`.
        """
        found = self.replay if replay else ""
        return LaunchSequence(
            self.queue,
            launches,
            flush_every=self.flush_every,
            holds_gil=self.info.on_host,
            device=self.info.title,
            counters=self.counters,
            replay=None if isinstance(found, str) else found,
        )

    def finish(self) -> None:
        """Wait until the queue is empty."""
        if process.is_child:
            check_fork()
        try:
            self.queue.finish()
        except cl.Error as e:
            raise translate(e, "Waiting for the device", self.info.title) from e

    def check_lost(self, error: DeviceError) -> bool:
        """Return whether the context is dead, probed by a new command. False in forked processes (fork_guard.py)."""
        if process.is_child:
            return False
        with self._lost_lock:
            if not self.lost and not self.is_responsive():
                self.lost = error.message.partition("\n")[0]
            return bool(self.lost)

    def is_responsive(self) -> bool:
        """Return whether a new queue of the context finishes a command."""
        try:
            queue = self.make_queue()
            buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 4)
            cl.enqueue_fill_buffer(queue, buffer, np.uint8(0), 0, 4)
            cl.enqueue_copy(queue, np.empty(4, np.uint8), buffer)
        except cl.Error as e:
            return isinstance(translate(e, "Trying the device", self.info.title), DeviceMemoryError)
        except DeviceError as e:
            return isinstance(e, DeviceMemoryError)
        return True

    def replace_lost(self) -> Runtime | None:
        """A Runtime that replaces this lost one; None if the driver opens no other context in this process."""
        with self._lost_lock:
            if self._replacement is None and self._can_replace:
                with suppress(DeviceError, cl.Error):
                    made = Runtime(self._found, self.hints)
                    self._replacement = made if made.is_responsive() else None
                self._can_replace = self._replacement is not None
                outcome = (
                    "a new context replaces it; models are loaded again and their runs repeated"
                    if self._can_replace
                    else "the driver opens no other in this process; runs continue in child processes, slower, until "
                    "this process is restarted"
                )
                _log.warning("the context of %s is dead (%s): %s", self.info.title, self.lost, outcome)
            return self._replacement

    def set_resident_worker(self, loop: Any) -> Any:
        """Make `loop` (None: no loop) the owner of spinning workers; returns the previous owner, to be dismissed."""
        before, self._resident = self._resident, None if loop is None else weakref.ref(loop)
        found = None if before is None else before()
        return None if found is loop else found

    # Memory

    def allocate(self, nbytes: int, *, mapped: bool = False) -> cl.Buffer:
        """A read-write buffer of at least `nbytes`; mapped: host-accessible. DeviceMemoryError if memory is short."""
        return self.allocator.buffer(nbytes, mapped=mapped)

    def pinned(self, nbytes: int) -> Array:
        """Pinned host memory, as uint8 (`pinned_bytes`)."""
        return host_memory.pinned_bytes(self.context, self.queue, self.info, nbytes)

    @cached_property
    def pinned_arrays(self) -> PinnedArrays:
        """Arrays for large outputs."""
        return PinnedArrays(self.pinned)

    @property
    def copies_memory(self) -> bool:
        """Return whether transfers are copies between the device's own memory and pinned host memory."""
        return not (self.shares_memory or self.info.on_host or self.info.unified_memory)

    @property
    def supports_inline_upload(self) -> bool:
        """Return whether in-flight runs can upload small values by memory/inline_upload.py."""
        return ADDRESSES in self.info.quirks

    def make_image(self, width: int, height: int, dtype: DType) -> cl.Image:
        """A read-write image2d of RGBA texels, channels FLOAT32 or FLOAT16."""
        return self.allocator.image(width, height, dtype)

    def make_arena(self, regions: Sequence[tuple[int, int]]) -> Arena:
        """Memory for regions (offset, nbytes) of one address space; `Arena.region` returns each."""
        address = (lambda buffer: self.addresses_of([buffer])[0]) if ADDRESSES in self.info.quirks else None
        return Arena(self.allocator, regions, address)

    def addresses_of(self, buffers: Sequence[cl.Buffer]) -> list[int]:
        """Device addresses of buffers, on devices with arguments by address. Waits for the queue."""
        with cl_errors("Reading buffer addresses", self.info.title):
            return self._address_probe.find(buffers)

    @cached_property
    def _address_probe(self) -> AddressProbe:
        return AddressProbe(self.queue, self.build(ADDRESS_SOURCE, "", "addresses of buffers"))

    def share_weight(self, array: Array | LazyArray, *, image: bool = False, key: str | None = None) -> SharedWeight:
        """Device memory of a constant, shared by all sessions (`WeightStore.get`)."""
        return self.weights.get(array, image=image, key=key)

    def _upload_weight(self, array: Array, image: bool) -> SharedWeight:
        if image:
            height, width, _ = array.shape
            texture = self.make_image(width, height, DType.of(array))
            self.write_image(texture, np.ascontiguousarray(array))
            return SharedWeight(texture, None)
        wrapped = self.allocator.wrapped(array)
        if wrapped is not None:
            return SharedWeight(wrapped, array)
        buffer = self.allocate(array.nbytes)
        self.write(buffer, np.ascontiguousarray(array))
        return SharedWeight(buffer, None)

    @cached_property
    def shares_memory(self) -> bool:
        """Return whether buffers are zero-copy: transfers need no queue command."""
        return host_memory.shares_memory(self.context, self.queue, self.info.on_host)

    @property
    def maps_memory(self) -> bool:
        """Return whether the device is an integrated GPU, where mapping a buffer copies nothing."""
        return self.info.unified_memory and not self.info.on_host


_runtimes: dict[tuple[str, HintProperties], Runtime] = {}
_lock = threading.Lock()


def find_runtime(request: str | None = None, hints: Hints | None = None) -> Runtime:
    """The process's Runtime of the device that matches `request` (`find_device`), one for each device and hints.

    hints: default by environment.
    """
    check_fork()  # before the lock: another thread may have held it at the fork
    with _lock:
        found = find_device(request)
        properties = hint_properties(make_hints() if hints is None else hints, found.info)
        runtime = _runtimes.get((found.info.id, properties))
        if runtime is not None and runtime.lost:
            runtime = _runtimes[found.info.id, properties] = runtime.replace_lost() or runtime
        if runtime is None:
            runtime = _runtimes[found.info.id, properties] = Runtime(found, properties)
            if SOFTWARE in found.info.quirks:
                _log.warning(
                    "%s emulates a GPU on the CPU, about 100 times slower than a CPU driver: a large model takes "
                    "minutes per run. `pip install pocl-binary-distribution` installs a CPU driver, "
                    "which is then the default",
                    found.info.title,
                )
        return runtime
