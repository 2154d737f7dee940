"""Mesa 25.0's rusticl on llvmpipe reads the wrong image in a function that was given a vector and an image.

With always_inline as the first argument the function is inlined before Mesa sees it, and the right image is read.
"""

import sys

import numpy as np
import pyopencl as cl

SOURCE = """
constant sampler_t texels = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;

%s float4 difference(float4 v, int column, int row, int rows, read_only image2d_t image) {
    return v - read_imagef(image, texels, (int2)(column, row));
}

kernel void f(read_only image2d_t a, read_only image2d_t b, global float4 *y) {
    const int column = get_global_id(0), row = get_global_id(1);
    y[row * 4 + column] = difference(read_imagef(a, texels, (int2)(column, row)), column, row, 4, b);
}
"""

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
rng = np.random.default_rng(0)
arrays = [rng.random((4, 4, 4), np.float32) for _ in range(2)]
layout = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
images = []
for array in arrays:
    images.append(cl.create_image(context, cl.mem_flags.READ_ONLY, layout, (4, 4)))
    cl.enqueue_copy(queue, images[-1], array, origin=(0, 0), region=(4, 4))
y = np.empty((4, 4, 4), np.float32)
buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, y.nbytes)
program = cl.Program(context, SOURCE % "".join(f"__attribute__(({a}))" for a in sys.argv[1:])).build(cache_dir=False)
program.f(queue, (4, 4), None, *images, buffer)
cl.enqueue_copy(queue, y, buffer)
print("largest difference from a - b:", np.abs(y - (arrays[0] - arrays[1])).max())
