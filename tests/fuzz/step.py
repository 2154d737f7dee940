"""Nodes of a model that are computed together, as a model of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

from onnx import helper

from .oracle import value_info

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Step:
    """Nodes that are computed together: mostly one. inputs: what they read beside constants."""

    nodes: list[Any]
    inputs: list[str]
    outputs: list[str]
    constants: Mapping[str, Any]  # TensorProto by name
    whole: Any  # the ModelProto that they are of

    def model(self, inputs: Arrays, change: Callable[[Any], Any] = lambda proto: proto) -> Any:
        """Of these nodes alone. change: applied to all nodes and constants."""
        graph = helper.make_graph(
            [change(n) for n in self.nodes],
            "step",
            [value_info(i, inputs[i], None) for i in self.inputs],
            [helper.make_empty_tensor_value_info(o) for o in self.outputs],
            [change(t) for t in self.constants.values()],
        )
        return helper.make_model(graph, opset_imports=self.whole.opset_import, ir_version=self.whole.ir_version)

    def array(self, node: Any, number: int, inputs: Arrays) -> Array | None:
        """What `node` reads as its input `number`; None where that is computed within the step."""
        name = node.input[number] if len(node.input) > number else ""
        if name in self.constants:
            return np.asarray(nph.to_array(self.constants[name]))
        return inputs.get(name)

    def with_node(self, node: Any) -> Step:
        """`node` in the place of the only one."""
        return Step([node], self.inputs, self.outputs, self.constants, self.whole)
