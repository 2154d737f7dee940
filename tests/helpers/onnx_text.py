"""Models written in ONNX's text form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.checker
import onnx.parser
import pytest

HEADER = """<ir_version: 8, opset_import: ["" : {opset}{more}]>\n"""


def parse(text: str, opset: int = 18, more: str = "") -> Any:
    """A ModelProto from `graph (inputs) => (outputs) {...}`; `more` adds opset imports."""
    return onnx.parser.parse_model(HEADER.format(opset=opset, more=more) + text)


def by_onnxruntime(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Outputs in onnxruntime on the CPU; the calling test skips where it is not installed."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def by_reference(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Outputs in onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def assert_same(got: Any, want: Any) -> None:
    """Equal structure (lists, None), dtypes and shapes; floats to 1e-5."""
    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple))
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
        return
    if want is None:
        assert got is None
        return
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    if want.dtype.kind in "OUS":
        assert got.tolist() == want.tolist()
        return
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
