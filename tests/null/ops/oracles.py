"""What references are compared with: one-node models run by onnx's reference evaluator or by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

Array = np.ndarray[Any, Any]


def one_node(op_type: str, arrays: list[Array | None], outputs: int, opset: int, attrs: dict[str, Any]) -> Any:
    """A model of one node whose inputs x0, x1... have the types of `arrays` (None: absent)."""
    from onnx import helper

    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    outs = [f"y{i}" for i in range(outputs)]
    infos = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for i, a in enumerate(arrays)
        if a is not None
    ]
    node = helper.make_node(op_type, names, outs, **attrs)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in outs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def by_onnx(op_type: str, arrays: list[Array | None], outputs: int = 1, opset: int = 18, **attrs: Any) -> list[Array]:
    """Outputs of the node in onnx's reference evaluator."""
    reference = pytest.importorskip("onnx.reference")
    model = one_node(op_type, arrays, outputs, opset, attrs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    return list(reference.ReferenceEvaluator(model).run(None, feeds))


def by_ort(op_type: str, arrays: list[Array | None], outputs: int = 1, opset: int = 19, **attrs: Any) -> list[Array]:
    """Outputs of the node in onnxruntime."""
    ort = pytest.importorskip("onnxruntime")
    model = one_node(op_type, arrays, outputs, opset, attrs)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {f"x{i}": a for i, a in enumerate(arrays) if a is not None}))


def ours(op_type: str, arrays: list[Array], **attrs: Any) -> list[Array]:
    """Outputs of the canonical operator's reference, whose types infer_shape must have foretold."""
    op = make_op(op_type, attrs)
    types = [TensorType(DType.of(a), a.shape) for a in arrays]
    op.check_shape(types)
    found = op.reference(arrays)
    assert op.infer_shape(types) == [TensorType(DType.of(y), y.shape) for y in found]
    return found
