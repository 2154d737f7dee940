"""Trial process (kernel_trials.py): launches one kernel four times on zeroed buffers, in its own context.

    python -m opalite.cl.programs.kernel_trial_main PLATFORM:DEVICE VERSION

Standard input is `Trial.request`; the parent keeps it open until it has the answer. Standard output is BUILT after
compilation, RAN after the launches, or FAULT and a reason.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading

import numpy as np
import pyopencl as cl

from ...pocl import cpu_workarounds as pocl
from ..device.enumerate_devices import list_all
from ..memory.device_pointers import AddressProbe

RUNS = 4
BUILT, RAN, FAULT = "built", "ran", "fault: "


def main(index: str, version: str) -> int:
    """Run the trial; returns the exit status, 0 if the kernel ran."""
    request = json.loads(sys.stdin.buffer.readline())
    program = sys.stdin.buffer.read(request["nbytes"])
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    found = next((f for f in list_all().devices if f.index == index), None)
    if found is None or found.info.version != version:
        print(FAULT + "the device is another one", flush=True)
        return 1
    device = found.device
    if pocl.has_wrong_cpu_name(found.info.platform, version):
        pocl.fix_cpu_name(device.int_ptr, version)
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        built = cl._Program(context, [device], [program])
        built._build(b"", [device])
        kernel = cl.Kernel(built, request["kernel"])
        buffers = [_buffer(queue, size, request["contents"].get(str(i))) for i, size in enumerate(request["sizes"])]
        found_at = AddressProbe(queue).find(buffers)
        kernel.set_arg(0, np.array([found_at[i] if i >= 0 else 0 for i in request["addresses"]], np.uint64))
    except (cl.Error, RuntimeError) as e:
        print(FAULT + _one_line(e), flush=True)
        return 1
    print(BUILT, flush=True)
    try:
        for _ in range(RUNS):
            cl.enqueue_nd_range_kernel(queue, kernel, (request["items"],), (request["group"],))
            queue.finish()
    except cl.Error as e:
        print(FAULT + _one_line(e), flush=True)
        return 1
    print(RAN, flush=True)
    return 0


def _buffer(queue: cl.CommandQueue, nbytes: int, contents: str | None) -> cl.Buffer:
    """A zeroed buffer, with `contents` (base64) at its beginning."""
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, nbytes)
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(0), 0, nbytes)
    if contents is not None:
        cl.enqueue_copy(queue, buffer, np.frombuffer(base64.b64decode(contents), np.uint8))
    return buffer


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _exit_with_parent() -> None:
    """Exit at the end of standard input, even if the kernel hangs."""
    os.read(0, 1)
    os._exit(2)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the destructors of a dead context raise, or hang
