"""PoCL 5.0 and 6.0 end the process that compiles this without optimisation: "isGVarUsedByFunction(&Var, F) == true".

They expect a kernel to use each local variable that it declares. With -DUSED as the first argument it compiles; with
optimisation unused ones are gone before they look.
"""

import sys

import pyopencl as cl

SOURCE = """
kernel void f(global int *x) {
    local int seat;
#ifdef USED
    seat = 1;
#endif
    x[get_global_id(0)] = 1;
}
"""

device = cl.get_platforms()[0].get_devices()[0]
program = cl.Program(cl.Context([device]), SOURCE).build(["-cl-opt-disable", *sys.argv[1:]], cache_dir=False)
print(len(program.get_info(cl.program_info.BINARIES)[0]), "bytes")
