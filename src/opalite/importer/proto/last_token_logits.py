"""Last-token outputs: reduces logits to the last position, the only one that generation needs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from onnx import helper, numpy_helper

from .graphdef import read_opsets
from .subgraphs import nested_nodes

_log = logging.getLogger(__name__)
_SINCE = 11
"""First opset in which Gather accepts negative indices."""


def keep_last_position(proto: Any, names: Iterable[str]) -> None:
    """Reduce the named outputs [batch, positions, ...] to the last position: [batch, 1, ...].

    Outputs that the model lacks, of unknown rank, or with one position stay unchanged.
    """
    opset = read_opsets(proto.opset_import).get("", 0)
    for name in dict.fromkeys(names):
        output = next((o for o in proto.graph.output if o.name == name), None)
        maker = next((n for n in proto.graph.node if name in n.output), None)
        if output is None or maker is None or opset < _SINCE:
            _log.info("the model has no output '%s' to take the last position of", name)
            continue
        dims = output.type.tensor_type.shape.dim
        if len(dims) > 1 and dims[1].dim_value != 1:
            _keep_last(proto.graph, name)
            dims[1].dim_value = 1


def _keep_last(graph: Any, name: str) -> None:
    """Rename value `name`, and give its old name to the last position."""
    whole, index = f"{name}/all positions", f"{name}/last position"
    for node in graph.node:
        for names in (node.output, *(n.input for n in (node, *nested_nodes(node)))):
            names[:] = [whole if n == name else n for n in names]
    graph.initializer.append(numpy_helper.from_array(np.array([-1]), index))
    graph.node.append(helper.make_node("Gather", [whole, index], [name], name=f"{name}/last", axis=1))
