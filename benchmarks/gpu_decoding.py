"""Compares a decoder of 1 billion parameters on a GPU with PyTorch's CUDA graphs: single tokens, and a prefill.


    python -m benchmarks.gpu_decoding --bits 0 4 --json decoding.json
    python -m benchmarks.gpu_decoding --model llama_tiny --device cpu --prompt 24 --prefill 96    # a try without a GPU

Both have the same random weights (benchmarks/models/llama.py); PyTorch has 4-bit weights dequantised. Opalite decodes
with a state that grows in place, in `--precision`; PyTorch in halves with caches of a fixed length, by a CUDA graph and
by a compiled and then captured one, of which the faster counts. A step is wall clock from the token to its logits on
the host; a prefill leaves its logits on the device. `written` is a greedily generated token, AT_ONCE tokens on the
device between two waits of the host, for both. `alike`: how many of them equal the tokens of single steps. `error`:
largest difference of a step's logits from PyTorch's float32, over the largest of them. `share`: bytes of weights and
cache over the time of a token, over the device's measured bandwidth; `written_gb_s` likewise for a written token.
Figures are printed and saved as soon as known. Random numbers repeat after a million, 4-bit rows after 512.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import onnx
import opalite
from onnx import numpy_helper
from opalite.run.report.measure_peaks import measure_bandwidth

from .decoders import cache_bytes, weight_bytes
from .models.llama import LLAMA_1B, LLAMA_TINY, Packed, Shape, decoder, save, step_feeds

SHAPES = {"llama_1b": LLAMA_1B, "llama_tiny": LLAMA_TINY}
BLOCK = 32
DRAWN = (1 << 20) + 7
"""Random numbers of the weights; an odd number, so that no two columns are the same."""
WARM = 90
"""Steps that do not count: plans and kernels are made, and launches settle, in these."""
AT_ONCE = 32
TOKEN = "logits/argmax"


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="llama_1b")
    parser.add_argument("--layers", type=int, help="in place of the model's own number")
    parser.add_argument("--bits", type=int, nargs="+", default=[0, 4], help="of the weights; 0 for floats")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--steps", type=int, default=128, help="tokens that are decoded one by one")
    parser.add_argument("--written", type=int, default=160, help="tokens that are written greedily after those")
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=9, help="of the prefill")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="list the N dearest launches of a step")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def feeds_of(ids: Any, held: int) -> dict[str, Any]:
    """Inputs besides the caches."""
    count = ids.shape[1]
    mask, positions = np.ones((1, held + count), np.int64), np.arange(held, held + count)[None]
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


Tell = Callable[..., None]
"""Is given figures by name as they are known."""


def opalite_times(path: Path, shape: Shape, options: argparse.Namespace, tokens: Any, tell: Tell) -> list[Any]:
    """The logits of every counted step."""
    begun = time.perf_counter()
    told = opalite.SessionOptions()
    told.add_session_config_entry("opalite.argmax", "logits")
    session = opalite.InferenceSession(str(path), told, device=options.device, precision=options.precision)
    state = session.state(reserve=options.prompt + WARM + options.steps + options.written + 40)
    state.run(feeds_of(tokens[:, : options.prompt], 0))
    tell(first_s=time.perf_counter() - begun)
    times, launch_times, logits = [], [], []
    for i in range(WARM + options.steps):
        if i in (8, 48, 52):
            session.settle()
        at = options.prompt + i
        started = time.perf_counter()
        found = state.run(feeds_of(tokens[:, at : at + 1], at), ["logits"])[0]
        times.append(1e3 * (time.perf_counter() - started))
        launch_times.append(1e3 * session.last_timing.compute_s)
        logits.append(found[0, -1].astype(np.float32))
        if i == 0:
            tell(second_s=time.perf_counter() - begun)
    tell(
        warm_s=time.perf_counter() - begun,
        token_ms=median(times[WARM:]),
        longest_ms=max(times[WARM:]),
        launches_ms=median(launch_times[WARM:]),
        copies=state.copies,
        strategy=session.last_timing.strategy,
        launches=next(line.strip() for line in str(session.explain()).splitlines() if "launches:" in line),
        bandwidth_gb_s=measure_bandwidth(session.runtime) / 1e9,
    )
    write(state, tokens[:, -1:], options.written, tell)
    if options.prefill:
        ids = np.resize(tokens, (1, options.prefill))
        times = []
        long = session.state(reserve=options.prefill + 8)
        for i in range(2 + options.repeats):
            long.reset()
            started = time.perf_counter()
            long.run(feeds_of(ids, 0), on_device=True)
            times.append(1e3 * (time.perf_counter() - started))
            if i == 0:
                tell(first_prefill_s=times[0] / 1e3)
        tell(prefill_ms=median(times[2:]), prefill_copies=long.copies)
    if options.profile:
        tell(profile=dearest(session, step_feeds(shape, options.prompt, 1), options.profile))
        if options.prefill:
            tell(prefill_profile=dearest(session, step_feeds(shape, 0, options.prefill), options.profile))
    return logits[WARM:]


def write(state: Any, token: Any, count: int, tell: Tell) -> None:
    """Generates `count` tokens greedily, and the first of them again in single steps."""
    begin, times, found = len(state), [], []
    for at in range(begin, begin + count - AT_ONCE + 1, AT_ONCE):
        started = time.perf_counter()
        feeds = [feeds_of(token, at + i) for i in range(AT_ONCE)]
        for later in feeds[1:]:
            del later["input_ids"]
        written = [f[0] for f in state.chain(feeds, {"input_ids": TOKEN}, [TOKEN])]
        times.append(1e3 * (time.perf_counter() - started) / AT_ONCE)
        if not found:
            first = token
        found += [int(t.item()) for t in written]
        token = written[-1]
    if not found:
        return
    tell(written_ms=median(times[1:] or times), went_ahead=state.ran_multi_step, longest_written_ms=max(times))
    state.truncate(begin)
    token, alike = first, 0
    for want in found[: 2 * AT_ONCE]:
        token = state.run(feeds_of(token, len(state)), [TOKEN])[0]
        alike += int(token.item()) == want
    tell(alike=f"{alike} of {min(len(found), 2 * AT_ONCE)}")


def dearest(session: Any, feeds: Any, count: int) -> list[str]:
    """The launches that take most of a run on given caches, by kernel and by node."""
    profile = session.profile(feeds, 3)
    kernels = [f"{r.name}: {r.launches} launches, {1e6 * r.seconds:.1f} us" for r in profile.by_kernel()]
    nodes = sorted(profile.by_node(), key=lambda r: -r.seconds)[:count]
    return [*kernels, *(f"{r.name}: {1e6 * r.seconds:.1f} us" for r in nodes)]


class Weights:
    """A decoder's weights in the order in which its layers take them."""

    def __init__(self, path: Path, shape: Shape) -> None:
        model = onnx.load(path)
        self._shape = shape
        self._arrays = {w.name: w for w in model.graph.initializer}
        self.scales = [self._array(n) for n in self._arrays if n.startswith("scale") and not n.startswith("scales")]
        self.embedding = self._array(next(n for n in self._arrays if n.startswith("embedding")))
        self.products = [self._product(node) for node in model.graph.node if node.op_type in ("MatMul", "MatMulNBits")]
        self.products = [p for p in self.products if p is not None]

    def _array(self, name: str) -> Any:
        return numpy_helper.to_array(self._arrays[name])

    def _product(self, node: Any) -> Any:
        """[K, N], or its packed form; None for a product of two activations."""
        if node.op_type == "MatMul":
            return self._array(node.input[1]) if node.input[1] in self._arrays else None
        sizes = {a.name: a.i for a in node.attribute}
        return Packed(self._array(node.input[1]), self._array(node.input[2]), sizes["K"])


