"""`.opal` bundles: compiled models that run without onnx and without a single pass.

A bundle is one safetensors file: packed weights as its tensors (memory-mapped when loaded), and in its metadata the
topology as versioned JSON: for each variant the device it was planned for, the input shapes, and the Program with
its kernel sources. Program binaries, where the driver gives them, are tensors of bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BundleError
from ..ir.device import DeviceInfo
from .codec import Encoder, decode
from .program import Program

VERSION = 1
SUFFIX = ".opal"
_ALIGNED = {"bfloat16", "object"}  # kept as raw bytes: safetensors' NumPy reader does not know them

Array = np.ndarray[Any, Any]


@dataclass
class Variant:
    """One Program: for one device and one set of input shapes. `binaries` maps source numbers to driver binaries."""

    device: DeviceInfo
    program: Program
    binaries: dict[int, bytes] = field(default_factory=dict)


@dataclass
class Bundle:
    """What an .opal file holds: variants and what the session tells about the model (`meta`, plain JSON)."""

    variants: list[Variant] = field(repr=False)  # programs with sources and weights
    meta: dict[str, Any]

    def find(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Variant:
        """The variant for `device` and input `shapes`; BundleError says which there are."""
        fitting = [v for v in self.variants if plan_key(v.device) == plan_key(device) and _images_fit(v, device)]
        if not fitting:
            names = ", ".join(sorted({v.device.name for v in self.variants}))
            raise BundleError(
                f"the bundle was compiled for {names}, not for {device.name}; "
                f"compile it again with --device, or run the .onnx file"
            )
        if shapes is None:
            return fitting[0]
        for v in fitting:
            if all(tuple(shapes.get(i.name, i.shape)) == i.shape for i in v.program.inputs):
                return v
        known = "; ".join(
            ", ".join(f"{i.name}:{'x'.join(map(str, i.shape))}" for i in v.program.inputs) for v in fitting
        )
        came = ", ".join(f"{k}:{'x'.join(map(str, s))}" for k, s in shapes.items())
        raise BundleError(f"the bundle was compiled for shapes {known}; got {came}; compile it with --shape for these")


def _images_fit(variant: Variant, device: DeviceInfo) -> bool:
    """Whether every image of the variant's program is within the limits of `device`, which differ within a family."""
    sizes = [(w, h) for w, h, _ in variant.program.image_pool]
    sizes += [s.image for s in variant.program.slots if s.image is not None]
    return all(device.fits_image(*size) for size in sizes)


def plan_key(device: DeviceInfo) -> tuple[Any, ...]:
    """What of a device a Program depends on: two devices with the same key run the same bundle."""
    return (
        device.kind,
        device.family,
        device.pack,
        device.fp16,
        device.fp64,
        device.image_support,
        device.max_work_group_size,
        device.base_align,
        device.local_mem,
    )


def save_bundle(path: str | os.PathLike[str], bundle: Bundle) -> None:
    """Write atomically: a reader sees the old file or the whole new one."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors: dict[str, Array] = {}
    variants = []
    for n, v in enumerate(bundle.variants):
        encoder = Encoder()
        topology = encoder.encode(v.program)
        kinds = []
        for i, array in enumerate(encoder.arrays):
            raw = array.dtype.name in _ALIGNED or array.dtype.kind not in "fiub"
            if array.dtype == object:
                raise BundleError("a program with string constants cannot be bundled; run the .onnx file")
            kinds.append([array.dtype.name, list(array.shape)])
            tensors[f"{n}/{i}"] = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if raw else array
        for i, blob in v.binaries.items():
            tensors[f"{n}/binary/{i}"] = np.frombuffer(blob, np.uint8)
        variants.append({"device": v.device.to_json(), "program": topology, "arrays": kinds, "binaries": [*v.binaries]})
    text = json.dumps({"version": VERSION, "meta": bundle.meta, "variants": variants})
    target = Path(path)
    temporary = target.with_name(f".{target.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        metadata = {"opalite": text, "digest": _digest(text)}
        temporary.touch()
        mode = temporary.stat().st_mode  # save_file makes a file that nobody else may read
        save_file({k: np.ascontiguousarray(a) for k, a in tensors.items()}, temporary, metadata=metadata)
        temporary.chmod(mode)
        os.replace(temporary, target)
    except (OSError, SafetensorError) as e:
        raise BundleError(f"'{target}' could not be written: {getattr(e, 'strerror', None) or e}") from e
    finally:
        temporary.unlink(missing_ok=True)


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """The bundle at `path`, weights memory-mapped. BundleError unless it is a whole bundle of this version."""
    from safetensors import SafetensorError, safe_open

    where = Path(path)
    if not where.is_file():
        what = "is a folder" if where.is_dir() else "does not exist"
        raise BundleError(f"bundle '{where}' {what}; `opalite compile` makes one of a model")
    try:
        with safe_open(os.fspath(path), framework="numpy") as f:
            metadata = f.metadata() or {}
            text = metadata.get("opalite")
            if text is None:
                raise BundleError(f"'{where}' is a safetensors file but no opalite bundle")
            # Sizes and kernels are trusted from here on: a damaged one could crash the driver.
            if metadata.get("digest") != _digest(text):
                raise BundleError(f"'{where}' is damaged; compile the model again")
            header = json.loads(text)
            if header["version"] != VERSION:
                found = header["version"]
                raise BundleError(
                    f"'{where}' has bundle version {found}, this opalite reads {VERSION}; compile it again"
                )
            return Bundle([_variant(n, raw, f) for n, raw in enumerate(header["variants"])], header["meta"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, IndexError) as e:
        raise BundleError(f"'{where}' is not a complete .opal bundle ({e}); compile the model again") from e


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _variant(n: int, raw: Mapping[str, Any], f: Any) -> Variant:
    arrays: list[Array] = []
    for i, (dtype, shape) in enumerate(raw["arrays"]):
        tensor: Array = f.get_tensor(f"{n}/{i}")
        if tensor.dtype.name != dtype:
            tensor = tensor.view(_dtype(dtype))
        arrays.append(tensor.reshape(shape))
    binaries = {i: f.get_tensor(f"{n}/binary/{i}").tobytes() for i in raw["binaries"]}
    program: Program = decode(raw["program"], arrays)
    return Variant(DeviceInfo.from_json(raw["device"]), program, binaries)


def _dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def is_bundle(source: Any) -> bool:
    """Whether `source` names an .opal file."""
    return isinstance(source, (str, os.PathLike)) and Path(source).suffix == SUFFIX


def variant_shapes(bundle: Bundle) -> Sequence[dict[str, tuple[int, ...]]]:
    """Input shapes of every variant."""
    return [{i.name: i.shape for i in v.program.inputs} for v in bundle.variants]
