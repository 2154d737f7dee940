"""The folder of real models, and what each is expected to give."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(os.environ.get("OPALITE_MODELS", Path(__file__).parents[2].parent / "shared" / "models"))


@dataclass(frozen=True)
class Case:
    """One model with one set of inputs and stored outputs."""

    name: str
    tier: str
    model: Path
    arrays: Path

    def load(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(feeds, expected outputs) by name."""
        with np.load(self.arrays) as z:
            feeds = {k[3:]: z[k] for k in z.files if k.startswith("in:")}
            wanted = {k[4:]: z[k] for k in z.files if k.startswith("out:")}
        return feeds, wanted


def find_cases() -> list[Case]:
    """Every case of the folder; none where it is absent."""
    manifest = FOLDER / "manifest.json"
    if not manifest.exists():
        return []
    found = []
    for row in json.loads(manifest.read_text()):
        for case in row["cases"]:
            found.append(Case(row["name"], row["tier"], FOLDER / row["file"], FOLDER / case["file"]))
    return found
