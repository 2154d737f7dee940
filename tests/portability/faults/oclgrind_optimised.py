"""Oclgrind 21.10 does not know what its optimiser makes of `restrict` in functions that it inlines.

Building says nothing; the kernel is missing. With -cl-opt-disable as the first argument it is found.
"""

import sys

import pyopencl as cl

SOURCE = """
static inline void twice(global const int *restrict x, global int *restrict y, int i) { y[i] = 2 * x[i]; }
kernel void f(global int *x) { twice(x, x + 4, get_global_id(0)); }
"""

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
program = cl.Program(context, SOURCE).build(sys.argv[1:], cache_dir=False)
try:
    cl.Kernel(program, "f")
    print("found")
except cl.Error as e:
    print(e)
