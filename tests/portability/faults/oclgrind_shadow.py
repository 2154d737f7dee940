"""Oclgrind 21.10's search for uninitialised values reports memory that was written, and misses some that was not.

Run with OCLGRIND_UNINITIALIZED=1. All that the kernel reads was written in the first four cases, yet they are reported
but for the first; in the last nothing was written, and that is not reported.
"""

import numpy as np
import pyopencl as cl

SOURCE = "kernel void f(global const int *x, global int *y) { y[get_global_id(0)] = x[get_global_id(0)]; }"

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, SOURCE).build(["-cl-opt-disable"], cache_dir=False), "f")
flags = cl.mem_flags
y = cl.Buffer(context, flags.READ_WRITE, 16)
host = np.arange(4, dtype=np.int32)


def show(case: str, x: cl.Buffer) -> None:
    """Read all of `x`."""
    print(case, flush=True)
    kernel(queue, host.shape, None, x, y)
    queue.finish()


x = cl.Buffer(context, flags.READ_WRITE, host.nbytes)
cl.enqueue_copy(queue, x, host)
show("one write of the whole buffer: right", x)

halves = cl.Buffer(context, flags.READ_WRITE, host.nbytes)
for half in (0, 1):
    cl.enqueue_copy(queue, halves, host[2 * half : 2 * half + 2], dst_offset=8 * half)
show("two writes of one half each: wrong", halves)

filled = cl.Buffer(context, flags.READ_WRITE, host.nbytes)
cl.enqueue_fill_buffer(queue, filled, np.int32(0), 0, host.nbytes)
show("a fill: wrong", filled)

shared = cl.Buffer(context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=host)
show("memory of the host: wrong", shared)

x.release()
missed = cl.Buffer(context, flags.READ_WRITE, host.nbytes)
show("a buffer never written, in the place of the first one, which is released: missed", missed)
