"""Times decoding with growing caches: milliseconds per token against onnxruntime, longest step, overhead per step.


    python -m benchmarks.decoding                         # a Llama-like decoder of 110 M in float32 and in 4 bits
    python -m benchmarks.decoding --bits 4 --cache grouped --steps 256 --json decoding.json
    python -m benchmarks.decoding --steps 256 --llama-cpp --prefill 128    # and llama.cpp (benchmarks/llama_cpp.py)

All engines decode the same tokens from an empty cache, in their own processes on the same cores, alternating every 16
steps while the others are stopped (SIGSTOP). The first two steps of a slice do not count, nor those before Opalite's
megakernel is in use; `first_40_ms` is the mean of the first forty steps of each engine, whatever they wait for.
onnxruntime decodes twice: its outputs fed back as arrays, and bound, with caches that stay in place where the model
lets it (benchmarks/ort_decoder.py); `ratio` is to the faster one. `--accuracy-level 4` lets 4-bit products round
activations to 8 bits, for all engines. llama.cpp has the same weights, in its own 4-bit and
8-bit blocks (Q4_0, Q8_0). `prefill`: a prompt into an empty cache, with logits for all of it. `own`: time of a step
outside its launches, transfers included. `GB/s`: bytes of all weights but the embedding's, and of the cache, over the
time of a token; `share`: that rate over the measured bandwidth of a large copy. Counters cover all counted steps.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import signal
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from .models.llama import LLAMA_110M, QWEN2_0_5B, Shape, decoder, past_names, save
from .ort_decoder import OrtDecoder

TURN, WARM = 16, 2
SHAPES = {"llama_110m": LLAMA_110M, "qwen2_0.5b": QWEN2_0_5B}
KINDS = {0: "F32", 4: "Q4_0", 8: "Q8_0"}
"""What llama.cpp calls weights of so many bits."""
Prompt = tuple[int, ...]
"""Asked of an engine: to read these tokens, from an empty cache on."""


def feeds_of(cache: str, tokens: Prompt, past: int) -> dict[str, Any]:
    """Inputs besides the caches for some tokens."""
    feeds = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, past + len(tokens)), np.int64)}
    return feeds if cache == "grouped" else {**feeds, "position_ids": np.arange(past, past + len(tokens))[None]}


def run_opalite(pipe: Connection, path: str, cache: str, threads: int, reserve: int) -> None:
    """Decodes on request; sends (milliseconds, token), and figures of all steps at the end."""
    import opalite
    from opalite.run.report.measure_peaks import measure_bandwidth

    session = opalite.InferenceSession(path, device="cpu")
    state = session.state(reserve=reserve)
    pipe.send(measure_bandwidth(session.runtime))
    counters, own = session.runtime.counters, []
    start = counters.snapshot()
    plans = 0
    told: dict[str, Any] = {}
    token = 1

    def figures() -> dict[str, Any]:
        """Figures of the steps so far."""
        spent_on = counters.snapshot() - start
        return {
            "own_ms": statistics.median(own),
            "plans": session.stats().plans_made - plans,
            "programs": spent_on.programs_built + spent_on.programs_loaded,
            "memory": spent_on.memory_objects,
            "copies": state.copies,
        }

    for asked in iter(pipe.recv, None):
        if asked == "settle":
            session.settle()
            start, plans, own = counters.snapshot(), session.stats().plans_made, []
            pipe.send(None)
            continue
        if asked != "step":
            told = told or figures()
            state.reset()
        feeds = feeds_of(cache, (token,) if asked == "step" else asked, len(state))
        started = time.perf_counter()
        logits = state.run(feeds)[0]
        spent = time.perf_counter() - started
        found = int(logits[0, -1].argmax())
        if asked == "step":
            own.append(1e3 * (spent - session.last_timing.compute_s))
            token = found
        pipe.send((1e3 * spent, found))
    pipe.send(told or figures())


def run_onnxruntime(pipe: Connection, path: str, cache: str, threads: int, shape: Shape, way: str, room: int) -> None:
    """The same with onnxruntime."""
    engine = OrtDecoder(path, past_names(shape), threads, way=way, shared=cache == "grouped", room=room)
    pipe.send(None)
    token = 1
    for asked in iter(pipe.recv, None):
        if asked == "settle":
            pipe.send(None)
            continue
        if asked != "step":
            engine.reset()
        feeds = feeds_of(cache, (token,) if asked == "step" else asked, engine.past)
        started = time.perf_counter()
        logits = engine.run(feeds)
        spent = time.perf_counter() - started
        token = int(logits[0, -1].argmax())
        pipe.send((1e3 * spent, token))
    pipe.send({})


class Engine:
    """A process that decodes."""

    def __init__(self, target: Any, *args: Any) -> None:
        self.pipe, other = mp.Pipe()
        self.process = mp.get_context("spawn").Process(target=target, args=(other, *args), daemon=True)
        self.process.start()
        self.bandwidth = self.pipe.recv()
        self.times: list[float] = []
        self.all_times: list[float] = []
        self.prefills: list[float] = []
        self.tokens: list[int] = []
        self._signal(signal.SIGSTOP)

    def _signal(self, what: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, what)

    def turn(self, steps: int, counts: bool) -> None:
        """Runs steps."""
        self._signal(signal.SIGCONT)
        for i in range(steps):
            self.pipe.send("step")
            spent, token = self.pipe.recv()
            self.tokens.append(token)
            self.all_times.append(spent)
            if counts and i >= WARM:
                self.times.append(spent)
        if not counts:
            self.pipe.send("settle")
            self.pipe.recv()
        self._signal(signal.SIGSTOP)

    def prefill(self, prompt: Prompt, rounds: int) -> None:
        """Reads a prompt several times; the first one does not count."""
        self._signal(signal.SIGCONT)
        for i in range(rounds + 1):
            self.pipe.send(prompt)
            spent, _ = self.pipe.recv()
            if i:
                self.prefills.append(spent)
        self._signal(signal.SIGSTOP)

    def end(self) -> dict[str, Any]:
        """Figures of all steps."""
        self._signal(signal.SIGCONT)
        self.pipe.send(None)
        found: dict[str, Any] = self.pipe.recv()
        self.process.join()
        return found


def measure(given: argparse.Namespace, bits: int, folder: Path) -> dict[str, Any]:
    """One model: figures by name."""
    shape, steps, cache = SHAPES[given.model], given.steps, given.cache
    path = str(save(decoder(shape, bits=bits, cache=cache, accuracy=given.accuracy_level), folder / "model.onnx"))
    room = steps + given.prefill + 4 * TURN
    weights = sum(f.stat().st_size for f in folder.iterdir())
    engines = {
        "opalite": Engine(run_opalite, path, cache, given.threads, given.reserve),
        "onnxruntime": Engine(run_onnxruntime, path, cache, given.threads, shape, "arrays", room),
        "onnxruntime_bound": Engine(run_onnxruntime, path, cache, given.threads, shape, "bound", room),
    }
    if given.llama_cpp:
        from .llama_cpp import run_llama_cpp
        from .models.llama_gguf import save_gguf

        file = save_gguf(shape, folder / "model.gguf", KINDS[bits])
        engines["llama_cpp"] = Engine(run_llama_cpp, str(file), given.threads, shape.words)
    for count in (2 * TURN, TURN):  # until the megakernel is in use, and once more with it
        for engine in engines.values():
            engine.turn(count, counts=False)
    done = 3 * TURN
    while done < steps:
        for each in list(engines)[:: 1 if done // TURN % 2 else -1]:
            engines[each].turn(min(TURN, steps - done), counts=True)
        done += TURN
    own, other = engines["opalite"], engines["onnxruntime"]
    median = {name: statistics.median(e.times) for name, e in engines.items()}
    prefills: dict[str, float] = {}
    if given.prefill:
        for i in range(6):
            for each in list(engines)[:: 1 if i % 2 else -1]:
                engines[each].prefill(tuple(range(1, given.prefill + 1)), 3)
        prefills = {f"{name}_prefill_ms": statistics.median(e.prefills) for name, e in engines.items()}
    ends = {name: e.end() for name, e in engines.items()}
    weights -= 0 if shape.tied else shape.words * shape.width * 4
    kept = 2 * 4 * shape.layers * shape.kv_heads * shape.head * steps / 2
    speed = (weights + kept) / (1e6 * median["opalite"])
    return {
        "model": f"{given.model}, {bits or 32} bits, {cache}",
        "tokens": steps,
        "same_tokens": own.tokens == other.tokens == engines["onnxruntime_bound"].tokens,
        **{f"{name}_ms": ms for name, ms in median.items()},
        "ratio": median["opalite"] / min(median["onnxruntime"], median["onnxruntime_bound"]),
        **{f"{name}_first_40_ms": statistics.mean(e.all_times[:40]) for name, e in engines.items()},
        "worst_over_median": max(own.times) / median["opalite"],
        "gb_s": speed,
        "share": speed / (own.bandwidth / 1e9),
        **ends["opalite"],
        **prefills,
    }


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="llama_110m")
    parser.add_argument("--bits", type=int, nargs="+", default=[0, 4], help="of the weights; 0 for float32")
    parser.add_argument("--cache", choices=("concat", "grouped"), default="concat")
    parser.add_argument("--accuracy-level", type=int, default=0, help="of MatMulNBits")
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reserve", type=int, default=256)
    parser.add_argument("--llama-cpp", action="store_true", help="beside llama.cpp, which needs llama_cpp and gguf")
    parser.add_argument("--prefill", type=int, default=0, help="tokens of a prompt that is read, too; 0 for none")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(given.threads))
    rows = []
    for bits in given.bits:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(given, bits, Path(folder))
        rows.append(row)
        print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
