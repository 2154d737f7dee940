"""Outputs of which the largest number is wanted: a text goes on with the likeliest token."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from onnx import TensorProto, helper, numpy_helper

from ...ir.model_edits import largest_name, likeliest_name
from .graphdef import read_opsets

_log = logging.getLogger(__name__)
_SINCE = 13
"""The opset from which on ArgMax takes every floating-point type."""


def add_likeliest(proto: Any, names: Iterable[str]) -> None:
    """Beside the outputs called `names`, [batch, positions, n] each, give of their last position where the largest
    number is, and the number itself, [batch, 1] each: as outputs NAME/likeliest, in int64, and NAME/largest.

    Nothing is added for outputs that the model does not have, or that have another number of axes or no type.
    """
    opset = read_opsets(proto.opset_import).get("", 0)
    for name in dict.fromkeys(names):
        output = next((o for o in proto.graph.output if o.name == name), None)
        found = None if output is None else output.type.tensor_type
        if found is None or opset < _SINCE or len(found.shape.dim) != 3 or not found.elem_type:
            _log.info("the model has no output '%s' of three axes to give the largest number of", name)
            continue
        _add(proto.graph, name, found)


def _add(graph: Any, name: str, logits: Any) -> None:
    index, row = f"{name}/the last", f"{name}/last row"
    token, top = likeliest_name(name), largest_name(name)
    graph.initializer.append(numpy_helper.from_array(np.array(-1), index))
    graph.node.append(helper.make_node("Gather", [name, index], [row], name=row, axis=1))
    graph.node.append(helper.make_node("ArgMax", [row], [token], name=token, axis=-1, keepdims=1))
    graph.node.append(helper.make_node("GatherElements", [row, token], [top], name=top, axis=-1))
    for made, kind in ((token, TensorProto.INT64), (top, logits.elem_type)):
        value = helper.make_tensor_value_info(made, kind, [None, 1])
        value.type.tensor_type.shape.dim[0].CopyFrom(logits.shape.dim[0])
        graph.output.append(value)
