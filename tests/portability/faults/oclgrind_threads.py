"""Oclgrind 21.10 crashes when two threads build programs at once."""

from concurrent.futures import ThreadPoolExecutor

import pyopencl as cl

SOURCE = "kernel void f(global float *x) { x[get_global_id(0)] = sin(x[get_global_id(0)]) * %d; }"

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda i: cl.Program(context, SOURCE % i).build(cache_dir=False), range(64)))
print("64 programs are built")
