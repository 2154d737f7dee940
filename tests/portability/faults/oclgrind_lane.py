"""Oclgrind 21.10's search for uninitialised values takes lane 11 of a vector of 16 for unwritten in a shuffle.

Run with OCLGRIND_UNINITIALIZED=1. It compares the index with LLVM's number of the kind of value "undefined", not with
the index that means it.
"""

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void f(global const float *x, global float *y) {
    const float16 v = vload16(0, x);
    const float8 half_of_it = v.hi;
    vstore8(half_of_it, 0, y);
}
"""

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
x, y = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 64) for _ in range(2))
cl.enqueue_copy(queue, x, np.arange(16, dtype=np.float32))
cl.Program(context, SOURCE).build(["-cl-opt-disable"], cache_dir=False).f(queue, (1,), None, x, y)
queue.finish()
