"""Attention of one GPU on sizes of common networks, beside PyTorch's scaled_dot_product_attention in the same process.

    python -m benchmarks.gpu_attention [--only TEXT,TEXT] [--tiles 4] [--workers 8] [--out FOLDER]

A line for each kernel that takes a case with its untuned parameters, and for `--tiles` others: time in kernels,
TFLOP/s, GB/s (operands and result once), share of PyTorch's best time in a CUDA graph, time with launches back to back,
relative error beside float32 of PyTorch on the GPU. Needs PyTorch with CUDA for the peer and the errors; without it,
times alone. `--workers` processes compile beforehand.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from opalite.cl.queue.event_times import read_times
from opalite.cl.runtime import Runtime, find_runtime
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.kernels.kernel_sources import option_text, program_text
from opalite.ops.strided_view import Movement
from opalite.run.execute.single_node_executable import SingleNodeExecutable

from .gpu_kernels import least_seconds

Params = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Attention of a network: batch, heads, heads of keys, queries, keys, elements of a head."""

    name: str
    sizes: tuple[int, int, int, int, int, int]
    half: bool = True
    mask: tuple[int, ...] | None = None
    causal: bool = False

    def node(self, rng: Any) -> tuple[Node, list[Any]]:
        """The node and its arrays, queries as [B,S,H,D]; without `rng`, arrays that hold no memory."""
        b, h, g, s, t, d = self.sizes

        def random(*shape: int) -> Any:
            return np.broadcast_to(np.float32(0), shape) if rng is None else rng.standard_normal(shape, np.float32)

        arrays = [random(b, s, h, d), random(b, g, t, d), random(b, g, t, d)]
        arrays.append(None if self.mask is None else random(*self.mask))
        views = (Movement.of(arrays[0].shape).transpose((0, 2, 1, 3)).view, None, None)
        attrs = {"scale": d**-0.5, "causal": self.causal, "softcap": 0.0, "views": views, "out_axes": (0, 2, 1, 3)}
        return make_node("Attention", attrs, arrays, precision=DType.FLOAT16 if self.half else None), arrays

    @property
    def flops(self) -> float:
        """Operations of both products; of those before the diagonal, if it is causal."""
        b, h, _, s, t, d = self.sizes
        return 4.0 * b * h * s * t * d * (0.5 if self.causal else 1)

    @property
    def nbytes(self) -> float:
        """Bytes of operands and result."""
        b, h, g, s, t, d = self.sizes
        return (2.0 if self.half else 4.0) * (2 * b * h * s * d + 2 * b * g * t * d + np.prod(self.mask or (0,)))


def _pair(name: str, *sizes: int, **more: Any) -> tuple[Case, Case]:
    assert len(sizes) == 6
    return Case(f"{name} fp16", sizes, **more), Case(f"{name} fp32", sizes, half=False, **more)


CASES = (
    *_pair("sd 64x64 heads of 40", 1, 8, 8, 4096, 4096, 40),
    *_pair("whisper 1500", 1, 6, 6, 1500, 1500, 64),
    *_pair("token after 8192, 4 of 32 heads of 64", 1, 32, 4, 1, 8192, 64),
    *_pair("square 4096", 1, 8, 8, 4096, 4096, 64),
    *_pair("dino 1370", 1, 12, 12, 1370, 1370, 64),
    *_pair("token after 8192, 8 of 32 heads of 128", 1, 32, 8, 1, 8192, 128),
    *_pair("prefill 2048", 1, 32, 4, 2048, 2048, 64, causal=True),
    *_pair("sam 4096 bias", 1, 12, 12, 4096, 4096, 64, mask=(1, 12, 4096, 4096)),
    *_pair("sam windows bias", 25, 12, 12, 196, 196, 64, mask=(25, 12, 196, 196)),
    *_pair("swin windows bias", 49, 3, 3, 64, 64, 32, mask=(1, 3, 64, 64)),
    *_pair("token after 2048, 4 of 32 heads of 64", 1, 32, 4, 1, 2048, 64),
    *_pair("sd 64x64 text", 1, 8, 8, 4096, 77, 40),
    *_pair("prefill 512", 1, 32, 4, 512, 512, 64, causal=True),
    *_pair("vit small 197 b8", 8, 6, 6, 197, 197, 64),
    *_pair("vit 197", 1, 12, 12, 197, 197, 64),
    *_pair("token after 8192, 32 heads of 96", 1, 32, 32, 1, 8192, 96),
    *_pair("prefill 2048 heads of 128", 1, 32, 8, 2048, 2048, 128, causal=True),
    *_pair("sd 32x32 heads of 80", 1, 8, 8, 1024, 1024, 80),
    *_pair("token after 2048, 32 heads of 80", 1, 32, 32, 1, 2048, 80),
    *_pair("heads of 256", 1, 8, 8, 1024, 1024, 256),
    *_pair("sd 16x16 heads of 160", 1, 8, 8, 256, 256, 160),
    *_pair("bert 384", 1, 12, 12, 384, 384, 64),
    *_pair("8 tokens after 8192, 4 of 32 heads of 64", 8, 32, 4, 1, 8192, 64),
)

