"""Reads a page of text with rapidocr_paddle, and stores texts, boxes and scores. Argument: the .npz file to write."""

import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_paddle import RapidOCR

LINES = ["Kernels are built once", "and launched many times.", "Paddle 2024: 3.14159", "0123456789 ABCDEF"]


def page() -> np.ndarray:
    """Return a page with a line of each size, and one upside down, which the classifier turns."""
    picture = Image.new("RGB", (640, 480), "white")
    draw = ImageDraw.Draw(picture)
    for i, line in enumerate(LINES):
        draw.text((30, 30 + 80 * i), line, fill="black", font=ImageFont.load_default(size=24 + 4 * i))
    turned = Image.new("RGB", (400, 50), "white")
    ImageDraw.Draw(turned).text((5, 5), "turned around", fill="black", font=ImageFont.load_default(size=32))
    picture.paste(turned.rotate(180), (120, 400))
    return np.asarray(picture)[:, :, ::-1].copy()


found, _ = RapidOCR()(page())
boxes, texts, scores = zip(*found, strict=True)
print(texts)
np.savez(sys.argv[1], boxes=np.asarray(boxes), texts=np.asarray(texts), scores=np.asarray(scores, np.float64))
