"""Mesa 25.0's rusticl (llvmpipe) crashes on a switch of 100 cases, which it makes 100 branches in each other of.

The process ends at 80; Mesa 22.3 and 26.2 compute none of the cases from there on. With "turns" as the first argument
the same cases are in switches of 32, one after the other, which all run.
"""

import sys

import numpy as np
import pyopencl as cl

COUNT = 100
EACH = 32 if sys.argv[1:] == ["turns"] else COUNT
CASES = [f"case {i}: x[i] = sqrt(x[i] + {i}); break;" for i in range(COUNT)]
SWITCHES = [f"switch (which[0]) {{ {' '.join(CASES[i : i + EACH])} }}" for i in range(0, COUNT, EACH)]
SOURCE = f"kernel void f(global float *x, global const int *which) {{ int i = get_global_id(0); {' '.join(SWITCHES)} }}"

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
x, which = np.ones(8, np.float32), np.array([99], np.int32)
flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
buffer, chosen = cl.Buffer(context, flags, hostbuf=x), cl.Buffer(context, flags, hostbuf=which)
cl.Program(context, SOURCE).build(cache_dir=False).f(queue, (8,), None, buffer, chosen)
cl.enqueue_copy(queue, x, buffer)
print(x, "expected 10")
