"""Oclgrind 21.10's search for uninitialised values reports texels by what lies in memory beside its notes on the image.

Run with OCLGRIND_UNINITIALIZED=1; it reports nothing, or all that is computed from the texel. What is known of a
kernel's image is eight bytes, those of a pointer, and isCleanImage takes them for the whole description, 104 bytes.
Whether the bytes behind are zero depends on what lies there.
"""

import numpy as np
import pyopencl as cl

SOURCE = """
constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void f(read_only image2d_t x, global float *y, int n) {
    float4 sum = (float4)(0);
    for (int i = 0; i < n; ++i) sum += read_imagef(x, nearest, (int2)(i, 0)) * read_imagef(x, nearest, (int2)(i, 1));
    y[0] = sum.x;
}
"""

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
kind = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
x = cl.create_image(context, cl.mem_flags.READ_WRITE, kind, shape=(64, 64))
y = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
texels = np.ones((64, 64, 4), np.float32)
cl.enqueue_copy(queue, x, texels, origin=(0, 0), region=(64, 64))
kernel = cl.Program(context, SOURCE).build(["-cl-opt-disable"], cache_dir=False).f
kernel(queue, (64,), None, x, y, np.int32(64))
queue.finish()
