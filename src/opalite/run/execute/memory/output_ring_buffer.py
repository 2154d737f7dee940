"""OutputRingBuffer: memory for the small outputs of runs in flight, one row for each run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ....cl.memory.inline_upload import InlineUpload
from ....cl.runtime import Runtime
from ....plan.program import DownloadStep, Port
from ..strategies.launch_parameter_buffer import MAX_IN_FLIGHT
from .io_transfer import IoTransfer

_SMALL = 64 << 10  # bytes of an output that is read to pinned memory; reads to other memory may block
_ALIGNED = 64


class OutputRingBuffer:
    """Rows for the outputs of MAX_IN_FLIGHT runs.

    uploads: copies small inputs and outputs with launches. Outputs are then collected in rows on the device and read in
    one transfer. None if they are written and read one by one.
    """

    def __init__(self, rt: Runtime, outputs: Iterable[Port]) -> None:
        """outputs: those whose shape is the same in all runs."""
        self._rt = rt
        self.uploads = InlineUpload(rt) if rt.supports_inline_upload else None
        ports = {p.host: p for p in outputs if 0 < _nbytes(p) <= _SMALL}
        sizes = [-(-_nbytes(p) // _ALIGNED) * _ALIGNED for p in ports.values()]
        self._row = sum(sizes)
        self._ports = dict(zip(ports, zip(ports.values(), np.cumsum([0, *sizes]).tolist(), strict=False), strict=True))
        self._bytes = rt.pinned(MAX_IN_FLIGHT * self._row).reshape(MAX_IN_FLIGHT, self._row)
        self._device = rt.allocate(MAX_IN_FLIGHT * self._row) if self.uploads is not None and self._row else None

    def download(self, io: IoTransfer, step: DownloadStep, run: int) -> tuple[Any, Any]:
        """Enqueue the download of a run's output.

        Returns its array, valid after `collect`, and an object that must stay alive until then.
        """
        if step.host not in self._ports:
            return io.download(step)
        port, start = self._ports[step.host]
        array = self._bytes[run, start : start + _nbytes(port)].view(port.dtype.np).reshape(port.shape)
        if self.uploads is None or self._device is None or not self.uploads.accepts(array.nbytes):
            return io.download(step, array)
        io.download_inline(step, self.uploads, self._device, run * self._row + start, array.nbytes)
        return array, None

    def collect(self, runs: int) -> Any:
        """Enqueue the transfer of the rows of the first `runs` runs.

        Returns an object that must stay alive until the queue has finished.
        """
        if self.uploads is None:
            return None
        self.uploads.flush()
        return None if self._device is None else self._rt.read(self._device, self._bytes[:runs], wait=False)

    def copy_out(self, output: Any) -> Any:
        """The output, copied if it is in a row."""
        is_here = isinstance(output, np.ndarray) and np.may_share_memory(output, self._bytes)
        return output.copy() if is_here else output


def _nbytes(port: Port) -> int:
    return math.prod(port.shape) * int(port.dtype.np.itemsize)
