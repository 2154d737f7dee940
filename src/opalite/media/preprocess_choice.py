"""The conversion of pictures that a model expects: from its file, files beside it, or its numbers."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..ir.dtype import DType
from ..ir.graph import Graph
from .first_layer import first_layer, import_at
from .input_spec import InputSpec
from .picture_input import PictureShape, picture_shape
from .preprocess import PRESETS, Preprocess, read_preprocess

BESIDE = ("preprocess.json", "preprocessor_config.json", "config.json")
"""Files in a model's folder that may say the conversion; STEM.preprocess.json comes before them."""

NO_EVIDENCE = "neither the model nor a file beside it says otherwise"
"""Reason of a conversion that nothing asks for."""

_CARRIED = "opalite.preprocess"
_RANGES = {"NominalRange_0_255": "raw", "Normalized_0_1": "0..1", "Normalized_1_1": "-1..1"}


def choose_preprocess(
    model: str | bytes,
    metadata: Mapping[str, str],
    name: str,
    dtype: DType,
    shape: PictureShape,
    graph: Callable[[], Graph | None],
) -> Preprocess:
    """Find the conversion that the input `name` expects, with the reason.

    In this order: what the file says, what a file beside it says, the input's type, the first convolution's numbers.
    graph: gives the model's for the last, None if it cannot be told.
    """
    found = from_metadata(metadata, name) or _from_files(model)
    if found is not None:
        return found
    if dtype.is_int:
        if dtype is DType.INT8:
            return Preprocess((128.0,), scale=1.0, reason=f"input '{name}' is int8")
        return replace(PRESETS["raw"], reason=f"input '{name}' is {dtype}")
    held = graph()
    layer = None if held is None else first_layer(held, name, shape.layout, shape.channels or 3)
    if layer is not None and layer.takes_bytes:
        reason = "its first convolution is scaled for pixels of 0 to 255"
        return replace(PRESETS["raw"], colors="bgr", reason=reason, guessed=True)
    if layer is not None and layer.takes_bytes is False and shape.channels != 1:
        alike = ", ".join(layer.nearly_as_good)
        hardly = f"; {alike} would suit nearly as well" if alike else ""
        reason = f"its first convolution is scaled for small numbers, and these suit best{hardly}"
        return replace(PRESETS[layer.best], reason=reason, guessed=True)
    return replace(PRESETS["0..1"], reason=NO_EVIDENCE, guessed=True)


def carried_metadata(
    model: str, metadata: Mapping[str, str], inputs: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, str]:
    """Return metadata for a compiled model, which has no graph and lies elsewhere: conversions found, and labels.

    shapes: of the inputs for which it is compiled.
    """
    conversions, carried = {}, {}
    for w in inputs:
        try:
            shape = picture_shape(w.name, shapes.get(w.name, w.shape))
        except InputError:
            continue
        found = choose_preprocess(model, metadata, w.name, w.dtype, shape, lambda: import_at(model, shapes)[0])
        if w.dtype.is_float and found.reason != NO_EVIDENCE:
            conversions[w.name] = asdict(found)
    if conversions:
        carried[_CARRIED] = json.dumps(conversions)
    labels = find_labels(model, metadata)
    if labels and not find_labels(b"", metadata):
        carried["labels"] = json.dumps(labels)
    return carried


def _from_carried(text: str, name: str) -> Preprocess | None:
    try:
        found = dict(json.loads(text)[name])
        numbers: dict[str, Any] = {key: tuple(float(n) for n in found.pop(key)) for key in ("mean", "std")}
        return Preprocess(**numbers, **found)
    except (ValueError, TypeError, KeyError, InputError):
        return None


def from_metadata(metadata: Mapping[str, str], name: str) -> Preprocess | None:
    """Read the conversion from metadata: a bundle's, WinML's keys, Ultralytics', TensorFlow Lite's normalisation."""
    carried = _from_carried(metadata.get(_CARRIED, "{}"), name)
    if carried is not None:
        return carried
    colors = "bgr" if metadata.get("Image.BitmapPixelFormat", "").lower().startswith("bgr") else "rgb"
    declared = _RANGES.get(metadata.get("Image.NominalPixelRange", ""))
    if declared is None and "Image.BitmapPixelFormat" in metadata:
        declared = "raw"  # the default of the convention
    if declared is not None:
        return replace(PRESETS[declared], colors=colors, reason="the model's metadata")
    if "stride" in metadata and "names" in metadata and "task" in metadata:
        fit = "crop" if metadata["task"] == "classify" else "letterbox"
        return Preprocess(fit=fit, reason="the model's metadata")
    try:
        inputs = json.loads(metadata.get("tflite.normalization", "{}"))
        numbers = inputs.get(name)
        if numbers:
            mean, std = (tuple(float(n) for n in numbers[k]) for k in ("mean", "std"))
            return Preprocess(mean, std, 1.0, reason="the model's metadata")
    except (ValueError, TypeError, KeyError, AttributeError, InputError):
        pass
    return None


def _from_files(model: str | bytes) -> Preprocess | None:
    if isinstance(model, bytes):
        return None
    path = Path(model)
    folders = [path.parent, path.parent.parent] if path.parent.name == "onnx" else [path.parent]
    own = [path.with_suffix(".preprocess.json"), path.with_suffix(".json")]
    for file in [*own, *(folder / known for folder in folders for known in BESIDE)]:
        if file.is_file():
            try:
                return read_preprocess(file)
            except InputError:
                continue  # a file for something else
    return None


def find_labels(model: str | bytes, metadata: Mapping[str, str]) -> list[str]:
    """Find the names of a model's classes: in its metadata, packed in it, or in a file beside it; [] if none is there.

    Files: STEM.labels.txt, STEM.labels, STEM.names, STEM.txt, labels.txt, and id2label of config.json.
    """
    for key in ("names", "classes", "labels", "id2label"):
        if found := _list_in(metadata.get(key, "")):
            return found
    for key in ("character", "characters", "dictionary"):
        if len(lines := metadata.get(key, "").splitlines()) > 1:
            return lines
    packed = [v for k, v in metadata.items() if k.endswith(".txt") and "label" in k.lower()]
    if packed:
        return packed[0].splitlines()
    if isinstance(model, bytes):
        return []
    path = Path(model)
    for file in (
        *(path.with_suffix(s) for s in (".labels.txt", ".labels", ".names", ".txt")),
        path.parent / "labels.txt",
    ):
        if file.is_file():
            return read_labels(file)
    config = path.parent / "config.json"
    if config.is_file():
        try:
            return _names(json.loads(config.read_text()).get("id2label") or {})
        except (OSError, ValueError, AttributeError, TypeError):
            return []
    return []


def read_labels(path: Path) -> list[str]:
    """Read one label per line; of a synset line 'n01440764 tench, Tinca tinca' only the words."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"labels {path} could not be read: {getattr(e, 'strerror', None) or e}") from e
    labels = []
    for line in lines:
        head, _, rest = line.partition(" ")
        labels.append(rest if len(head) == 9 and head[0] == "n" and head[1:].isdigit() else line)
    return labels


def _list_in(text: str) -> list[str]:
    """Read a list, or a mapping from numbers, written as JSON or as Python does."""
    if not text.strip().startswith(("[", "{")):
        return []
    for read in (json.loads, ast.literal_eval):
        try:
            return _names(read(text))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return []


def _names(held: Any) -> list[str]:
    if isinstance(held, dict):
        numbered = {int(k): str(v) for k, v in held.items()}
        return [numbered.get(i, "") for i in range(max(numbered) + 1)] if numbered and max(numbered) < 1 << 20 else []
    return [str(v) for v in held]
