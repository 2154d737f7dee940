"""Times several texts at once: their time over that of one, and over onnxruntime's at the same batch.


    python -m benchmarks.batched_texts                            # a decoder of 110 M in 4 bits; 1, 2, 4 and 8 texts
    python -m benchmarks.batched_texts --accuracy-level 4 --cache concat --texts 1 4 --json batched.json

Opalite generates by `Generator.generate` of as many prompts, of different lengths, which are read one after the other
and continued together. onnxruntime reads all prompts by one run, as long as the longest, and feeds its caches back. All
generate `--tokens` tokens greedily, with logits of the last position, in processes of their own that run in turn while
the other is stopped. `over one`: the time of all texts over that of one, the median of ratios within a round, whose
times lie next to each other; quartiles in parentheses. `ratio`: over onnxruntime's time for as many. Each text is
compared with the one that its prompt gives alone.
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

from opalite.importer.proto.apply_edits import keep_last_position

from .models.llama import LLAMA_110M, QWEN2_0_5B, Shape, decoder, past_names, save

SHAPES = {"llama_110m": LLAMA_110M, "qwen2_0.5b": QWEN2_0_5B}


def prompts_of(count: int, length: int, words: int) -> list[list[int]]:
    """Prompts that get shorter and begin differently, so that none shares another's caches."""
    rng = np.random.default_rng(count)
    return [[1 + n, *rng.integers(0, words, length - 2 - n % (length // 2)).tolist()] for n in range(count)]


def write_folder(folder: Path, shape: Shape, bits: int, cache: str, accuracy: int) -> Path:
    """A model's folder with a tokenizer whose words are numbers."""
    model = decoder(shape, "batch", bits=bits, cache=cache, accuracy=accuracy, drawn=1 << 20)
    keep_last_position(model, ["logits"])
    save(model, folder / "model.onnx")
    words = {f"{n} ": n for n in range(shape.words)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "0 "},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def run_opalite(pipe: Connection, folder: str, shape: Shape, tokens: int, cache: str, threads: int) -> None:
    """Send the seconds of each asked batch of prompts."""
    import opalite

    generator = opalite.Generator(folder, device="cpu")
    for prompts in iter(pipe.recv, None):
        started = time.perf_counter()
        found = generator.generate(prompts, max_tokens=tokens, ignore_end=True)
        spent = time.perf_counter() - started
        generator.session.settle()
        pipe.send((spent, [list(t.tokens) for t in found]))
    pipe.send(generator.texts.refusal)


def run_onnxruntime(pipe: Connection, folder: str, shape: Shape, tokens: int, cache: str, threads: int) -> None:
    """The same with onnxruntime, for prompts of equal lengths."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
    names = past_names(shape)
    for prompts in iter(pipe.recv, None):
        batch, longest = len(prompts), max(map(len, prompts))
        started = time.perf_counter()
        past = {n: np.zeros((batch, shape.kv_heads, 0, shape.head), np.float32) for n in names}
        ids, held, written = np.array([(p * 2)[:longest] for p in prompts]), 0, []
        for _ in range(tokens):
            feeds = {"input_ids": ids, "attention_mask": np.ones((batch, held + ids.shape[1]), np.int64)}
            if cache != "grouped":
                feeds["position_ids"] = np.tile(np.arange(held, held + ids.shape[1]), (batch, 1))
            logits, *presents = session.run(None, {**feeds, **past})
            past = dict(zip(names, presents, strict=True))
            held += ids.shape[1]
            ids = logits[:, -1].argmax(-1)[:, None]
            written.append(ids)
        pipe.send((time.perf_counter() - started, np.concatenate(written, 1).tolist()))
    pipe.send("")


class Engine:
    """A process that generates, and is stopped while others do."""

    def __init__(self, target: Any, *args: Any) -> None:
        self._pipe, other = mp.Pipe()
        self._process = mp.get_context("spawn").Process(target=target, args=(other, *args), daemon=True)
        self._process.start()

    def generate(self, prompts: list[list[int]]) -> tuple[float, list[list[int]]]:
        """Seconds, and tokens of each text."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._pipe.send(prompts)
        found: tuple[float, list[list[int]]] = self._pipe.recv()
        os.kill(self._process.pid, signal.SIGSTOP)
        return found

    def end(self) -> str:
        """What it says in the end."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._pipe.send(None)
        told = str(self._pipe.recv())
        self._process.join()
        return told


def quartiles(values: list[float]) -> str:
    """The median, and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def measure(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row for each number of texts."""
    shape = SHAPES[given.model]
    write_folder(folder, shape, given.bits, given.cache, given.accuracy_level)
    args = str(folder), shape, given.tokens, given.cache, given.threads
    engines = {"opalite": Engine(run_opalite, *args)}
    if not given.alone:
        engines["onnxruntime"] = Engine(run_onnxruntime, *args)
    prompts = {count: prompts_of(count, given.prompt, shape.words) for count in sorted({1, *given.texts})}
    seconds: dict[tuple[str, int], list[float]] = {(e, c): [] for e in engines for c in prompts}
    same = True
    for number in range(-2, given.rounds):  # the first two build and warm up
        for count, asked in prompts.items():
            for name, engine in engines.items():
                spent, tokens = engine.generate(asked)
                if number >= 0:
                    seconds[name, count].append(spent)
                elif name == "opalite" and number == -1:
                    same &= tokens == [engine.generate([p])[1][0] for p in asked]
    if refusal := engines["opalite"].end():
        print(f"texts were generated one after the other: {refusal}")
    rows = []
    for count in prompts:
        row: dict[str, Any] = {"texts": count, "equal_to_alone": same}
        for name in engines:
            own, one = seconds[name, count], seconds[name, 1]
            row[f"{name}_ms"] = 1e3 * statistics.median(own) / given.tokens
            row[f"{name}_over_one"] = [a / b for a, b in zip(own, one, strict=True)]
        if "onnxruntime" in engines:
            pairs = zip(seconds["opalite", count], seconds["onnxruntime", count], strict=True)
            row["ratio"] = [a / b for a, b in pairs]
        rows.append(row)
    for name in list(engines)[1:]:
        engines[name].end()
    return rows


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="llama_110m")
    parser.add_argument("--bits", type=int, default=4, help="of the weights; 0 for float32")
    parser.add_argument("--cache", choices=("concat", "grouped"), default="grouped")
    parser.add_argument("--accuracy-level", type=int, default=0, help="of MatMulNBits")
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=64, help="of each text")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the longest prompt")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="without onnxruntime")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(given.threads))
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(given, Path(folder))
    print("| texts | ms for a token of each | over one | onnxruntime, over one | ratio | equal |")
    print("| ---: | ---: | ---: | ---: | ---: | --- |")
    for row in rows:
        cells = [row["texts"], f"{row['opalite_ms']:.2f}", quartiles(row["opalite_over_one"])]
        cells += [quartiles(row[n]) if n in row else "" for n in ("onnxruntime_over_one", "ratio")]
        print(f"| {' | '.join(map(str, cells))} | {'yes' if row['equal_to_alone'] else 'no'} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
