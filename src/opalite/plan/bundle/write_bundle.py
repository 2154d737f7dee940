"""Bundle writer: each array once, checksums of everything, atomic replacement."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BundleError
from ...ir.constants.lazy_array import Array, ContentInfo, LazyArray, content_key
from ...ir.device.device_info import DeviceInfo
from ..program import LaunchStep, Program, SlotArg
from ..weights.safetensors_file import write_tensors
from ..weights.weight_files import APART, WeightFiles, byte_sum
from .bundle import VERSION, Bundle, Variant, programs_of, text_digest, with_programs
from .json_codec import Encoder


def _lasting(device: DeviceInfo) -> DeviceInfo:
    """The device without properties that vary between processes: a virtual machine's current memory."""
    if not device.on_host:
        return device
    return dataclasses.replace(device, global_mem=DeviceInfo().global_mem, max_alloc=DeviceInfo().max_alloc)


def save_bundle(
    path: str | os.PathLike[str],
    bundle: Bundle,
    apart: WeightFiles | None = None,
    each: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = map,
) -> None:
    """Write atomically: readers see the old file or the complete new file. Fills in the programs' `weight_keys`.

    apart: the folder of large weights, which the reader needs too. each: `map`, or a parallel substitute, for digests
    and file writes.
    """
    target = Path(path)
    tensors: dict[str, Array] = {}
    sums: dict[str, str] = {}
    texts: dict[str, str] = {}
    files: dict[str, tuple[str, int]] = {}  # path and offset of tables mapped from the model file
    variants = []

    def examine(held: Array | LazyArray) -> tuple[ContentInfo, Array | None]:
        """(facts about the contents, the array unless it is in a file of its own)."""
        if held.dtype == object:
            raise BundleError("a program with string constants cannot be bundled; run the .onnx file")
        is_mapped = isinstance(held, LazyArray) and held.is_mapped
        if is_mapped and isinstance(held, LazyArray) and held.source is not None and apart is not None:
            files[held.contents.digest] = held.source
            return held.contents, None
        # The key of a mapped table depends on its position in the file.
        known = held.contents if isinstance(held, LazyArray) and not is_mapped else ContentInfo()
        is_apart = apart is not None and held.nbytes >= APART
        if known.checksum and is_apart and apart is not None and apart.has(known.digest, held.nbytes):
            return known, None
        array = held.read() if isinstance(held, LazyArray) else held
        known.digest = known.digest or content_key(array)
        known.checksum = known.checksum or byte_sum(np.ascontiguousarray(array))
        if apart is not None and is_apart:
            apart.keep(known.digest, array)
            return known, None
        return known, array

    def keep(arrays: Sequence[Array | LazyArray]) -> list[str]:
        found = list(each(examine, arrays))
        for known, array in found:
            sums[known.digest] = known.checksum
            if array is not None:
                tensors.setdefault(known.digest, array)
        return [known.digest for known, _ in found]

    def add(n: int, v: Variant) -> None:
        encoder = Encoder()
        programs = programs_of(v.content)
        whole = with_programs(v.content, [dataclasses.replace(p, placement=()) for p in programs])
        texts[f"program {n}"] = json.dumps(encoder.encode(whole))
        texts[f"reports {n}"] = json.dumps(Encoder().encode([list(p.placement) for p in programs]))
        keys = keep(encoder.arrays)
        binaries = [np.frombuffer(binary(), np.uint8) for binary in v.binaries.values()]
        by_array = {id(a): key for a, key in zip(encoder.arrays, keys, strict=True)}
        graph = None if v.graph is None else v.graph()
        recorded: dict[str, Any] | None = None
        if graph is not None:
            text = np.frombuffer(json.dumps(graph.data).encode(), np.uint8)
            recorded = {"key": keep([text])[0], "arrays": _kinds(graph.arrays, keep(graph.arrays))}
        for program in programs:
            program.weight_keys = {slot: by_array[id(a)] for slot, a in program.weights.items()}
        variants.append(
            {
                "device": _lasting(v.device).to_json(),
                "fingerprint": v.fingerprint,
                "shapes": v.needs.shapes,
                "images": v.needs.images,
                "sizes": v.needs.sizes,
                "byte_dots": v.needs.byte_dots,
                "arrays": _kinds(encoder.arrays, keys),
                "graph": recorded,
                "picked": sorted({p.weight_keys[slot] for p in programs for slot in picked_slots(p)}),
                "binaries": dict(zip(v.binaries, keep(binaries), strict=True)),
            }
        )

    try:
        for n, v in enumerate(bundle.variants):
            add(n, v)
    except OSError as e:
        raise BundleError(f"'{target}' could not be written: {e.strerror or e}") from e
    digests = {name: text_digest(text) for name, text in texts.items()}
    about: dict[str, Any] = {"files": files, "version": VERSION, "meta": bundle.meta, "variants": variants}
    about |= {"digests": digests, "sums": sums}
    text = json.dumps(about)
    try:
        write_tensors(target, tensors, {"opalite": text, "digest": text_digest(text), **texts})
    except OSError as e:
        raise BundleError(f"'{target}' could not be written: {e.strerror or e}") from e


def _kinds(arrays: Sequence[Array | LazyArray], keys: Sequence[str]) -> list[Any]:
    """Type, shape and key of each array."""
    return [[a.dtype.name, list(a.shape), key] for a, key in zip(arrays, keys, strict=True)]


_PICK = ("Gather", "QuantizedGather")
"""Operators whose kernels read only selected rows."""


def picked_slots(program: Program) -> set[int]:
    """Slots of gather-only weights: tables of which a program's runs read selected rows only."""
    from ...kernels.kernel import kernels_for  # lazy: reading plans must not import kernels, which is slow

    picking = {k.name for op in _PICK for k in kernels_for(op)}
    picked, others = set[int](), set[int]()
    for step in program.steps:
        if isinstance(step, LaunchStep):
            used = {arg.slot for arg in step.args if isinstance(arg, SlotArg)}
            (picked if step.kernel in picking else others).update(used)
    return (picked & program.weights.keys()) - others
