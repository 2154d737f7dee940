"""Argmax outputs: adds the index and value of the largest logit, which greedy decoding needs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from onnx import TensorProto, helper, numpy_helper

from ...ir.model_edits import argmax_name, max_name
from .graphdef import read_opsets

_log = logging.getLogger(__name__)
_SINCE = 13
"""First opset in which ArgMax accepts every floating-point type."""


def add_argmax_outputs(proto: Any, names: Iterable[str]) -> None:
    """Add, for each named output [batch, positions, n], argmax and maximum of its last position, [batch, 1] each.

    The new outputs are NAME/argmax (int64) and NAME/max. Outputs that the model lacks, or without three axes or
    a declared type, are skipped.
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
    token, top = argmax_name(name), max_name(name)
    graph.initializer.append(numpy_helper.from_array(np.array(-1), index))
    graph.node.append(helper.make_node("Gather", [name, index], [row], name=row, axis=1))
    graph.node.append(helper.make_node("ArgMax", [row], [token], name=token, axis=-1, keepdims=1))
    graph.node.append(helper.make_node("GatherElements", [row, token], [top], name=top, axis=-1))
    for made, kind in ((token, TensorProto.INT64), (top, logits.elem_type)):
        value = helper.make_tensor_value_info(made, kind, [None, 1])
        value.type.tensor_type.shape.dim[0].CopyFrom(logits.shape.dim[0])
        graph.output.append(value)
