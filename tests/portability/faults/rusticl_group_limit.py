"""Mesa 22.3's rusticl says that no kernel runs with more than 32 work-items, of a device with groups of 1024."""

import pyopencl as cl

device = cl.get_platforms()[0].get_devices()[0]
program = cl.Program(cl.Context([device]), "kernel void f(global int *x) { x[get_global_id(0)] = 1; }")
kernel = cl.Kernel(program.build(cache_dir=False), "f")
limit = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
print("the device:", device.max_work_group_size, "the kernel:", limit)
