"""PyTorch's ways to run a network with the input on the device: eager, CUDA graph, compiled, compiled and captured.

Each way gets a new input in each run. A graph reads a buffer, to which the input is copied first, as a program has to.
"""

from __future__ import annotations

import copy
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch._inductor.config

from .gpu_ways import Way

WARM_UP = 3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def reference(model: Any, x: Any) -> Any:
    """The float64 output of `model`, as a NumPy array."""
    with torch.no_grad():
        return model.double().to(DEVICE)(_given(x, torch.float64)).cpu().numpy()


def _given(x: Any, dtype: Any) -> Any:
    """The input on the device; whole numbers stay what they are."""
    return x.to(DEVICE, dtype) if x.is_floating_point() else x.to(DEVICE)


def error(model: Any, x: Any, dtype: Any, want: Any) -> float:
    """Norm of PyTorch's own difference to `want` in `dtype`, over its norm."""
    with torch.inference_mode():
        got = model.to(DEVICE, dtype)(_given(x, dtype)).double().cpu().numpy()
    return float(((got - want) ** 2).sum() ** 0.5 / (want**2).sum() ** 0.5)


def torch_ways(
    model: Any, inputs: Sequence[Any], dtype: Any, *, compiled: bool, until: float | None = None
) -> tuple[dict[str, Way], dict[str, str]]:
    """(ways by name, why others are left out). The name of a way in channels-last format ends with `_last`.

    until: of time.monotonic(), by which a way must be ready.
    """
    torch._inductor.config.compile_threads = torch.get_num_threads()
    ways: dict[str, Way] = {}
    refused: dict[str, str] = {}
    formats = {"": torch.contiguous_format}
    if inputs[0].dim() == 4:
        formats["_last"] = torch.channels_last
    for suffix, memory in formats.items():
        net = copy.deepcopy(model).to(DEVICE, dtype).to(memory_format=memory)
        given = [_given(x, dtype).contiguous(memory_format=memory) for x in inputs]
        made: dict[str, Callable[[], Way]] = {
            "eager": lambda net=net, given=given: _timed(net, given),
            "graph": lambda net=net, given=given: _captured(net, given),
        }
        if compiled and memory is list(formats.values())[-1]:
            # The cost of guards is PyTorch's own in "compile"; a captured graph has none.
            made["compile"] = lambda net=net, given=given: _timed(torch.compile(net, mode="reduce-overhead"), given)
            made["compiled_graph"] = lambda net=net, given=given: _captured(torch.compile(net), given)
        for name, make in made.items():
            try:
                with torch.inference_mode(), _time_limit(until):
                    ways[name + suffix] = make()
                print(f"{name}{suffix} is ready", file=sys.stderr, flush=True)
            except Exception as e:
                refused[name + suffix] = f"{type(e).__name__}: {e}"[:300]
    with suppress(ImportError):
        from torch._inductor.async_compile import shutdown_compile_workers

        shutdown_compile_workers()  # they would disturb the measurements
    return ways, refused


@contextmanager
def _time_limit(until: float | None) -> Iterator[None]:
    """A `with` block that TimeoutError ends at `until`; in the main thread."""

    def end(*_: Any) -> None:
        raise TimeoutError("it was not ready in time")

    if until is None:
        yield
        return
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, until - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def best_formats(times: dict[str, float]) -> dict[str, float]:
    """The least time of each way over the memory formats."""
    found: dict[str, float] = {}
    for name, ms in times.items():
        way = name.removesuffix("_last")
        found[way] = min(ms, found.get(way, ms))
    return found


def _finish() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _timed(net: Any, given: Sequence[Any]) -> Way:
    def run(i: int) -> None:
        with torch.inference_mode():
            net(given[i % len(given)])
        _finish()

    for i in range(WARM_UP):
        run(i)
    return run


def _captured(net: Any, given: Sequence[Any]) -> Way:
    fixed = given[0].clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            net(fixed)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = net(fixed)

    def run(i: int, output: Any = output) -> None:  # the output's memory belongs to the graph
        with torch.inference_mode():
            fixed.copy_(given[i % len(given)])
        graph.replay()
        _finish()

    run(0)
    return run
