"""Times decoding after long caches: milliseconds and bytes per token, with the model's cache type and with int8.


    python -m benchmarks.long_caches                      # a Llama-like decoder of 110 M in 4 bits after 512 to 8,192
    python -m benchmarks.long_caches --lengths 16384 --bits 0

States of one session and onnxruntime, its caches bound in place where the model lets it (benchmarks/ort_decoder.py),
continue the same random cache, alternating every 16 tokens. The first two tokens of a slice do not count, nor do slices
before the megakernel is in use. `ratio` and `error` compare int8 caches with the model's: milliseconds, and the largest
difference of a first token's logits over the largest logit; `to peer` the model's caches with onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .decoding import SHAPES, feeds_of
from .models.llama import decoder, past_names, save
from .ort_decoder import OrtDecoder

TURN, WARM, TURNS = 16, 2, 8
KEPT = ("model", "int8")
PEER = "onnxruntime"


def measure(session: Any, length: int, cache: str, peer: OrtDecoder) -> dict[str, tuple[float, int, Any]]:
    """For each cache type, and the peer: median milliseconds of a token, bytes of the state, a first token's logits."""
    rng = np.random.default_rng(length)
    states, times, first = {}, {kept: list[float]() for kept in (*KEPT, PEER)}, {}
    values: dict[str, Any] = {}
    for kept in KEPT:
        state = session.state(cache=kept, reserve=256)
        if not values:
            for pair in state.pairs:
                shape = next(a.shape for a in session.get_inputs() if a.name == pair.past)
                sizes = [length if i == pair.time else d if isinstance(d, int) else 1 for i, d in enumerate(shape)]
                values[pair.past] = rng.standard_normal(sizes, np.float32)
        state.set_values(values)
        first[kept] = state.run(feeds_of(cache, (1,), length))[0]
        states[kept] = state
    peer.set_caches(values, length)
    first[PEER] = peer.run(feeds_of(cache, (1,), length))
    for turn in range(TURNS):
        for kept in (*KEPT, PEER) if turn % 2 else (PEER, *KEPT[::-1]):
            for step in range(TURN):
                past, run = (peer.past, peer.run) if kept == PEER else (len(states[kept]), states[kept].run)
                feeds = feeds_of(cache, (step + 1,), past)
                started = time.perf_counter()
                run(feeds)
                if turn >= 2 and step >= WARM:
                    times[kept].append(1e3 * (time.perf_counter() - started))
        if turn == 1:
            session.settle()
    sizes = {kept: state.nbytes for kept, state in states.items()}
    return {kept: (statistics.median(times[kept]), sizes.get(kept, 0), first[kept]) for kept in (*KEPT, PEER)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="llama_110m")
    parser.add_argument("--bits", type=int, default=4, help="of the weights; 0 for float32")
    parser.add_argument("--accuracy-level", type=int, default=0, help="of MatMulNBits")
    parser.add_argument("--cache", choices=("concat", "grouped"), default="concat")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(given.threads))
    import opalite

    with tempfile.TemporaryDirectory() as folder:
        shape = SHAPES[given.model]
        model = decoder(shape, bits=given.bits, cache=given.cache, accuracy=given.accuracy_level)
        path = save(model, Path(folder) / "model.onnx")
        room, shared = max(given.lengths) + (TURNS + 1) * TURN, given.cache == "grouped"
        peer = OrtDecoder(path, past_names(shape), given.threads, way="bound", shared=shared, room=room)
        with opalite.InferenceSession(path, device=given.device) as session:
            print("positions  model: ms a token, MB   int8: ms a token, MB   ratio   error  onnxruntime: ms  to peer")
            for length in given.lengths:
                found = measure(session, length, given.cache, peer)
                c, _, z = found[PEER]
                (a, a_bytes, x), (b, b_bytes, y) = (found[kept] for kept in KEPT)
                error = np.abs(x - y).max() / np.abs(x).max()
                assert np.abs(x - z).max() <= 0.05 * np.abs(x).max(), "the engines give other logits"
                sizes = f"{a_bytes / 1e6:10.1f}{b:16.2f}{b_bytes / 1e6:10.1f}"
                print(f"{length:9d}{a:16.2f}{sizes}{b / a:8.2f}{error:9.4f}{c:17.2f}{a / c:9.2f}", flush=True)


if __name__ == "__main__":
    main()
