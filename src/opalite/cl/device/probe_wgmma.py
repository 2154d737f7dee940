"""Probe of Hopper's wgmma and of more than 48 KiB of local memory, by ptx/retarget_sm90a.py."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from ...errors import OpaliteError
from ...ptx.retarget_sm90a import retarget
from ..programs.ptx_binary import assemble, ptx_of

_BYTES, _PLACE = 98304, 81920  # of local memory, and offset of the right operand in it
_PROBE = f"""
kernel void trial(global float4 *y, global const uint *a) {{
    local uint room[64] __attribute__((aligned(1024)));
    asm volatile("//hopper-local room {_BYTES}");
    const uint at = (uint)(size_t)room + {_PLACE}, item = get_local_id(0);
    if (item < 64) asm volatile("st.shared.u32 [%0], %1;" :: "r"(at + 4 * item), "r"(0x3c003c00) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    const uint pair = a[item / 4 % 8];
    const ulong place = ((ulong)(at >> 4) & 0x3fff) | (8ul << 16) | (16ul << 32);
    asm volatile("//hopper wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("//hopper wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                 "{{%0,%1,%2,%3}}, {{%4,%4,%4,%4}}, %5, 1, 1, 1, 0;"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(pair), "l"(place));
    asm volatile("//hopper wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("//hopper wgmma.wait_group.sync.aligned 0;" ::: "memory");
    y[item] = (float4)(d0, d1, d2, d3);
}}
"""


def supports_wgmma(device: cl.Device) -> bool:
    """Return whether `device` computes a wgmma product of 64 rows by ones correctly."""
    rows = np.arange(1, 9)
    try:
        context = cl.Context([device])
        source = cl._Program(context, _PROBE)
        source._build(b"", [device])
        kernel = cl.Kernel(assemble(context, device, retarget(ptx_of(source))), "trial")
        queue = cl.CommandQueue(context)
        got = np.zeros((128, 4), np.float32)
        y = cl.Buffer(context, cl.mem_flags.READ_WRITE, got.nbytes)
        pairs = np.repeat(rows.astype(np.float16), 2).view(np.uint32)
        a = cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=pairs)
        kernel.set_args(y, a)
        cl.enqueue_nd_range_kernel(queue, kernel, (128,), (128,))
        cl.enqueue_copy(queue, got, y)
    except (cl.Error, OpaliteError):
        return False
    want = 16.0 * rows[np.arange(128) // 4 % 8]
    return bool(np.array_equal(got, np.repeat(want[:, None], 4, 1)))
