"""Doubles a picture's size with a small network on the best OpenCL device of this machine, and shows what it gained.

    python upscale.py                      the picture beside this script, measured against the truth
    python upscale.py mine.jpg -o out      any picture; nothing to measure against

Writes upscaled.png, and compare.png: bicubic, network and (if known) truth side by side.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from quality import psnr, to_input, to_picture

import opalite

HERE = Path(__file__).parent
DETAIL = (140, 20, 300, 180)  # left, top, right, bottom of the part that compare.png shows, in pixels of truth.jpg


def compare(panels: dict[str, Image.Image], box: tuple[int, int, int, int], zoom: int = 2) -> Image.Image:
    """The same part of every panel side by side, each pixel `zoom` pixels wide, under its name."""
    width, height, bar = (box[2] - box[0]) * zoom, (box[3] - box[1]) * zoom, 24
    sheet = Image.new("RGB", (len(panels) * (width + 4) - 4, height + bar), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (name, picture) in enumerate(panels.items()):
        left = i * (width + 4)
        sheet.paste(picture.crop(box).resize((width, height), Image.Resampling.NEAREST), (left, bar))
        draw.text((left + 4, 3), name, "black", ImageFont.load_default(16))
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, nargs="?", default=HERE / "picture.png")
    parser.add_argument("-o", "--out", type=Path, default=HERE / "output", help="folder for the results")
    parser.add_argument("--device", help="OpenCL device: id, index '0:1', cpu, gpu or part of a name")
    options = parser.parse_args()
    truth_path = HERE / "truth.jpg" if options.picture == HERE / "picture.png" else None

    small = Image.open(options.picture).convert("RGB")
    x = to_input(small)
    session = opalite.InferenceSession(HERE / "super_resolution_x2.onnx", device=options.device)
    (y,) = session.run(None, {"x": x})
    first, tier = session.last_timing.first_s, session.last_timing.tier
    session.settle()  # programs made for the model are built while its first runs go through general ones
    (y,) = session.run(None, {"x": x})
    upscaled = to_picture(y)

    timing = session.last_timing
    print(f"device    {session.device.name}")
    print(f"picture   {small.width}x{small.height} -> {upscaled.width}x{upscaled.height}")
    print(f"first run {first * 1e3:.1f} ms with builds, by {tier} programs")
    parts = {"upload": timing.upload_s, "compute": timing.compute_s, "download": timing.download_s}
    split = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in parts.items())
    print(f"next run  {timing.total_s * 1e3:.1f} ms: {split}")

    bicubic = small.resize(upscaled.size, Image.Resampling.BICUBIC)
    panels = {"bicubic": bicubic, "opalite": upscaled}
    box = (0, 0, min(320, upscaled.width), min(320, upscaled.height))
    if truth_path is not None:
        truth = Image.open(truth_path).convert("RGB")
        for name, picture in panels.items():
            luma, rgb = psnr(picture, truth)
            print(f"{name:9} {luma:.2f} dB PSNR of luma, {rgb:.2f} dB of RGB")
        panels["truth"] = truth
        box = DETAIL

    options.out.mkdir(parents=True, exist_ok=True)
    upscaled.save(options.out / "upscaled.png")
    compare(panels, box).save(options.out / "compare.png")
    print(f"wrote     {options.out / 'upscaled.png'} and compare.png")


if __name__ == "__main__":
    main()
