"""The range of pixels that a network was trained for, as the numbers of its first convolution say.

Batch normalisation, or training, leaves a first layer whose constant part and whose contrast over a picture are of one
size. Each conversion is tried on a random picture with the statistics of photographs, and the ratio of the two is
taken. A network for pixels of 0 to 255 and one for 0 to 1 differ by a factor of some 255 there; networks without
biases in this place say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import OpaliteError
from ..importer import ContentsNeededError, ImportRun, ModelImporter, load_model
from ..ir import Array
from ..ir.graph import Graph, Node, Value
from ..ops.conv import ForwardConv
from ..ops.elementwise import Elementwise
from .preprocess import IMAGENET_MEAN, PRESETS

SIDE = 64
CANDIDATES = ("raw", "0..1", "-1..1", "imagenet")
RANGES = {"raw": (0.0, 255.0), "0..1": (0.0, 1.0), "-1..1": (-1.0, 1.0), "imagenet": (-2.118, 2.64)}
"""Least and largest number of a picture by each of CANDIDATES."""
SURE = 2.0
"""Least factor by which the ratio of one range of pixels must be nearer to USUAL than the other's."""
USUAL = 0.8
"""The ratio of networks that get what they were trained for: 0.2 to 2.6."""

_EXTREME = 1e6
_EVIDENCE = 0.25
"""Least ratio at 0 to 1 that biases which matter have."""


@dataclass(frozen=True)
class FirstLayer:
    """Ratio of constant part to contrast for each of CANDIDATES. limits: what quantisation cuts the input to."""

    ratios: Mapping[str, float]
    limits: tuple[float, float] | None = None

    @property
    def takes_bytes(self) -> bool | None:
        """Whether pixels of 0 to 255 suit rather than 0 to 1; None if the layer does not say."""
        if self.limits is not None:
            return self.best == "raw"
        if self.ratios["0..1"] < _EVIDENCE:
            return None
        distance = {k: _distance_from_usual(v) for k, v in self.ratios.items()}
        small = min(distance["0..1"], distance["-1..1"], distance["imagenet"])
        if abs(distance["raw"] - small) < math.log(SURE):
            return None
        return distance["raw"] < small

    @property
    def best(self) -> str:
        """The preset whose range is nearest to the limits, or whose ratio is nearest to USUAL."""
        limits = self.limits
        if limits is not None:
            return min(RANGES, key=lambda k: _distance(limits, RANGES[k]))
        return min(CANDIDATES, key=lambda k: _distance_from_usual(self.ratios[k]))

    @property
    def nearly_as_good(self) -> list[str]:
        """Other presets that the layer hardly tells from the best: small ranges differ by a factor of two alone."""
        if self.limits is not None:
            return []
        distance = {k: _distance_from_usual(v) for k, v in self.ratios.items()}
        return [k for k in CANDIDATES if k != self.best and distance[k] - distance[self.best] < math.log(SURE)]


def first_layer(graph: Graph, name: str, layout: str, channels: int) -> FirstLayer | None:
    """Look at the first convolution behind the input `name`. None if there is none that a picture alone decides.

    layout: of the input, with or without N.
    """
    entry = next((v for v in graph.inputs if v.name == name), None)
    if entry is None or not entry.type.dtype.is_float or "C" not in layout:
        return None
    rows, columns = (entry.type.shape[layout.index(axis)] for axis in "HW")
    return _measure(graph, entry, layout, channels, SIDE, SIDE) or _measure(
        graph, entry, layout, channels, int(rows), int(columns)
    )  # some operators hold sizes in their attributes


def _measure(graph: Graph, entry: Value, layout: str, channels: int, height: int, width: int) -> FirstLayer | None:
    picture = photograph_like(max(height, width))[:height, :width, :channels]
    found: dict[str, float] = {}
    for preset in CANDIDATES:
        p = PRESETS[preset]
        mean, std = (np.asarray(v, np.float32)[:channels] for v in (p.mean, p.std))
        pixels = ((picture * np.float32(p.scale) - mean) / std).astype(np.float32)
        array = pixels.transpose(2, 0, 1) if "CHW" in layout else pixels
        ratio = _ratio(graph, entry, array[None] if layout.startswith("N") else array)
        if ratio is None:
            return None
        found[preset] = ratio
    return FirstLayer(found, _limits(graph, entry, array[None].shape if layout.startswith("N") else array.shape))


def _distance_from_usual(ratio: float) -> float:
    return abs(math.log(max(ratio, 1e-9) / USUAL))


