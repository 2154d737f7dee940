"""Times of the convolution and pooling kernels on the shapes of common networks.

    python -m benchmarks.kernel_conv [--device cpu] [--all] [--only TEXT] [--kernel NAME] [--bytes]

Prints microseconds, GFLOP/s and their share of the multiply-add peak that this device reached just before. Times are
minima. `--all` measures every legal parameter set instead of the untuned defaults.
`--bytes`: convolutions of 8-bit integers.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from opalite.cl.runtime import Runtime, find_runtime
from opalite.kernel.testing.single_node import make_node, time_node
from opalite.kernels.kernel import Kernel, kernels_for

PEAK = """
kernel void peak(global float *y, int turns) {
    float16 a[14];
    const float16 b = (float16)(y[0]), c = vload16(0, y);
    for (int i = 0; i < 14; ++i) a[i] = (float16)(i);
    for (int k = 0; k < turns; ++k) {
        #pragma unroll
        for (int i = 0; i < 14; ++i) a[i] = fma(a[i], b, c);
    }
    float16 s = 0;
    for (int i = 0; i < 14; ++i) s += a[i];
    vstore16(s, get_global_id(0), y);
}
"""


@dataclass(frozen=True)
class Case:
    """A square convolution (M filters of K x K) or pooling (M = 0), with 'same' padding unless `pad` says otherwise."""

    name: str
    c: int
    size: int
    m: int
    k: int = 3
    stride: int = 1
    group: int = 1
    op: str = "Conv"
    pad: int | None = None

    def arrays(self) -> list[Any]:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((1, self.c, self.size, self.size), np.float32)
        if self.op == "Pool":
            return [x]
        shape = (self.c, self.m // self.group) if self.op == "ConvTranspose" else (self.m, self.c // self.group)
        if self.op == "IntegerConv":
            x = rng.integers(0, 256, x.shape).astype(np.uint8)
            w = rng.integers(-127, 128, (*shape, self.k, self.k)).astype(np.int8)
            return [x, w, np.zeros(self.m, np.int32), np.uint8(120).reshape(())]
        return [x, rng.standard_normal((*shape, self.k, self.k), np.float32), np.zeros(self.m, np.float32)]

    def bytes(self) -> Case:
        """The same of bytes less a zero point."""
        return replace(self, op="IntegerConv")

    def attrs(self) -> dict[str, Any]:
        pad = self.k // 2 if self.pad is None else self.pad
        attrs: dict[str, Any] = {"strides": (self.stride,) * 2, "pads": (pad,) * 4, "dilations": (1, 1)}
        if self.op == "Pool":
            attrs |= {"kind": "max", "kernel": (self.k, self.k), "ceil_mode": False, "count_include_pad": False}
            return attrs | {"p": 2, "with_indices": False, "storage_order": 0}
        return attrs | {"group": self.group} | ({"output_padding": (0, 0)} if self.op == "ConvTranspose" else {})


CASES = (
    Case("ResNet first", 3, 224, 64, 7, 2),
    Case("ResNet 56", 64, 56, 64),
    Case("ResNet 28", 128, 28, 128),
    Case("ResNet 14", 256, 14, 256),
    Case("ResNet 7", 512, 7, 512),
    Case("ResNet 56 to 28", 64, 56, 128, 3, 2),
    Case("ResNet 14 to 7", 256, 14, 512, 3, 2),
    Case("ResNet shortcut", 64, 56, 128, 1, 2, pad=0),
    Case("ResNet-50 56 expand", 64, 56, 256, 1),
    Case("ResNet-50 14 reduce", 1024, 14, 256, 1),
    Case("MobileNet first", 3, 224, 32, 3, 2),
    Case("MobileNet 112 project", 32, 112, 16, 1),
    Case("MobileNet 112 expand", 16, 112, 96, 1),
    Case("MobileNet 56 project", 96, 56, 24, 1),
    Case("MobileNet 56 expand", 24, 56, 144, 1),
    Case("MobileNet 28 expand", 32, 28, 192, 1),
    Case("MobileNet 14 expand", 64, 14, 384, 1),
    Case("MobileNet 14 project", 576, 14, 96, 1),
    Case("MobileNet 7 expand", 160, 7, 960, 1),
    Case("MobileNet 7 project", 960, 7, 320, 1),
    Case("MobileNet last", 320, 7, 1280, 1),
    Case("squeeze and excite", 960, 1, 240, 1),
    Case("image output 9x9", 32, 224, 3, 9),
    Case("image output 3x3", 64, 112, 1),
    Case("depthwise 112", 32, 112, 32, 3, 1, 32),
    Case("depthwise 112 to 56", 96, 112, 96, 3, 2, 96),
    Case("depthwise 56", 144, 56, 144, 3, 1, 144),
    Case("depthwise 28", 192, 28, 192, 3, 1, 192),
    Case("depthwise 14", 576, 14, 576, 3, 1, 576),
    Case("depthwise 7", 960, 7, 960, 3, 1, 960),
    Case("depthwise 5x5 28", 120, 28, 120, 5, 1, 120),
    Case("ResNeXt groups", 128, 56, 128, 3, 1, 32),
    Case("max pool 112", 64, 112, 0, 3, 2, op="Pool"),
    Case("inception pool 28", 192, 28, 0, 3, 1, op="Pool"),
    Case("mask output 2x2", 24, 120, 1, 2, 2, op="ConvTranspose", pad=0),
    Case("decoder 2x2", 128, 28, 64, 2, 2, op="ConvTranspose", pad=0),
    Case("decoder 4x4", 64, 56, 32, 4, 2, op="ConvTranspose", pad=1),
)


def find_peak(rt: Runtime) -> float:
    """Multiply-add peak in FLOP/s of `rt`'s device with vectors of 16."""
    turns, items = 100_000, rt.info.compute_units * (1 if rt.info.is_cpu else 2048)
    kernel = cl.Kernel(rt.build(PEAK, "", "peak"), "peak")
    y = cl.Buffer(rt.context, cl.mem_flags.READ_WRITE, items * 64)
    cl.enqueue_fill_buffer(rt.queue, y, np.float32(0.5), 0, items * 64)
    kernel.set_args(y, np.int32(turns))
    queue = cl.CommandQueue(rt.context, rt.device, properties=cl.command_queue_properties.PROFILING_ENABLE)
    best = float("inf")
    for _ in range(5):
        event = cl.enqueue_nd_range_kernel(queue, kernel, (items,), (1,) if rt.info.is_cpu else None)
        event.wait()
        best = min(best, (event.profile.end - event.profile.start) * 1e-9)
    return turns * items * 14 * 32 / best


