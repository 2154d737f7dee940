"""PoCL 5.0 and 6.0 end the process that compiles a kernel with inline assembly: an assertion fails.

With -DCALLED as the first argument the assembly stands in a function that is not inlined, and the kernel compiles.
"""

import sys

import pyopencl as cl

SOURCE = """
#ifdef CALLED
__attribute__((noinline))
#else
__attribute__((always_inline))
#endif
static int twice(int v) {
    __asm__("addl %0, %0" : "+r"(v));
    return v;
}
kernel void f(global int *x) { x[get_global_id(0)] = twice(x[get_global_id(0)]); }
"""

device = cl.get_platforms()[0].get_devices()[0]
program = cl.Program(cl.Context([device]), SOURCE).build(sys.argv[1:], cache_dir=False)
print(len(program.get_info(cl.program_info.BINARIES)[0]), "bytes")
