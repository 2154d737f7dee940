"""Times PyTorch (eager, CUDA graph, compiled) with the input on the device; the best memory format counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch._inductor.config

WARM_UP = 10


def reference(model: Any, x: Any) -> Any:
    """The float64 output of `model`, as a NumPy array."""
    with torch.no_grad():
        return model.double().cuda()(_given(x, torch.float64)).cpu().numpy()


def _given(x: Any, dtype: Any) -> Any:
    """The input on the device; whole numbers stay what they are."""
    return x.to("cuda", dtype) if x.is_floating_point() else x.to("cuda")


def error(model: Any, x: Any, dtype: Any, want: Any) -> float:
    """Norm of PyTorch's own difference to `want` in `dtype`, over its norm."""
    with torch.inference_mode():
        got = model.to("cuda", dtype)(_given(x, dtype)).double().cpu().numpy()
    return float(((got - want) ** 2).sum() ** 0.5 / (want**2).sum() ** 0.5)


def measure(model: Any, x: Any, dtype: Any, *, compiled: bool, repeats: int) -> dict[str, float]:
    """Median milliseconds of a run until it has finished, by way of running."""
    found: dict[str, float] = {}
    formats = (torch.contiguous_format, torch.channels_last) if x.dim() == 4 else (torch.contiguous_format,)
    for memory in formats:
        net = model.to("cuda", dtype).to(memory_format=memory)
        given = _given(x, dtype).contiguous(memory_format=memory)
        with torch.inference_mode():
            times = {"eager": _median_ms(lambda n=net, i=given: n(i), repeats)}
            times["graph"] = _median_ms(_capture(net, given), repeats)
            if compiled and memory is formats[-1]:
                torch._inductor.config.compile_threads = 1  # idle workers would disturb the next measurement
                fast = torch.compile(net, mode="reduce-overhead")
                times["compile"] = _median_ms(lambda f=fast, i=given: f(i), repeats)
        for way, ms in times.items():
            found[way] = min(ms, found.get(way, ms))
    return found


def _capture(net: Any, given: Any) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            net(given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(given)
    return graph.replay


def _median_ms(run: Callable[[], Any], repeats: int) -> float:
    for _ in range(WARM_UP):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return median(times) * 1e3
