"""Oclgrind 21.10 computes mad_sat of longs wrongly: a product below zero counts as one that does not fit."""

import numpy as np
import pyopencl as cl

SOURCE = "kernel void f(global long *x) { x[0] = mad_sat(x[0], x[1], x[2]); }"

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
x = np.array([12, -12, 0])
held = cl.Buffer(context, cl.mem_flags.READ_WRITE, x.nbytes)
cl.enqueue_copy(queue, held, x)
cl.Program(context, SOURCE).build(["-cl-opt-disable"], cache_dir=False).f(queue, (1,), None, held)
cl.enqueue_copy(queue, x, held)
print(x[0], "expected -144")
