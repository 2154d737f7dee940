"""Preprocess: conversion of a picture's pixels to a model's numbers, its presets, and its files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError

FITS = ("stretch", "crop", "letterbox")
COLORS = ("rgb", "bgr")
LAYOUTS = ("NCHW", "NHWC")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocess:
    """Conversion of a picture: (pixel * scale - mean) / std, channels in the order `colors`, axes in `layout`.

    Pixels are 0 to 255. mean, std: one number, or one for each channel in the order `colors`. layout: NCHW, NHWC, or ''
    for what the input's shape says. fit: how a picture gets an input's fixed size: 'stretch' changes its proportions,
    'crop' cuts off what is too long, 'letterbox' adds bars of grey. share: with 'crop', the part of the shorter side
    that stays. reason: where the numbers are from, for people.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 1 / 255
    colors: str = "rgb"
    layout: str = ""
    fit: str = "stretch"
    share: float = 1.0
    reason: str = ""
    guessed: bool = False

    def __post_init__(self) -> None:
        for what, value, known in (("colors", self.colors, COLORS), ("fit", self.fit, FITS)):
            if value not in known:
                raise InputError(f"--{what} {value}: expected {' or '.join(known)}")
        if self.layout not in ("", *LAYOUTS):
            raise InputError(f"--layout {self.layout}: expected NCHW or NHWC")
        if not all(map(math.isfinite, (*self.mean, *self.std, self.scale))):
            raise InputError("mean, std and scale of a conversion must be finite numbers")
        if self.scale == 0:
            raise InputError("--scale must not be 0: pixels are multiplied by it")
        if 0 in self.std:
            raise InputError("--std must not be 0: pixels are divided by it")
        if not 0 < self.share <= 1:
            raise InputError(f"the share of a picture that a crop keeps is above 0 and at most 1; it is {self.share}")

    def describe(self) -> str:
        """Say the conversion in words: the preset, or its numbers."""
        same = replace(self, colors="rgb", layout="", fit="stretch", share=1.0, reason="", guessed=False)
        name = next((k for k, v in PRESETS.items() if replace(v, colors="rgb") == same), None)
        if name is None:
            numbers = (("mean", self.mean), ("std", self.std))
            scale = "pixels" if self.scale == 1 else f"pixels x {self.scale:.6g}"
            name = ", ".join([scale, *(f"{k} {','.join(f'{n:g}' for n in v)}" for k, v in numbers)])
        return f"{name}, {self.colors.upper()}"


PRESETS: Mapping[str, Preprocess] = {
    "0..1": Preprocess(),
    "-1..1": Preprocess(mean=(1.0,), scale=1 / 127.5),
    "imagenet": Preprocess(IMAGENET_MEAN, IMAGENET_STD),
    "raw": Preprocess(scale=1.0),
    "caffe": Preprocess((104.0, 117.0, 123.0), scale=1.0, colors="bgr"),
}
"""Conversions by name. caffe: 0 to 255 without the mean colour of ImageNet, blue first."""


def find_preprocess(name: str) -> Preprocess:
    """Return a preset by name, or what a .json file says. InputError for others."""
    if name in PRESETS:
        return replace(PRESETS[name], reason=f"--preprocess {name}")
    if name.endswith(".json"):
        return read_preprocess(Path(name))
    raise InputError(f"--preprocess {name}: expected {', '.join(PRESETS)}, or a .json file")


def read_preprocess(path: Path) -> Preprocess:
    """Read a .json file: this class's fields, transformers' preprocessor_config.json, or timm's config.json.

    InputError if the file is neither.
    """
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise InputError(f"{path} could not be read as .json: {getattr(e, 'strerror', None) or e}") from e
    try:
        made = _from_keys(raw if isinstance(raw, dict) else {})
    except (TypeError, ValueError, KeyError, AttributeError) as e:
        raise InputError(f"{path}: a value of its keys is not of the expected kind: {e}") from e
    if made is None:
        raise InputError(
            f"{path} has none of the keys mean, std, scale, colors, layout, fit (or image_mean, pretrained_cfg ...)"
        )
    return replace(made, reason=path.name)


def _from_keys(raw: Mapping[str, Any]) -> Preprocess | None:
    raw = raw.get("pretrained_cfg", raw)
    if "image_mean" in raw or "rescale_factor" in raw or "do_rescale" in raw:
        return _from_transformers(raw)
    own: dict[str, Any] = {k: _floats(raw[k]) for k in ("mean", "std") if k in raw}
    own |= {k: float(raw[k]) for k in ("scale", "share") if k in raw}
    own |= {k: str(raw[k]) for k in ("colors", "layout", "fit") if k in raw}
    if "crop_pct" in raw:
        own |= {"fit": "crop", "share": float(raw["crop_pct"])}
    return Preprocess(**own) if own else None


def _from_transformers(raw: Mapping[str, Any]) -> Preprocess:
    made: dict[str, Any] = {"scale": float(raw.get("rescale_factor", 1 / 255)) if raw.get("do_rescale", True) else 1.0}
    if raw.get("do_normalize", True) and raw.get("image_mean") is not None:
        made |= {"mean": _floats(raw["image_mean"]), "std": _floats(raw["image_std"])}
    if raw.get("do_center_crop") and isinstance(raw.get("crop_size"), dict | int):
        edges = [min(v.values()) if isinstance(v, dict) else v for v in (raw["crop_size"], raw.get("size")) if v]
        made |= {"fit": "crop", "share": min(1.0, edges[0] / edges[-1])}
    return Preprocess(**made)


def _floats(value: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in value) if isinstance(value, list | tuple) else (float(value),)
