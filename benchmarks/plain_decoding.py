"""Times decoding by plain runs, whose caches are fed back as arrays, from the first token of a process on.


    python -m benchmarks.plain_decoding                          # a decoder of 4 layers, 256 wide, from an empty cache
    python -m benchmarks.plain_decoding --model llama_110m --cache grouped --prompt 32 --json plain.json

Engines decode the same tokens in processes of their own on the same cores, alternating every 8 tokens while the others
are stopped (SIGSTOP). `run`: `session.run` on the arrays that the last run returned; `state`: `session.state()`;
`onnxruntime`: its `run` likewise; `bound`: its `io_binding`, with the values of the last run bound as inputs, or with
caches of a fixed length bound as input and output where the model has GroupQueryAttention (shared buffers).

Opalite's cache folder is empty in the first of `--processes`. Of each process: milliseconds of the first token, the
longest of tokens 2 to 9, median and longest of tokens 10 to 40, the median of the rest, and ratios to onnxruntime's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from .decoding import SHAPES, Engine, feeds_of
from .models.llama import Shape, decoder, past_names, save

TURN = 8
ALL = {"small": Shape(layers=4, width=256, heads=4, kv_heads=4, inner=1024, words=1000), **SHAPES}
Step = Callable[[dict[str, Any]], Any]
"""Runs on inputs besides the caches; returns logits."""


def serve(pipe: Connection, step: Step, cache: str, prompt: int) -> None:
    """Decode a token on each request; send (milliseconds, token)."""
    pipe.send(None)
    tokens, held = tuple(range(1, prompt + 1)), 0
    for _ in iter(pipe.recv, None):
        feeds = feeds_of(cache, tokens, held)
        started = time.perf_counter()
        logits = step(feeds)
        spent = time.perf_counter() - started
        held += len(tokens)
        tokens = (int(logits[0, -1].argmax()),)
        pipe.send((1e3 * spent, tokens[0]))


def by_arrays(session: Any, shape: Shape) -> Step:
    """Runs that feed back what the last one returned."""
    names = past_names(shape)
    past = {n: np.zeros((1, shape.kv_heads, 0, shape.head), np.float32) for n in names}

    def step(feeds: dict[str, Any]) -> Any:
        logits, *caches = session.run(None, {**feeds, **past})
        past.update(zip(names, caches, strict=True))
        return logits

    return step


def by_values(session: Any, shape: Shape, value: Any, longest: int) -> Step:
    """Bound runs. longest: of caches bound as input and output; 0 binds the values of the last run."""
    names, binding = past_names(shape), session.io_binding()
    presents = [o.name for o in session.get_outputs()][1:]
    empty = np.zeros((1, shape.kv_heads, longest, shape.head), np.float32)
    past = [value.ortvalue_from_numpy(empty) for _ in names]

    def step(feeds: dict[str, Any]) -> Any:
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("logits", "cpu")
        for name, present, held in zip(names, presents, past, strict=True):
            binding.bind_ortvalue_input(name, held)
            if longest:
                binding.bind_ortvalue_output(present, held)
            else:
                binding.bind_output(present, "cpu")
        session.run_with_iobinding(binding)
        logits, *past[:] = binding.get_outputs()
        return logits.numpy()

    return step


def run_opalite(pipe: Connection, path: str, cache: str, shape: Shape, prompt: int, way: str, folder: str) -> None:
    """A process of Opalite."""
    os.environ["OPALITE_CACHE_DIR"] = folder
    import opalite

    session = opalite.InferenceSession(path, device="cpu")
    state = session.state() if way == "state" else None
    step = by_arrays(session, shape) if state is None else lambda feeds: state.run(feeds)[0]
    serve(pipe, step, cache, prompt)


def run_onnxruntime(
    pipe: Connection, path: str, cache: str, shape: Shape, prompt: int, way: str, threads: int, longest: int
) -> None:
    """A process of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    fixed = longest if cache == "grouped" else 0
    bound = way == "bound"
    step = by_values(session, shape, onnxruntime.OrtValue, fixed) if bound else by_arrays(session, shape)
    serve(pipe, step, cache, prompt)


class Decoding(Engine):
    """A process that decodes, of which every token counts."""

    def go_on(self, steps: int) -> None:
        """Decode tokens, and stop."""
        self._signal(signal.SIGCONT)
        for _ in range(steps):
            self.pipe.send("step")
            spent, token = self.pipe.recv()
            self.times.append(spent)
            self.tokens.append(token)
        self._signal(signal.SIGSTOP)

    def finish(self) -> None:
        """End the process as its user would, who does not wait for what is built in the background."""
        self._signal(signal.SIGCONT)
        self.pipe.send(None)
        self.process.join()


def measure(given: argparse.Namespace, path: str, number: int, folder: Path) -> list[dict[str, Any]]:
    """Rows of the engines, in processes that run at once."""
    common = path, given.cache, ALL[given.model], given.prompt
    engines = {
        **{way: Decoding(run_opalite, *common, way, str(folder / way)) for way in ("run", "state")},
        "onnxruntime": Decoding(run_onnxruntime, *common, "run", given.threads, 0),
        "bound": Decoding(run_onnxruntime, *common, "bound", given.threads, given.prompt + given.steps),
    }
    for done in range(0, given.steps, TURN):
        for name in list(engines)[:: 1 if done // TURN % 2 else -1]:
            engines[name].go_on(min(TURN, given.steps - done))
    for engine in engines.values():
        engine.finish()
    rows = []
    peer = engines["onnxruntime"]
    for name, engine in engines.items():
        early, late = engine.times[9:40], engine.times[40:]
        rows.append(
            {
                "process": number,
                "engine": name,
                "same_tokens": engine.tokens == peer.tokens,
                "first_ms": engine.times[0],
                "longest_2_to_9": max(engine.times[1:9]),
                "median_10_to_40": statistics.median(early),
                "longest_10_to_40": max(early),
                "rest_ms": statistics.median(late),
                "ratio_10_to_40": statistics.median(early) / statistics.median(peer.times[9:40]),
                "ratio_rest": statistics.median(late) / statistics.median(peer.times[40:]),
            }
        )
    return rows


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=ALL, default="small")
    parser.add_argument("--cache", choices=("concat", "grouped"), default="concat")
    parser.add_argument("--prompt", type=int, default=1, help="tokens of the first run")
    parser.add_argument("--steps", type=int, default=200, help="tokens that each engine decodes, more than 40")
    parser.add_argument("--processes", type=int, default=3, help="one after the other")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(given.threads))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        path = str(save(decoder(ALL[given.model], cache=given.cache), Path(name) / "model.onnx"))
        for number in range(given.processes):
            made = measure(given, path, number, Path(name))
            rows += made
            for row in made:
                print(
                    "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()),
                    flush=True,
                )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
