"""Trains the network and writes super_resolution_x2.onnx, picture.png and truth.jpg.

    python train.py --minutes 20

Needs torch, scikit-image, onnx and Pillow; one thread is enough. The demonstration picture takes no part in training:
it is measured once, at the end, through ONNX Runtime if that is installed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import graph
import numpy as np
import pictures
import torch
from PIL import Image
from quality import psnr, to_input, to_picture
from skimage import data
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import onnx

HERE = Path(__file__).parent
PATCH = 40  # pixels a side of a low-resolution training patch
BATCH = 16


class Block(nn.Module):
    """y + conv(PReLU(conv(y)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(width, width, 3, padding=1)
        self.act = nn.PReLU(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, y: Tensor) -> Tensor:
        return y + self.conv1(self.act(self.conv0(y)))


class Network(nn.Module):
    """The network that graph.py describes, without the final clip: gradients must reach clipped pixels too."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, graph.WIDTH, 5, padding=2)
        self.act = nn.PReLU(graph.WIDTH)
        self.body = nn.Sequential(*(Block(graph.WIDTH) for _ in range(graph.BLOCKS)))
        self.tail = nn.Conv2d(graph.WIDTH, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        enlarged = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return enlarged + functional.pixel_shuffle(self.tail(self.body(self.act(self.head(x)))), 2)


def weights_of(network: Network) -> graph.Weights:
    """The weights under the names that graph.build expects."""
    weights: graph.Weights = {}

    def put_conv(name: str, conv: nn.Conv2d) -> None:
        weights[f"{name}.weight"] = conv.weight.detach().numpy()
        if conv.bias is not None:
            weights[f"{name}.bias"] = conv.bias.detach().numpy()

    def put_slope(name: str, act: nn.PReLU) -> None:
        weights[f"{name}.slope"] = act.weight.detach().numpy().reshape(-1, 1, 1)

    put_conv("head", network.head)
    put_slope("head", network.act)
    for i, block in enumerate(network.body):
        put_conv(f"body{i}.conv0", block.conv0)
        put_slope(f"body{i}.conv0", block.act)
        put_conv(f"body{i}.conv1", block.conv1)
    put_conv("tail", network.tail)
    return weights


class Patches:
    """Random pairs of (small, large) patches: the small one is Pillow's bicubic half of the large one."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        large = pictures.photographs() + pictures.drawings(rng, 48)
        self.large = [np.asarray(p) for p in large]
        self.small = [np.asarray(half(p)) for p in large]
        # Large pictures hold more patches, but not in proportion: the few small ones are the sharpest.
        share = np.sqrt([p.shape[0] * p.shape[1] for p in self.small])
        self.share = share / share.sum()

    def batch(self) -> tuple[Tensor, Tensor]:
        """[BATCH,3,PATCH,PATCH] and [BATCH,3,2*PATCH,2*PATCH], 0..1, flipped, turned and recoloured at random."""
        rng, small, large = self.rng, [], []
        while len(small) < BATCH:
            i = rng.choice(len(self.small), p=self.share)
            height, width, _ = self.small[i].shape
            y, x = rng.integers(0, height - PATCH + 1), rng.integers(0, width - PATCH + 1)
            a = self.small[i][y : y + PATCH, x : x + PATCH]
            b = self.large[i][2 * y : 2 * (y + PATCH), 2 * x : 2 * (x + PATCH)]
            if b.std() < 4 and rng.random() < 0.9:  # an empty sky teaches nothing
                continue
            turns, flip, channels = rng.integers(0, 4), rng.integers(0, 2), rng.permutation(3)
            gain = rng.uniform(0.6, 1.0)  # both halves alike, so that the pair stays exact
            for patches, p in ((small, a), (large, b)):
                p = np.rot90(p, turns)[:, :: -1 if flip else 1, channels]
                patches.append(np.ascontiguousarray(p.transpose(2, 0, 1), np.float32) * (gain / 255))
        return torch.from_numpy(np.stack(small)), torch.from_numpy(np.stack(large))


def half(picture: Image.Image) -> Image.Image:
    """Half the size by Pillow's antialiased bicubic: how the low-resolution pictures are made."""
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BICUBIC)


def train(minutes: float, seed: int) -> Network:
    """A trained network: Adam on the absolute error, on the squared error in the last fifth, with averaged weights."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    patches = Patches(np.random.default_rng(seed))
    network = Network()
    nn.init.zeros_(network.tail.weight)  # begins as plain bilinear enlarging
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.998))
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    begin, step, shown = time.monotonic(), 0, 0.0
    while (done := (time.monotonic() - begin) / (60 * minutes)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 1e-5 + 2e-3 * min(1.0, step / 100) * 0.5 * (1 + np.cos(np.pi * done))
        small, large = patches.batch()
        error = network(small) - large
        loss = error.abs().mean() if done < 0.8 else (10 * error).square().mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimiser.step()
        average.update_parameters(network)
        step += 1
        if done >= shown:
            print(f"{done:4.0%}  step {step}  loss {loss.item():.5f}", flush=True)
            shown += 0.05
    trained: Network = average.module
    return trained


def measure(path: Path, small: Image.Image, truth: Image.Image) -> None:
    """Prints the PSNR of the saved network and of Pillow's bicubic on the demonstration picture."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    output = to_picture(session.run(None, {"x": to_input(small)})[0])
    enlarged = small.resize(truth.size, Image.Resampling.BICUBIC)
    for name, picture in (("bicubic", enlarged), ("network", output)):
        y, rgb = psnr(picture, truth)
        print(f"{name}: {y:.2f} dB luma, {rgb:.2f} dB RGB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()

    network = train(options.minutes, options.seed)
    path = options.out / "super_resolution_x2.onnx"
    onnx.save(graph.build(weights_of(network)), path)

    Image.fromarray(data.astronaut()).save(options.out / "truth.jpg", quality=95, subsampling=0)
    truth = Image.open(options.out / "truth.jpg").convert("RGB")
    small = half(truth)
    small.save(options.out / "picture.png", optimize=True)
    try:
        measure(path, small, truth)
    except ImportError:
        print("onnxruntime is not installed; run upscale.py to measure")


if __name__ == "__main__":
    main()
