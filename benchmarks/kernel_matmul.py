"""GFLOP/s of the matrix product kernels on the shapes of common networks.

    python -m benchmarks.kernel_matmul [--device cpu] [--all]

`--all` measures every legal parameter set of every kernel instead of the untuned defaults.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from opalite.cl.runtime import Runtime, find_runtime
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node, time_node
from opalite.kernels.kernel import Kernel, kernels_for


@dataclass(frozen=True)
class Case:
    """One product: batch, rows, inner size, columns, whether b is constant and stored transposed."""

    name: str
    m: int
    k: int
    n: int
    batch: int = 1
    const: bool = True
    trans_b: bool = False

    def arrays(self) -> list[Any]:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((self.batch, self.m, self.k), np.float32)
        b = (self.n, self.k) if self.trans_b else (self.k, self.n)
        return [a, rng.standard_normal(b if self.const else (self.batch, *b), np.float32)]

    def node(self, arrays: list[Any]) -> Node:
        const = (1,) if self.const else ()
        return make_node("MatMul", {"trans_a": False, "trans_b": self.trans_b}, arrays, const=const)

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.k * self.n


CASES = (
    Case("MiniLM projection", 128, 384, 384),
    Case("MiniLM expand", 128, 384, 1536),
    Case("MiniLM contract", 128, 1536, 384),
    Case("ViT-tiny expand", 197, 192, 768),
    Case("ViT-tiny contract", 197, 768, 192),
    Case("BERT expand", 384, 768, 3072),
    Case("MobileNet classifier", 1, 1280, 1000),
    Case("AlexNet fc7", 1, 4096, 4096),
    Case("four rows", 4, 1280, 1000),
    Case("attention scores", 128, 32, 128, 12, const=False, trans_b=True),
    Case("attention output", 128, 128, 32, 12, const=False),
    Case("ViT scores", 197, 64, 197, 3, const=False, trans_b=True),
    Case("ViT output", 197, 197, 64, 3, const=False),
    Case("variable b", 256, 512, 512, const=False),
    Case("variable square", 1024, 1024, 1024, const=False),
    Case("variable row", 1, 1024, 1024, const=False),
    Case("variable row, transposed", 1, 1024, 1024, const=False, trans_b=True),
)


def measure(rt: Runtime, kernel: Kernel, case: Case, params: dict[str, Any] | None = None) -> tuple[float, float]:
    """(microseconds, GFLOP/s) of one case."""
    arrays = case.arrays()
    seconds = time_node(rt, kernel, case.node(arrays), arrays, params)
    return seconds * 1e6, case.flops / seconds * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="as OPALITE_DEVICE")
    parser.add_argument("--all", action="store_true", help="every legal parameter set")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    args = parser.parse_args()
    rt = find_runtime(args.device)
    print(f"{rt.info.name}, {rt.info.compute_units} compute units")
    for case in CASES:
        if args.only not in case.name:
            continue
        node = case.node(case.arrays())
        for kernel in kernels_for("MatMul"):
            if kernel.refuse(kernel.problem(node, rt.info)) is not None:
                continue
            points = (
                list(kernel.points(kernel.problem(node, rt.info)))
                if args.all
                else [kernel.defaults(kernel.problem(node, rt.info))]
            )
            for params in points:
                us, gflops = measure(rt, kernel, case, params)
                print(f"{case.name:26}{kernel.name:14}{us:10.1f} us {gflops:8.1f} GFLOP/s  {params}", flush=True)


if __name__ == "__main__":
    main()