def measure(rt: Runtime, kernel: Kernel, case: Case, every: bool, peak: float) -> None:
    """Print the times of one kernel on one case."""
    arrays = case.arrays()
    const = tuple(range(1, len(arrays)))
    plain = make_node(case.op, case.attrs(), arrays, const=const)
    if kernel.refuse(kernel.problem(plain, rt.info)) is not None:
        return
    binding = kernel.bindings(kernel.problem(plain, rt.info))[0]
    node = make_node(case.op, case.attrs(), arrays, const=const, binding=binding)
    problem = kernel.problem(node, rt.info)
    cost = node.cost()
    expected = kernel.seconds(problem, cost)
    for params in kernel.points(problem) if every else [kernel.defaults(problem)]:
        s = time_node(rt, kernel, node, arrays, params, seconds=0.05)
        gflops = cost.flops / s * 1e-9
        print(
            f"{case.name:24}{kernel.name:20}{s * 1e6:9.1f} us {gflops:7.1f} GFLOP/s {gflops * 1e9 / peak:6.1%}"
            f"  expected {expected * 1e6:8.1f} us  {params}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="as OPALITE_DEVICE")
    parser.add_argument("--all", action="store_true", help="every legal parameter set")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--kernel", default="", help="kernels whose name holds this text")
    parser.add_argument("--bytes", action="store_true", help="convolutions of 8-bit integers instead")
    args = parser.parse_args()
    rt = find_runtime(args.device)
    peak = find_peak(rt)
    print(f"{rt.info.name}, {rt.info.compute_units} compute units, {peak * 1e-9:.0f} GFLOP/s peak")
    cases = [case.bytes() for case in CASES if case.op == "Conv"] if args.bytes else CASES
    for case in cases:
        if args.only in case.name:
            for kernel in kernels_for(case.op):
                if args.kernel in kernel.name:
                    measure(rt, kernel, case, args.all, peak)


if __name__ == "__main__":
    main()
