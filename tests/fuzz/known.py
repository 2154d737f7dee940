"""Where onnxruntime's result is not what the operator's definition says: each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx import helper

from .protos import copy_model, prune

Array = np.ndarray[Any, Any]
Test = Callable[[Any, Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Deviation:
    """`applies` is asked of every node that a wrong output depends on, with its attributes."""

    reason: str
    applies: Test


KNOWN: tuple[Deviation, ...] = (
    Deviation(
        "ONNX clips the input of every activation; onnxruntime does not clip an LSTM's cell before the last one",
        lambda n, attrs: n.op_type == "LSTM" and attrs.get("clip", 0) > 0,
    ),
)


REFUSALS = {
    "scale must hold one element for each channel": "onnxruntime broadcasts the scales of a GroupNormalization",
}
"""Parts of Opalite's sentences of other shapes that onnxruntime takes against the definition, with the reason."""


def known_deviation(model: Any, feeds: Mapping[str, Array], outputs: Sequence[str]) -> str:
    """The reason why `outputs` are not held against Opalite, or ''. All of them must depend on such a node."""
    for name in outputs:
        part = copy_model(model)
        del part.graph.output[:]
        part.graph.output.append(helper.make_empty_tensor_value_info(name))
        prune(part)
        for n in part.graph.node:
            attrs = {a.name: helper.get_attribute_value(a) for a in n.attribute}
            for deviation in KNOWN:
                if deviation.applies(n, attrs):
                    return deviation.reason
    return ""
