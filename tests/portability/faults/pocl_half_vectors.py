"""PoCL 5.0 and 6.0 end the process here: they take the address of vload_half8 for a multiple of 16 bytes.

That is so of vloada_half8 alone; vload_half8 may begin at any half. With 16 as the first argument every row begins at
a multiple of 16 bytes, and the results are right.
"""

import sys

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void f(global const half *x, global float *y, int length, int inner) {
    float8 v = 0;
    for (int j = 0; j < length; ++j) {
        const float8 e = vload_half8(0, x + j * inner);
        v = e > v || e != e ? e : v;
    }
    vstore8(v, 0, y);
}
"""

inner = int(sys.argv[1]) if len(sys.argv) > 1 else 11
context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
x = np.arange(1, 1 + 11 * inner, dtype=np.float16).reshape(11, inner)
y = np.zeros(8, np.float32)
given = cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
made = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, y.nbytes)
program = cl.Program(context, SOURCE).build(cache_dir=False)
program.f(queue, (1,), (1,), given, made, np.int32(len(x)), np.int32(inner))
cl.enqueue_copy(queue, y, made)
print(y, "expected", x.max(0)[:8])
