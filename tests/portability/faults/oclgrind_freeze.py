"""Oclgrind 21.10's search for uninitialised values ends kernels with `freeze`, which its optimiser makes of divisions.

Run with OCLGRIND_UNINITIALIZED=1; OCLGRIND_BUILD_OPTIONS=-cl-opt-disable avoids it.
"""

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void f(global int *x, int n) {
    const int id = get_global_id(0), p = id % n, q = id / n;
    x[id] = p * 100 + q;
}
"""

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
x = np.zeros(6, np.int32)
flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
a = cl.Buffer(context, flags, hostbuf=x)
cl.Program(context, SOURCE).build(cache_dir=False).f(queue, (6,), None, a, np.int32(3))
cl.enqueue_copy(queue, x, a)
print(x, "expected [0 100 200 1 101 201]")
