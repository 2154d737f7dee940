"""Writes on from a few words with a small network on the best OpenCL device of this machine.

    python write.py                                    always the same sentence
    python write.py "The king of the north" -t 0.8     another one each time

Needs the extra: pip install 'opalite-cl[llm]'.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import opalite

MODEL = Path(__file__).parent / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="And God said,")
    parser.add_argument("-t", "--temperature", type=float, default=0.0, help="0 takes the likeliest token each time")
    parser.add_argument("--seed", type=int, help="equal seeds give equal texts")
    parser.add_argument("--tokens", type=int, default=128, help="tokens to write at most")
    parser.add_argument("--device", help="OpenCL device: id, index '0:1', cpu, gpu or part of a name")
    options = parser.parse_args()

    with opalite.Generator(MODEL, device=options.device) as writer:
        stream = writer.stream(
            options.prompt, temperature=options.temperature, top_k=40, seed=options.seed, max_tokens=options.tokens
        )
        print(options.prompt, end="", flush=True)
        for piece in stream:
            print(piece, end="", flush=True)
        metrics = stream.metrics
        print(f"\n\ndevice    {writer.session.device.name}")
        print(f"first     {metrics.first_token_s * 1e3:.1f} ms with builds")
        print(f"then      {metrics.decode_rate:.1f} tokens/s")


if __name__ == "__main__":
    main()
