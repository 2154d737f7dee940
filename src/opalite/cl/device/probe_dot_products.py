"""Probes of 4-way dot products of bytes: by running vendors' extensions, and by asking for Khronos's acceleration."""

from __future__ import annotations

import ctypes

import numpy as np
import pyopencl as cl

from ...ir.constants.lazy_array import Array
from ...ir.device.device_info import DeviceInfo
from ..queue.raw_opencl_calls import find_call

ARM_EXTENSIONS = ("cl_arm_integer_dot_product_accumulate_int8", "cl_arm_integer_dot_product_int8")
QCOM_EXTENSION = "cl_qcom_dot_product8"
_ACCELERATION = 0x1075  # CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR

# Bytes that tell signed from unsigned operands, on either side.
_A = np.array([-1, 2, -3, 127, -128, 100, 7, -50], np.int8)
_B = np.array([255, 1, 200, 128, 3, 254, 129, 17], np.uint8)
_SOURCE = """
#pragma OPENCL EXTENSION EXT : enable
kernel void trial(global const uint *a, global const uint *b, global int *y) {
    const int i = get_global_id(0);
    y[i] = CALL;
}
"""


def supports_arm_dot(device: cl.Device, info: DeviceInfo) -> bool:
    """Whether the functions of Arm's extension that `info` lists compute a product of signed bytes."""
    accumulates = info.has(ARM_EXTENSIONS[0])
    call = (
        "arm_dot_acc(as_char4(a[i]), as_char4(b[i]), 5)"
        if accumulates
        else "5 + arm_dot(as_char4(a[i]), as_char4(b[i]))"
    )
    return _computes(device, ARM_EXTENSIONS[not accumulates], call, _A, _B.view(np.int8))


def supports_qcom_dot(device: cl.Device) -> bool:
    """Whether qcom_dot8_acc multiplies signed bytes by unsigned ones: its signature leaves that open."""
    return _computes(device, QCOM_EXTENSION, "qcom_dot8_acc(a[i], b[i], 5)", _A, _B)


def is_khr_dot_slow(device: cl.Device) -> bool:
    """Whether the driver says that no instruction computes Khronos's packed products of equal or of mixed signs.

    False where it does not say.
    """
    found = (ctypes.c_uint32 * 6)()  # signed, unsigned, mixed; the same with saturation
    pointer = ctypes.c_void_p
    ask = find_call("clGetDeviceInfo", ctypes.c_int32, pointer, ctypes.c_uint32, ctypes.c_size_t, pointer, pointer)
    code = 1 if ask is None else ask(device.int_ptr, _ACCELERATION, ctypes.sizeof(found), ctypes.addressof(found), None)
    return not code and not (found[0] or found[2])


def _computes(device: cl.Device, extension: str, call: str, a: Array, b: Array) -> bool:
    """Whether `call` gives 5 + the products of `a` and `b`, four at a time."""
    want = 5 + (a.astype(np.int32) * b.astype(np.int32)).reshape(-1, 4).sum(1)
    try:
        context = cl.Context([device])
        program = cl._Program(context, _SOURCE.replace("EXT", extension).replace("CALL", call))
        program._build(b"", [device])
        queue, flags = cl.CommandQueue(context), cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        got = np.zeros(len(want), np.int32)
        y = cl.Buffer(context, cl.mem_flags.READ_WRITE, got.nbytes)
        kernel = cl.Kernel(program, "trial")
        held = [cl.Buffer(context, flags, hostbuf=operand.view(np.uint32)) for operand in (a, b)]
        kernel.set_args(*held, y)
        cl.enqueue_nd_range_kernel(queue, kernel, got.shape, None)
        cl.enqueue_copy(queue, got, y)
    except cl.Error:
        return False
    return bool(np.array_equal(got, want))
