"""LiteRT's reference kernels: whole graphs, and one operator on given inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from ...helpers.tflite_writer import Operator, Subgraph, write_model


class Refused(Exception):  # noqa: N818  (no error of a test)
    """LiteRT does not run the graph."""


class Lite:
    """A file in LiteRT, by the reference kernels.

    By the optimised ones where an operator has no reference, or a wrong one: the quantised SUM's takes signed bytes for
    unsigned ones, and LOCAL_RESPONSE_NORMALIZATION's leaves out the last neighbour.
    """

    def __init__(self, graph: Subgraph) -> None:
        model = write_model(graph)
        kinds = (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        wrong = any(
            o.name == "LOCAL_RESPONSE_NORMALIZATION"
            or (o.name == "SUM" and graph.tensors[o.inputs[0]].quant is not None)
            for o in graph.operators
        )
        for kind in kinds[1:] if wrong else kinds:
            try:
                self._it = Interpreter(model_content=model, experimental_op_resolver_type=kind, num_threads=1)
                self._it.allocate_tensors()
                break
            except (RuntimeError, ValueError) as e:
                if "Didn't find op" not in str(e) or kind is not OpResolverType.BUILTIN_REF:
                    raise Refused(str(e)) from e

    def run(self, feeds: Sequence[Any]) -> list[Any]:
        """The outputs for inputs in the file's order."""
        try:
            for d, a in zip(self._it.get_input_details(), feeds, strict=True):
                self._it.set_tensor(d["index"], a)
            self._it.invoke()
        except (RuntimeError, ValueError) as e:
            raise Refused(str(e)) from e
        return [np.array(self._it.get_tensor(d["index"])) for d in self._it.get_output_details()]


def alone(graph: Subgraph, operator: Operator, arrays: dict[int, Any]) -> Subgraph:
    """A graph of one operator; tensors with an array are inputs, others keep their contents."""
    g = Subgraph()
    numbers = {}
    for i in dict.fromkeys([*operator.inputs, *operator.outputs]):
        if i < 0:
            continue
        t = graph.tensors[i]
        shape = arrays[i].shape if i in arrays else t.shape
        numbers[i] = g.tensor(t.dtype, shape, t.data, quant=t.quant, variable=t.variable, packed=t.packed, name=t.name)
        if i in arrays and i in operator.inputs:
            g.inputs.append(numbers[i])
    g.outputs = [numbers[i] for i in operator.outputs]
    ends = [[numbers.get(i, -1) for i in part] for part in (operator.inputs, operator.outputs)]
    fields = {**operator.fields, "version": operator.version, "custom": operator.custom}
    g.op(operator.name, ends[0], ends[1], operator.options, **fields)
    return g
