"""Oclgrind 21.10 crashes when two threads build programs at once, or wait for queues of their own.

The argument is `build` or `wait`.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl

SOURCE = "kernel void f(global float *x) { x[get_global_id(0)] = sin(x[get_global_id(0)]) * %d; }"

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])


def build(i: int) -> cl.Program:
    """Build program `i`."""
    return cl.Program(context, SOURCE % i).build(["-cl-opt-disable"], cache_dir=False)


def wait(program: cl.Program) -> None:
    """Run it often."""
    queue, x = cl.CommandQueue(context), cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
    cl.enqueue_copy(queue, x, np.zeros(64, np.float32))
    for _ in range(100):
        program.f(queue, (64,), None, x)
        queue.finish()


with ThreadPoolExecutor(4) as pool:
    if sys.argv[1] == "build":
        list(pool.map(build, range(64)))
    else:
        list(pool.map(wait, [build(i) for i in range(4)]))
print("done")
