"""measure_peaks: measures a device's multiply-add rate and copy bandwidth, for rooflines."""

from __future__ import annotations

import numpy as np

from ...cl.queue.event_times import read_times
from ...cl.queue.prepared_launch import PreparedLaunch
from ...cl.runtime import Runtime
from .profile import Peaks

_ROUNDS = 2000
_CHAINS = 12
_COPY_BYTES = {True: 64 << 20, False: 256 << 20}  # on the host, on a device with memory of its own
_REPEATS = 5


def measure_peaks(rt: Runtime) -> Peaks:
    """Measure the best of a few runs of independent vector multiply-adds, and of a large copy."""
    return Peaks(_measure_flops(rt), measure_bandwidth(rt))


def _measure_flops(rt: Runtime) -> float:
    width = rt.info.pack if rt.info.on_host else 4
    kind = f"float{width}"
    names = [f"r{i}" for i in range(_CHAINS)]
    start = ",".join(f"{n}=({kind})(id+{i})" for i, n in enumerate(names))
    step = "".join(f"{n}=fma({n},a,b);" for n in names)
    text = (
        "#pragma OPENCL FP_CONTRACT ON\n"
        f"kernel void peak(global float *y, float f, int rounds) {{ const int id = get_global_id(0); {kind} {start};"
        f"const {kind} a = ({kind})(f), b = ({kind})(1 - f); for (int i = 0; i < rounds; ++i) {{ {step} }}"
        f"vstore{width}({'+'.join(names)}, id, y); }}"
    )
    items = rt.info.compute_units * (8 if rt.info.on_host else 4096)
    group = (1,) if rt.info.on_host else (min(128, rt.info.max_work_group_size),)
    items = -(-items // group[0]) * group[0]
    y = rt.allocate(items * width * 4)
    program = rt.build(text, "", "peak.cl")
    launch = rt.prepare(program, "peak", [y, np.float32(0.5), np.int32(_ROUNDS)], (items,), group, "peak")
    return 2.0 * width * _CHAINS * _ROUNDS * items / best_seconds(rt, launch)


def measure_bandwidth(rt: Runtime) -> float:
    """Measure the bytes read and written per second by a large copy, the best of a few runs."""
    nbytes = min(_COPY_BYTES[rt.info.on_host], rt.info.max_alloc // 2)
    # Adjacent work-items of a GPU copy adjacent 16 bytes; a CPU's work-item copies a cache line.
    kind, size, group = ("float16", 64, 64) if rt.info.on_host else ("float4", 16, 256)
    text = (
        f"kernel void copy(global const {kind} *x, global {kind} *y) {{ const int i = get_global_id(0); y[i] = x[i]; }}"
    )
    x, y = rt.allocate(nbytes), rt.allocate(nbytes)
    rt.fill(x, 1, nbytes)
    rt.finish()
    group = min(group, rt.info.max_work_group_size)
    items = nbytes // size // group * group
    launch = rt.prepare(rt.build(text, "", "copy.cl"), "copy", [x, y], (items,), (group,), "copy")
    return 2.0 * size * items / best_seconds(rt, launch)


def best_seconds(rt: Runtime, launch: PreparedLaunch) -> float:
    """The least seconds of a few launches."""
    seconds = []
    for _ in range(_REPEATS):
        event = launch.enqueue(rt.profiling_queue)
        rt.profiling_queue.finish()
        seconds.append(read_times(event, rt.info.title).seconds)
    return max(min(seconds), 1e-9)
