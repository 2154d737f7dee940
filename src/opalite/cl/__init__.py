"""OpenCL through pyopencl, which only this folder imports.

runtime     Runtime: context, queues, programs and memory of one device
device/     enumeration, selection, DeviceInfo, driver hints, errors, `opalite doctor`
programs/   program cache, compiler, worker processes, throttling of background work
memory/     allocator, arena, device tensors, transfers, shared weights
queue/      prepared launches, launch sequences, replay of recordings
"""
