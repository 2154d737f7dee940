"""Rebuilder: programs of a bundle that is not trusted, emitted again from its graphs, and kept for the next process.

What was emitted is kept at bundles/AB/KEY.safetensors in the cache folder, without the bundle's weights. KEY names the
bundle's contents, this package's files and the settings that emission reads.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ... import knobs
from ...cache.cache_folder import cache_folder, discard, is_writable, trim, usable_folder
from ...cache.cache_keys import digest
from ...errors import BundleError
from ...ir.constants.lazy_array import LazyArray, content_key
from ...ir.device.device_info import DeviceInfo
from ...plan.bundle.bundle import Content, GraphText, Untrusted, programs_of
from ...plan.bundle.json_codec import Encoder, decode, decode_graphs
from ...plan.weights.safetensors_file import TensorFile, TensorFileError, write_tensors
from .plans.plan_key import code_state

_log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]

_LIMITS = ("local_mem", "max_work_group_size", "max_work_item_sizes", "image2d_max")
"""Properties of a device of which kernels may use less."""

_EQUAL = ("kind", "family", "wave_size", "full_wave", "native_float_width", "base_align", "fp16", "fp64")
"""Properties that must be equal."""

_SUFFIX = ".safetensors"


class Rebuilder:
    """A `Rebuild` (plan/bundle/bundle.py) for programs that are to run on `device`."""

    def __init__(self, device: DeviceInfo) -> None:
        self._device = device

    def __call__(self, variant: Untrusted) -> Content:
        """The program, or its template. BundleError for what this version would not make of the graph."""
        if not variant.graph_key:
            raise BundleError("it does not hold the graphs that they were made of")
        _check_device(variant.device, self._device)
        settings = [knobs.get("OPALITE_PLANNER"), knobs.get("OPALITE_BUFFER_ALIASING")]
        parts = [variant.digest, str(variant.number), variant.graph_key, json.dumps(settings), *code_state()]
        path = _path_of(digest(*parts))
        found = None if path is None else _find(path, variant)
        return _made(variant, path) if found is None else found


def _check_device(planned: DeviceInfo, here: DeviceInfo) -> None:
    """BundleError unless what was planned for one device may run on the other."""
    typed = all(type(getattr(planned, f.name)) is type(getattr(here, f.name)) for f in fields(DeviceInfo))
    other = [name for name in _EQUAL if typed and getattr(planned, name) != getattr(here, name)]
    less = [name for name in _LIMITS if typed and np.any(np.greater(getattr(planned, name), getattr(here, name)))]
    if not typed or other or less:
        what = ", ".join([*other, *less]) or "its description"
        raise BundleError(f"they were planned for a device that differs from {here.name} in {what}")


def _path_of(key: str) -> Path | None:
    kept = usable_folder()
    return None if kept is None else kept / "bundles" / key[:2] / f"{key}{_SUFFIX}"


def _made(variant: Untrusted, path: Path | None) -> Content:
    """The content, emitted now, and kept at `path`."""
    from ...plan.bundle.reemit_program import rebuild  # operators and kernels, which other starts do without

    graph = variant.graph()
    records, flow = decode_graphs(graph.data, graph.arrays)
    made = [rebuild(trace, record, variant.device) for trace, record in records]
    exact = {graph.keys[id(array)]: array for rebuilt in made for array in rebuilt.exact}
    for key, array in exact.items():
        _check_exact(key, array.read() if isinstance(array, LazyArray) else array)
    content: Content = made[0].content
    if flow is not None:
        content = replace(flow, programs=tuple(p for rebuilt in made for p in programs_of(rebuilt.content)))
    if path is not None and is_writable(cache_folder()):
        _keep(path, content, graph, list(exact))
    return _named(content, graph.keys, variant)


def _check_exact(key: str, array: Array) -> None:
    """Checksums of a file reveal accidents only; positions that were checked must be those."""
    if content_key(array) != key:
        raise BundleError(f"the array {key[:12]}… is not what its name says")


def _named(content: Content, keys: Mapping[int, str], variant: Untrusted) -> Content:
    """The content with names for its weights, under which no other model finds them: nobody vouches for them."""
    for program in programs_of(content):
        own = {slot: keys.get(id(array), "") for slot, array in program.weights.items()}
        program.weight_keys = {slot: f"{variant.digest}:{key}" for slot, key in own.items() if key}
    return content


def _keep(path: Path, content: Content, graph: GraphText, exact: Sequence[str]) -> None:
    encoder = Encoder()
    data = encoder.encode(content)
    kinds: list[Any] = []
    tables: dict[str, Array] = {}
    for array in encoder.arrays:
        key = graph.keys.get(id(array))
        if key is None:
            table = array.read() if isinstance(array, LazyArray) else array
            key = content_key(table)
            tables[key] = table
        kinds.append([array.dtype.name, list(array.shape), key])
    text = json.dumps({"content": data, "arrays": kinds, "exact": list(exact)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tables, {"program": text, "digest": digest(text)})
    except OSError as e:
        _log.info("what was made of a bundle is not kept: %s", e)
        return
    trim(cache_folder(), knobs.get("OPALITE_CACHE_MB") << 20)


def _find(path: Path, variant: Untrusted) -> Content | None:
    """The record at `path`; None if it is missing, or damaged and therefore removed."""
    if not path.is_file():
        return None
    try:
        file = TensorFile(path)
        text = file.texts["program"]
        about = json.loads(text)
        if file.texts["digest"] != digest(text):
            raise TensorFileError("its digest is another")
        tables = {key: file.get(key) for _, _, key in about["arrays"] if file.has(key)}
    except (TensorFileError, OSError, KeyError, ValueError, TypeError) as e:
        _log.warning("removed %s of the cache: %s; it will be made again", path.name, e)
        discard(path)
        return None
    arrays, keys = [], {}
    for kind, shape, key in about["arrays"]:
        table = tables.get(key)
        if table is None:
            array = variant.array(key, kind, tuple(shape))
            keys[id(array)] = key
        else:
            array = table.view(np.dtype(kind)).reshape(shape)
        if key in about["exact"]:
            _check_exact(key, array.read() if isinstance(array, LazyArray) else array)
        arrays.append(array)
    content: Content = decode(about["content"], arrays)
    with suppress(OSError):  # a read-only cache serves all the same
        os.utime(path)
    return _named(content, keys, variant)