def torch_times(path: Path, shape: Shape, options: argparse.Namespace, tokens: Any, tell: Tell) -> list[Any]:
    """The logits of the counted steps in float32; figures are PyTorch's in halves."""
    import torch

    from .torch_llama import Llama, captures

    weights = Weights(path, shape)
    length = options.prompt + WARM + options.steps + options.written
    given = torch.as_tensor(tokens, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.inference_mode():
        wide = Llama(weights, shape, length, torch.float32)
        seen = length - options.written
        logits = wide(given[:, :seen], torch.arange(seen, device="cuda"), True)[0].float().cpu().numpy()
        wanted = list(logits[options.prompt + WARM :])
        del wide
        torch.cuda.empty_cache()
        net = Llama(weights, shape, length, torch.float16)
        net(given[:, : options.prompt], torch.arange(options.prompt, device="cuda"), True)
        ids, position = given[:, :1].clone(), torch.tensor([options.prompt], device="cuda")
        begun = time.perf_counter()
        ways = captures(lambda: net(ids, position, False), lambda: position.fill_(options.prompt))
        tell(torch_prepared_s=time.perf_counter() - begun)
        medians = {}
        for name, (step, found) in ways.items():
            times: list[float] = []
            for i in range(WARM + options.steps):
                at = options.prompt + i
                started = time.perf_counter()
                ids.copy_(given[:, at : at + 1])
                position.fill_(at)
                step()
                found.cpu()
                times.append(1e3 * (time.perf_counter() - started))
            medians[name] = median(times[WARM:])
        tell(torch_token_ms=min(medians.values()), **{f"torch_{n}_token_ms": ms for n, ms in medians.items()})
        if options.written:
            tell(torch_written_ms=torch_written(net, length - options.written, options.written))
        if options.prefill:
            del net
            torch.cuda.empty_cache()
            net = Llama(weights, shape, options.prefill, torch.float16)
            ids = torch.as_tensor(np.resize(tokens, (1, options.prefill)), device="cuda")
            positions = torch.arange(options.prefill, device="cuda")
            ways = captures(lambda: net(ids, positions, True), lambda: None)
            timings = {n: timed(run, torch.cuda.synchronize, options.repeats) for n, (run, _) in ways.items()}
            tell(torch_prefill_ms=min(timings.values()), **{f"torch_{n}_prefill_ms": t for n, t in timings.items()})
    return wanted


def torch_written(net: Any, begin: int, count: int) -> float:
    """Milliseconds per token if each follows from the last one on the GPU; the host waits every AT_ONCE tokens."""
    import torch

    from .torch_llama import captures

    ids, position = torch.zeros((1, 1), dtype=torch.long, device="cuda"), torch.tensor([begin], device="cuda")
    history = torch.zeros(begin + count + 8, dtype=torch.long, device="cuda")

    def step() -> Any:
        ids.copy_(net(ids, position, False)[:, -1:].argmax(-1))
        history.index_copy_(0, position, ids[0])
        position.add_(1)
        return ids

    medians = []
    for run, _ in captures(step, lambda: position.fill_(begin)).values():
        position.fill_(begin)
        times: list[float] = []
        for _ in range(count // AT_ONCE):
            started = time.perf_counter()
            for _ in range(AT_ONCE):
                run()
            history.cpu()
            times.append(1e3 * (time.perf_counter() - started) / AT_ONCE)
        medians.append(median(times[1:] or times))
    return min(medians)


def timed(run: Callable[[], Any], finish: Callable[[], Any], repeats: int) -> float:
    """Median milliseconds until it has finished."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        finish()
        times.append(1e3 * (time.perf_counter() - started))
    return median(times)


def measure(bits: int, options: argparse.Namespace, folder: Path, tell: Tell) -> None:
    """One width of weights."""
    shape = SHAPES[options.model]
    shape = replace(shape, layers=options.layers or shape.layers)
    begun = time.perf_counter()
    path = save(decoder(shape, bits=bits, block=BLOCK, drawn=DRAWN), folder / "model.onnx")
    tell(model=options.model, layers=shape.layers, bits=bits or 16, made_s=time.perf_counter() - begun)
    total = options.prompt + WARM + options.steps + 1
    tokens = np.random.default_rng(3).integers(0, shape.words, (1, total))
    figures: dict[str, Any] = {}

    def tell_and_keep(**found: Any) -> None:
        figures.update(found)
        tell(**found)

    found = opalite_times(path, shape, options, tokens, tell_and_keep)
    gc.collect()
    halves = 0.5 if options.precision.startswith("fp16") else 1.0
    read = weight_bytes(shape, bits, BLOCK) * (1.0 if bits else halves)
    read += cache_bytes(shape, options.prompt + WARM + options.steps // 2) * halves
    tell(read_mb=read / 1e6, share=read / (1e6 * figures["token_ms"]) / figures["bandwidth_gb_s"])
    if options.written:
        tell(written_gb_s=read / (1e6 * figures["written_ms"]))
    if find_spec("torch") is not None and options.device != "cpu":
        wanted = torch_times(path, shape, options, tokens, tell_and_keep)
        error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, wanted, strict=True))
        tell(error=error, ratio=figures["token_ms"] / figures["torch_token_ms"])
        if options.written:
            tell(written_ratio=figures["written_ms"] / figures["torch_written_ms"])


def main() -> None:
    """See the module's docstring."""
    options = parse_options()
    rows: list[dict[str, Any]] = []

    def tell(**found: Any) -> None:
        rows[-1].update(found)
        shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items())
        print("  ".join(shown), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))

    for bits in options.bits:
        rows.append({})
        with tempfile.TemporaryDirectory() as folder:
            measure(bits, options, Path(folder), tell)


if __name__ == "__main__":
    main()
