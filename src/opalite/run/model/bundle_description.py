"""A bundle's description of its model, as JSON: inputs, outputs, metadata."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ...errors import BundleError
from .model_inputs_outputs import NodeArg

if TYPE_CHECKING:
    from .imported_model import ImportedModel
    from .model_interface import Model


def describe_model(model: Model | ImportedModel) -> dict[str, Any]:
    """The description of `model`. BundleError for inputs or outputs that are no tensors."""
    metadata = dataclasses.asdict(model.meta)
    metadata["custom_metadata_map"] = dict(metadata["custom_metadata_map"])
    return {
        "inputs": [_port(a) for a in model.inputs],
        "outputs": [_port(a) for a in model.outputs],
        "overridable": [_port(a) for a in model.overridable],
        "metadata": metadata,
        "opset": model.opset,
    }


def _port(a: NodeArg) -> dict[str, Any]:
    if a.dtype is None:
        raise BundleError(f"'{a.name}' is {a.type}: only models of tensors can be compiled; run the .onnx file")
    return {"name": a.name, "type": a.type, "shape": list(a.shape), "dtype": a.dtype.short, "any_rank": a.any_rank}
