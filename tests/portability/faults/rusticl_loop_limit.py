"""Mesa 22.3's rusticl on llvmpipe leaves every loop after 65,535 turns, and says nothing. Mesa 25.0 goes on."""

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void f(global int *turns, int count, int part) {
    int n = 0;
    for (int i = 0; i < count; i += part)
        for (int k = i; k < min(i + part, count); ++k) n += turns[1] == 0;
    turns[0] = n;
}
"""

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, SOURCE).build(cache_dir=False), "f")
for count, part in ((60000, 60000), (100000, 100000), (100000, 1000), (100000, 10)):
    turns = np.zeros(2, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=turns)
    kernel(queue, (1,), (1,), buffer, np.int32(count), np.int32(part))
    cl.enqueue_copy(queue, turns, buffer).wait()
    print(turns[0], "turns, expected", count)
