"""PoCL 6.0 on LLVM 18 ends the process as it compiles this: "Instruction Combining did not reach a fixpoint".

With -cl-opt-disable as the first argument it compiles.
"""

import os
import sys

os.environ["POCL_WORK_GROUP_SPECIALIZATION"] = "0"  # compile for all work-group sizes, as the program's binary asks for

import pyopencl as cl

SOURCE = """
kernel void f(global const int *restrict x, global const int *restrict w, global int *restrict y, int batch, int cg,
              int mg, int groups, int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw) {
    const int o = get_global_id(0), mb = get_global_id(1), n = get_global_id(2);
    const int blocks = (mg + 3) / 4, g = mb / blocks, m0 = (mb - g * blocks) * 4;
    if (o >= od * oh * ow || g >= groups || n >= batch) return;
    const int ox = o % ow, oy = o / ow % oh, oz = o / (ow * oh);
    const int ix = ox - pw, iy = oy - ph, iz = oz - pd;
    int acc[4];
    size_t row[4];
    for (int t = 0; t < 4; ++t) {
        acc[t] = 0;
        row[t] = (size_t)(g * mg + min(m0 + t, mg - 1)) * cg;
    }
    for (int c = 0; c < cg; ++c) {
        const size_t plane = (size_t)(n * groups * cg + g * cg + c) * id * ih * iw;
        if (iz < 0 || iz >= id || iy < 0 || iy >= ih || ix < 0 || ix >= iw) continue;
        const int v = x[plane + ((size_t)iz * ih + iy) * iw + ix];
        for (int t = 0; t < 4; ++t) acc[t] += v * w[row[t] + c];
    }
    for (int t = 0; t < 4 && m0 + t < mg; ++t) {
        const int m = g * mg + m0 + t;
        y[(size_t)(n * groups * mg + m) * (od * oh * ow) + o] = acc[t];
    }
}
"""

device = cl.get_platforms()[0].get_devices()[0]
program = cl.Program(cl.Context([device]), SOURCE).build(sys.argv[1:], cache_dir=False)
print(len(program.get_info(cl.program_info.BINARIES)[0]), "bytes")
