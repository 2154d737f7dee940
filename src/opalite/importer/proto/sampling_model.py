"""Sampling model: an ONNX model from logits to the likeliest tokens (llm/logits_head.py runs it)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from onnx import TensorProto, helper, numpy_helper

from ...ir.dtype import DType
from .decode import elem_code


@cache
def logits_head(dtype: DType, count: int, penalised: bool, banned: bool) -> bytes:
    """Make a model of logits [texts, positions, vocabulary] of `dtype`, which reads the last row of each text.

    count: number of likeliest tokens. 1: the output is the token [texts,1]. Above 1: the outputs are the log-sum-exp of
    logits / `temperature` [texts,1], the logits and the tokens [texts,count]. penalised: logits of the tokens `seen`
    [texts,n] are divided by `penalty` [texts,1] if positive, else multiplied. banned: logits of the tokens `banned`
    [texts,n] become -1e30.
    """
    nodes, inputs = [], [_info("logits", elem_code(dtype), ["texts", "positions", "vocabulary"])]
    constants = {"last": np.array(-1), "axis": np.array([1])}

    def add(kind: str, names: Sequence[str], *outputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, names, outputs, **attributes))
        return outputs[0]

    row = add("Cast", [add("Gather", ["logits", "last"], "last_row", axis=1)], "row", to=TensorProto.FLOAT)
    if penalised:
        inputs += [
            _info("seen", TensorProto.INT64, ["texts", "seen_count"]),
            _info("penalty", TensorProto.FLOAT, ["texts", 1]),
        ]
        constants["zero"] = np.zeros((1, 1), np.float32)
        old = add("GatherElements", [row, "seen"], "old", axis=1)
        below = add("Less", [old, "zero"], "below")
        less, more = add("Mul", [old, "penalty"], "more"), add("Div", [old, "penalty"], "less")
        new = add("Where", [below, less, more], "new")
        row = add("ScatterElements", [row, "seen", new], "penalised", axis=1)
    if banned:
        inputs.append(_info("banned", TensorProto.INT64, ["texts", "banned_count"]))
        constants["lowest"] = np.full((1, 1), -1e30, np.float32)
        hidden = add("Expand", ["lowest", add("Shape", ["banned"], "banned_shape")], "hidden")
        row = add("ScatterElements", [row, "banned", hidden], "allowed", axis=1)
    if count == 1:
        outputs = [_info(add("ArgMax", [row], "token", axis=1, keepdims=1), TensorProto.INT64, ["texts", 1])]
    else:
        inputs.append(_info("temperature", TensorProto.FLOAT, ["texts", 1]))
        total = add("ReduceLogSumExp", [add("Div", [row, "temperature"], "scaled"), "axis"], "total", keepdims=1)
        constants["count"] = np.array([count])
        add("TopK", [row, "count"], "logit", "token", axis=1)
        outputs = [_info(total, TensorProto.FLOAT, ["texts", 1])]
        outputs += [_info("logit", TensorProto.FLOAT, ["texts", count])]
        outputs += [_info("token", TensorProto.INT64, ["texts", count])]
    held = [numpy_helper.from_array(a, n) for n, a in constants.items() if any(n in node.input for node in nodes)]
    graph = helper.make_graph(nodes, "logits_head", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(model.SerializeToString())


def _info(name: str, element: int, shape: Sequence[int | str]) -> Any:
    return helper.make_tensor_value_info(name, element, list(shape))