def _distance(limits: tuple[float, float], other: tuple[float, float]) -> float:
    """Distance of two ranges, in size and in how they lie about 0."""
    largest = [max(abs(low), abs(high)) for low, high in (limits, other)]
    return abs(math.log(largest[0] / largest[1])) + abs(limits[0] / largest[0] - other[0] / largest[1])


def photograph_like(side: int) -> Array:
    """A random picture [side, side, 3] of 0 to 255 with the mean colour, contrast and smoothness of photographs."""
    rng = np.random.default_rng(0)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None])
    frequency[0, 0] = np.inf
    layers = [np.fft.irfft2(np.fft.rfft2(rng.standard_normal((side, side))) / frequency) for _ in range(4)]
    grey, *tints = [layer / layer.std() for layer in layers]
    pixels = np.stack([0.9 * grey + 0.44 * tint for tint in tints], -1) * 0.25 + IMAGENET_MEAN
    return np.asarray(np.clip(pixels, 0, 1) * 255, np.float32)


def import_at(model: str | bytes, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Graph | None, OpaliteError | None]:
    """Import a model for inputs of these shapes.

    Returns its graph, None if that needs contents of inputs or is of several parts, and the reason why the model does
    not take these shapes, as far as that can be known without contents.
    """
    try:
        return _import(model, shapes), None
    except ContentsNeededError:
        return None, None
    except OpaliteError as e:
        return None, e


def _import(model: str | bytes, shapes: Mapping[str, tuple[int, ...]]) -> Graph | None:
    loaded = load_model(model)
    feeds = {v.name: np.zeros(shapes[v.name], v.dtype.np) for v in loaded.inputs if v.name in shapes and v.dtype}
    run = ImportRun(ModelImporter(loaded.graph, loaded.functions, symbols=False), feeds, _no_bodies)
    return run.segment.graph if run.segment is not None else None


def _no_bodies(body: ModelImporter, feeds: Mapping[str, Any]) -> Sequence[Any]:
    raise ContentsNeededError("loops run step by step")


def _to_convolution(graph: Graph, entry: Value, array: Array) -> tuple[Node, dict[Value, Array]] | None:
    """Compute what the first convolution reads, from an array of the input."""
    held: dict[Value, Array] = {entry: array.astype(entry.type.dtype.np)}
    for node in graph.nodes:
        if not any(v in held for v in node.inputs if v is not None):
            continue
        if any(v is not None and not v.is_const and v not in held for v in node.inputs):
            return None
        if isinstance(node.op, ForwardConv):
            weights = node.inputs[1]
            return (node, held) if weights is not None and weights.is_const else None
        try:
            made = node.op.reference(_arrays(node, held))
        except Exception:  # an operator with sizes in its attributes, on a smaller picture
            return None
        held.update(zip(node.outputs, made, strict=True))
    return None


def _ratio(graph: Graph, entry: Value, array: Array) -> float | None:
    """Ratio of the first convolution's constant part to its contrast over `array`."""
    found = _to_convolution(graph, entry, array)
    if found is None:
        return None
    node, held = found
    arrays = _arrays(node, held)
    read = arrays[0]
    if read is None or read.ndim != 4:
        return None
    full = node.op.reference(arrays)[0]
    constant = node.op.reference([np.zeros_like(read), *arrays[1:]])[0]
    out = node.outputs[0]
    follower = next((n for n in graph.nodes if out in n.inputs), None)
    others = [v for v in follower.inputs if v is not out] if follower is not None else []
    if (
        follower is not None
        and isinstance(follower.op, Elementwise)
        and others
        and all(v and v.is_const for v in others)
    ):
        full, constant = (
            follower.op.reference(_arrays(follower, {**held, out: part}))[0] for part in (full, constant)
        )  # normalisation by channel
    contrast = float(full.std((-2, -1)).mean())
    return float(np.abs(constant).mean()) / contrast if contrast > 0 else None


def _limits(graph: Graph, entry: Value, shape: tuple[int, ...]) -> tuple[float, float] | None:
    """Return the least and largest number that reach the first convolution, if quantisation cuts them."""
    ends = []
    for extreme in (-_EXTREME, _EXTREME):
        found = _to_convolution(graph, entry, np.full(shape, extreme, np.float32))
        if found is None or found[0].inputs[0] is None or found[0].inputs[0] not in found[1]:
            return None
        ends.append(float(found[1][found[0].inputs[0]].flat[0]))
    return (ends[0], ends[1]) if max(map(abs, ends)) < 1000 and ends[0] < ends[1] else None


def _arrays(node: Node, held: Mapping[Value, Array]) -> list[Array | None]:
    return [None if v is None else v.array if v.is_const else held[v] for v in node.inputs]