MMA = ("QW", "KW", "QB", "KEYS", "STAGES", "PARTS")
MMA_POINTS = (
    (4, 1, 1, 64, 1, 1),
    (4, 1, 2, 32, 1, 1),
    (4, 1, 1, 32, 1, 1),
    (4, 1, 2, 32, 2, 1),
    (4, 1, 1, 32, 2, 1),
    (4, 1, 1, 64, 2, 1),
    (2, 1, 2, 32, 1, 1),
    (4, 1, 2, 64, 1, 1),
    (2, 2, 1, 32, 1, 1),
    (4, 1, 1, 16, 1, 1),
    (2, 1, 1, 16, 2, 1),
    (1, 4, 1, 16, 1, 1),
    (2, 1, 1, 64, 1, 1),
    (1, 1, 1, 16, 2, 1),
)
MMA_FEW = tuple(
    (1, kw, 1, keys, stages, parts)
    for parts in (64, 32, 16)
    for kw, keys, stages in ((2, 16, 2), (4, 16, 1), (4, 16, 2), (2, 32, 1), (1, 32, 2), (1, 16, 2))
)
FLOAT = ("TX", "TY", "RM", "KN", "TILES", "PARTS")
FLOAT_POINTS = (
    (8, 8, 8, 6, 2, 1),
    (8, 8, 8, 6, 2, 2),
    (8, 8, 8, 6, 2, 4),
    (8, 8, 8, 6, 2, 8),
    (8, 8, 4, 4, 2, 1),
    (8, 8, 4, 4, 2, 4),
    (8, 8, 4, 4, 1, 1),
    (8, 8, 8, 4, 2, 4),
    (10, 8, 8, 4, 1, 4),
    (16, 8, 4, 2, 1, 4),
)
SPLIT = ("WG", "KEYS", "ROWS", "PARTS")
SPLIT_POINTS = tuple(
    (wg, keys, rows, parts) for parts in (32, 64, 16) for rows in (8, 1) for wg, keys in ((128, 64), (64, 32))
)


def variants(case: Case, node: Node, rt: Runtime, tiles: int) -> Iterator[tuple[Kernel, Params]]:
    """(kernel, parameters) to measure: untuned, then others that are legal."""
    for kernel in kernels_for("Attention"):
        p = kernel.problem(node, rt.info)
        if kernel.refuse(p) is not None:
            continue
        first = dict(kernel.defaults(p))
        yield kernel, first
        few = case.sizes[3] == 1
        names, points = {
            "AttentionFlashMma": (MMA, MMA_FEW if few else MMA_POINTS),
            "AttentionFlashGpu": (FLOAT, () if few or case.half else FLOAT_POINTS),
            "AttentionSplitKv": (SPLIT, SPLIT_POINTS if few else ()),
        }.get(kernel.name, ((), ()))
        others = [first | dict(zip(names, point, strict=True)) for point in points]
        legal = [other for other in others if other != first and kernel.illegal(p, other) is None]
        yield from ((kernel, other) for other in legal[:tiles])


def peer(case: Case, arrays: list[Any]) -> tuple[float, str, Any]:
    """(microseconds, backend, the answer in float32) of PyTorch."""
    import warnings

    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    warnings.simplefilter("ignore")  # backends that do not take a case
    torch.backends.cuda.matmul.allow_tf32 = False
    kind = torch.float16 if case.half else torch.float32
    q, k, v = (torch.from_numpy(a).cuda().to(kind) for a in arrays[:3])
    q = q.transpose(1, 2)
    mask = None if arrays[3] is None else torch.from_numpy(arrays[3]).cuda().to(kind)
    gqa = {"enable_gqa": True} if case.sizes[1] != case.sizes[2] else {}

    def attend(*operands: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=case.causal, **gqa)

    best, name = float("inf"), "none"
    for backend in (
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ):
        try:
            with sdpa_kernel([backend]):
                took = _graph_time(torch, lambda: attend(q, k, v, mask))
        except Exception:
            continue
        if took < best:
            best, name = took, backend.name.split("_")[0].lower()
    with sdpa_kernel([SDPBackend.MATH]):
        exact = attend(*(None if x is None else x.float() for x in (q, k, v, mask)))
    return best * 1e6, name, exact.transpose(1, 2).cpu().numpy()


