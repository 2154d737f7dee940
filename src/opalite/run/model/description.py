"""What a bundle says of its model, as JSON: inputs, outputs, metadata."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...errors import BundleError
from .model import Source
from .ports import NodeArg


def describe_model(source: Source) -> dict[str, Any]:
    """The description of `source`. BundleError for inputs or outputs that are no tensors."""
    metadata = dataclasses.asdict(source.meta)
    metadata["custom_metadata_map"] = dict(metadata["custom_metadata_map"])
    return {
        "inputs": [_port(a) for a in source.inputs],
        "outputs": [_port(a) for a in source.outputs],
        "overridable": [_port(a) for a in source.overridable],
        "metadata": metadata,
        "opset": source.opset,
    }


def _port(a: NodeArg) -> dict[str, Any]:
    if a.dtype is None:
        raise BundleError(f"'{a.name}' is {a.type}: only models of tensors can be compiled; run the .onnx file")
    return {"name": a.name, "type": a.type, "shape": list(a.shape), "dtype": a.dtype.short, "any_rank": a.any_rank}
