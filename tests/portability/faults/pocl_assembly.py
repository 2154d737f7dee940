"""PoCL 6.0 on LLVM 18 ends the process that compiles a kernel with inline assembly: an assertion fails."""

import pyopencl as cl

SOURCE = 'kernel void f(global int *x) { __asm__ volatile("nop"); x[get_global_id(0)] = 1; }'

device = cl.get_platforms()[0].get_devices()[0]
program = cl.Program(cl.Context([device]), SOURCE).build(cache_dir=False)
print(len(program.get_info(cl.program_info.BINARIES)[0]), "bytes")
