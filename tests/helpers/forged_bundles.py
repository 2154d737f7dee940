"""Bundles changed as somebody would who means harm: sums and digests are made anew, so that nothing shows."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opalite.ir.constants.lazy_array import content_key
from opalite.plan.weights.weight_files import byte_sum

_ALIGN = 512
_NUMBERS = (0, 1, -1, 2, 3, 7, 64, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 40, -(1 << 62), 1 << 70)


class Forged:
    """The parts of a bundle, to be changed and written with sums that fit.

    about: its description, as JSON. texts: the others, by name. tensors: bytes by key.
    """

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        head, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
        self.texts: dict[str, str] = head.pop("__metadata__")
        self.about: dict[str, Any] = json.loads(self.texts.pop("opalite"))
        self.texts.pop("digest")
        spans = {name: entry["data_offsets"] for name, entry in head.items() if not name.startswith("~")}
        self.tensors = {name: data[a:b] for name, (a, b) in spans.items()}

    def graph(self, variant: int = 0) -> Any:
        """The graph that a variant records, as JSON."""
        return json.loads(self.tensors[self.about["variants"][variant]["graph"]["key"]])

    def set_graph(self, graph: Any, variant: int = 0) -> None:
        """Record another graph."""
        raw = np.frombuffer(json.dumps(graph).encode(), np.uint8)
        key = content_key(raw)
        self.tensors[key] = raw.tobytes()
        self.about["variants"][variant]["graph"]["key"] = key

    def set_program(self, change: Callable[[Any], None], variant: int = 0) -> None:
        """Have `change` change the program of a variant, given as JSON."""
        program = json.loads(self.texts[f"program {variant}"])
        change(program)
        self.texts[f"program {variant}"] = json.dumps(program)

    def write(self, path: Path) -> None:
        """Write the bundle, sums and digests included."""
        digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.texts.items()}
        sums = {key: byte_sum(np.frombuffer(raw, np.uint8)) for key, raw in self.tensors.items()}
        about = json.dumps(self.about | {"digests": digests, "sums": sums})
        signed = {"opalite": about, "digest": hashlib.sha256(about.encode()).hexdigest()}
        head: dict[str, Any] = {"__metadata__": self.texts | signed}
        data = b""
        for key, raw in self.tensors.items():
            head[key] = {"dtype": "U8", "shape": [len(raw)], "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(head).encode()
        text += b" " * (-(len(text) + 8) % _ALIGN)
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def records(x: Any, name: str) -> list[Any]:
    """Every record of a class in JSON of the bundle's codec: its name, then its fields."""
    found = []
    if isinstance(x, dict):
        if isinstance(x.get("c"), list) and x["c"][:1] == [name]:
            found.append(x["c"])
        for value in x.values():
            found += records(value, name)
    elif isinstance(x, list):
        for value in x:
            found += records(value, name)
    return found


def mutate(x: Any, rng: random.Random) -> str:
    """Change one thing somewhere in JSON: a number, a text, a list's length or order. What was done, in words."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in pairs:
            places.append((node, key))
            walk(value)

    walk(x)
    holder, key = rng.choice(places)
    old = holder[key]
    other = rng.choice(places)
    if isinstance(old, bool):
        holder[key] = not old
    elif isinstance(old, int | float):
        changed = [*_NUMBERS, old + 1, old - 1, old * 2, -old, float("nan"), float("inf"), 1e308, "1", None]
        holder[key] = rng.choice(changed)
    elif isinstance(old, list) and old and rng.random() < 0.6:
        i = rng.randrange(len(old))
        how = rng.choice(("drop", "double", "swap"))
        if how == "drop":
            del old[i]
        elif how == "double":
            old.insert(i, json.loads(json.dumps(old[i])))
        else:
            j = rng.randrange(len(old))
            old[i], old[j] = old[j], old[i]
        return f"{how} in {str(old)[:60]}"
    else:
        holder[key] = json.loads(json.dumps(other[0][other[1]]))
    return f"{key}: {str(old)[:60]} -> {str(holder[key])[:60]}"
