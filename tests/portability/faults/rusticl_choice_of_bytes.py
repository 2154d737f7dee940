"""Mesa 25.0's rusticl (llvmpipe, LLVM 19) divides by zero as it compiles this choice between bytes, at its first run.

The process ends. With "select" as the first argument the same choice is made by select, and it lives.
"""

import sys

import numpy as np
import pyopencl as cl

CHOICES = {"ternary": "i > 3 ? (char)1 : x[i]", "select": "select(x[i], (char)1, (char)(i > 3))"}
SOURCE = """
kernel void f(global const char *x, global char *y) {
    const int i = get_global_id(0);
    y[i] = %s;
}
"""

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
x = np.arange(8, dtype=np.int8)
y = np.empty_like(x)
source = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, y.nbytes)
choice = CHOICES[sys.argv[1] if len(sys.argv) > 1 else "ternary"]
cl.Program(context, SOURCE % choice).build(cache_dir=False).f(queue, (8,), None, source, buffer)
cl.enqueue_copy(queue, y, buffer)
print(y, "expected [0 1 2 3 1 1 1 1]")
