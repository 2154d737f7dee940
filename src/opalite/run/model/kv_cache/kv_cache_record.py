"""Makes the KVCacheSpec (plan/kv_cache_spec.py) of an imported segment: inputs and outputs of its runs on caches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....importer.walk.segments import GraphOutput, PassThrough, Segment
from ....ir.symbols import is_symbolic_int
from ....plan.kv_cache_spec import Cache, InputSpec, KVCacheSpec
from ..imported_model import ImportedModel

_MAX_FIXED_BYTES = 4096  # of an input that must have the same contents in each run


def record_kv_cache_spec(
    imported: ImportedModel, segment: Segment, feeds: Mapping[str, Any], by_contents: Collection[str]
) -> KVCacheSpec | None:
    """The spec of runs of `segment`, the whole model, on feeds like `feeds`; None if they cannot be described.

    by_contents: inputs whose contents, not only their types, selected the segment.
    """
    signature = segment.signature
    assert signature is not None
    if not feeds.keys() >= set(by_contents):
        return None
    fixed = {n: feeds[n] for n in by_contents if n not in signature.contents}
    if any(type(v) is not np.ndarray or v.dtype.hasobject or v.nbytes > _MAX_FIXED_BYTES for v in fixed.values()):
        return None
    tensors, contents = {}, {}
    for name, numbers in signature.shapes.items():
        if name in feeds:
            value = feeds[name]
            tensors[name] = InputSpec(value.dtype.name, tuple(value.shape), numbers)
    for name, numbers in signature.contents.items():
        if name in feeds:
            value = np.asarray(feeds[name])
            values = tuple(map(int, value.reshape(-1).tolist()))
            contents[name] = InputSpec(value.dtype.name, value.shape, numbers, values)
    if tensors.keys() | contents.keys() | fixed.keys() != feeds.keys():
        return None
    constants = imported.constants
    outputs: dict[str, Any] = {}
    for info in imported.outputs:
        source = segment.exports.get(info.name, PassThrough(info.name))
        if isinstance(source, GraphOutput):
            outputs[info.name] = source.index
        elif isinstance(source, PassThrough):
            made = () if segment.shape_inputs is None else segment.shape_inputs.wanted
            if source.name in feeds or source.name in made:
                outputs[info.name] = source.name
            elif source.name in constants:
                outputs[info.name] = constants[source.name]
            else:
                return None
        else:
            outputs[info.name] = source
    return replace(
        shape_kv_cache_spec(segment),
        tensors=tensors,
        contents=contents,
        fixed={n: (v.dtype.name, v.shape, v.tobytes()) for n, v in fixed.items()},
        outputs=outputs,
    )


def shape_kv_cache_spec(segment: Segment) -> KVCacheSpec:
    """The spec of any segment that appends to caches, with the outputs that may stay on the device."""
    signature = segment.signature
    assert signature is not None
    asked = {n for task in segment.tasks for n in task.inputs}
    sources = {n: s.index for n, s in segment.exports.items() if isinstance(s, GraphOutput)}
    on_host = {index for n, index in sources.items() if n in asked}
    return KVCacheSpec(
        len(signature.sizes),
        signature.capacity,
        {},
        {},
        {},
        {n: Cache(r.axis, r.grows, r.present, r.narrow) for n, r in signature.reserved.items()},
        segment.inputs,
        segment.graph.input_output_aliases,
        {n: d.text if is_symbolic_int(d) else str(d) for n, d in segment.lengths.items()},
        {n: index for n, index in sources.items() if index not in on_host},
    )