def _graph_time(torch: Any, call: Callable[[], Any]) -> float:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            call()
    times = []
    for _ in range(8):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / 5)
    return min(times)


def measure(rt: Runtime, one: SingleNodeExecutable, kernel: Kernel, params: Params) -> tuple[float, float, Any]:
    """(least seconds of a run in five series of about two milliseconds, least seconds in kernels, the answer)."""
    prepared = one.prepare(kernel, params)
    got = prepared.run()[0]

    def in_kernels() -> float:
        events = [launch.enqueue(rt.profiling_queue) for launch in prepared.launches]
        rt.profiling_queue.finish()
        return sum(read_times(event, rt.info.name).seconds for event in events)

    return least_seconds(rt, prepared.launches), min(in_kernels() for _ in range(8)), got


def build(rt: Runtime, cases: list[Case], tiles: int, share: str) -> None:
    """Compiles every n-th program, from the i-th on, into the cache."""
    first, step = map(int, share.split("/"))
    specs: dict[tuple[str, str], str] = {}
    for case in cases:
        node, _ = case.node(None)
        for kernel, params in variants(case, node, rt, tiles):
            for launch in kernel.launch(kernel.problem(node, rt.info), params):
                source = launch.source or kernel.source
                specs.setdefault((program_text(source, launch.prelude), option_text(launch.defines)), source)
    for text, options in list(specs)[first::step]:
        try:
            rt.build(text, options, specs[text, options])
        except Exception:
            traceback.print_exc()


def run(rt: Runtime, case: Case, tiles: int) -> Iterator[dict[str, Any]]:
    """A record for PyTorch and for each variant."""
    node, arrays = case.node(np.random.default_rng(0))
    theirs, want = 0.0, None
    if find_spec("torch") is not None:
        try:
            theirs, backend, want = peer(case, arrays)
            yield {"case": case.name, "kernel": f"torch {backend}", "us": theirs}
        except Exception as e:
            yield {"case": case.name, "kernel": "torch", "failed": str(e)[:200]}
    one = SingleNodeExecutable(rt, node, arrays)
    for kernel, params in variants(case, node, rt, tiles):
        record: dict[str, Any] = {"case": case.name, "kernel": kernel.name, "params": params}
        try:
            seconds, busy, got = measure(rt, one, kernel, params)
            ratio = busy * 1e6 / theirs if theirs else 0.0
            record |= {"us": busy * 1e6, "launched_us": seconds * 1e6, "ratio": ratio}
            if want is not None:
                record["error"] = float(np.linalg.norm(got.astype(np.float32) - want) / np.linalg.norm(want))
        except Exception as e:
            record["failed"] = f"{type(e).__name__}: {str(e)[:300]}"
        yield record


def show(case: Case, record: dict[str, Any]) -> None:
    """One line."""
    head = f"{case.name:42.42} {record['kernel']:18.18}"
    if "failed" in record:
        print(head, record["failed"].replace("\n", " ")[:200], flush=True)
        return
    us = record["us"]
    rates = f"{us:9.1f} us {case.flops / us * 1e-6:7.1f} TFLOP/s {case.nbytes / us * 1e-3:6.0f} GB/s"
    more = ""
    if "params" in record:
        params = ",".join(f"{k}={v}" for k, v in record["params"].items())
        more = (
            f" x{record['ratio']:.2f} ({record['launched_us']:.1f} us launched) {record.get('error', 0.0):.0e} {params}"
        )
    print(f"{head} {rates}{more}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--only", default="", help="cases whose name holds one of these texts, with commas")
    parser.add_argument("--tiles", type=int, default=4, help="parameters beside the untuned ones")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile beforehand")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds after which no case begins")
    parser.add_argument("--out", type=Path, help="folder for attention.jsonl")
    parser.add_argument("--build", default="", metavar="I/N", help="compile a share of the programs and end")
    options = parser.parse_args()
    started = time.monotonic()
    cases = [case for case in CASES if any(text in case.name for text in options.only.split(","))]
    rt = find_runtime(options.device)
    if options.build:
        build(rt, cases, options.tiles, options.build)
        return
    if options.workers:
        again = [sys.executable, "-m", "benchmarks.gpu_attention", "--device", options.device, "--only", options.only]
        again += ["--tiles", str(options.tiles), "--build"]
        children = [subprocess.Popen([*again, f"{i}/{options.workers}"]) for i in range(options.workers)]
        for child in children:
            try:
                child.wait(max(0.1, started + options.budget / 2 - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
        print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)
    for case in cases:
        if time.monotonic() - started > options.budget:
            print(f"left out from {case.name} on: the budget is spent", flush=True)
            break
        for record in run(rt, case, options.tiles):
            show(case, record)
            if options.out:
                with (options.out / "attention.jsonl").open("a") as file:
                    file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
