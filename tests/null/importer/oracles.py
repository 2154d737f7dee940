"""One-node models: outputs by the importer and the operators' references, by onnxruntime, or by onnx's evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

from onnx import TensorProto, numpy_helper
from opalite.importer.host.onnx_reference import run_host
from opalite.importer.walk.host_tasks import TrimTask
from opalite.ops.host import set_host_runner

from ...helpers.numpy_session import NumpySession

Array = np.ndarray[Any, Any]
MS = "com.microsoft"
ML = "ai.onnx.ml"


def node_model(
    op_type: str,
    arrays: Sequence[Array | None],
    outputs: Sequence[int] = (0,),
    *,
    opset: int = 18,
    domain: str = "",
    const: Sequence[int] = (),
    ml: int = 3,
    **attrs: Any,
) -> tuple[bytes, dict[str, Array]]:
    """Return a model of one node and its feeds. Inputs in `const` are initializers; None is an absent input."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    fed = {n: a for i, (n, a) in enumerate(zip(names, arrays, strict=True)) if a is not None and i not in const}
    infos = [oh.make_tensor_value_info(n, _code(a), a.shape) for n, a in fed.items()]
    fixed = [numpy_helper.from_array(np.asarray(arrays[i]), names[i]) for i in const]
    outs = [f"y{i}" if i in outputs else "" for i in range(max(outputs) + 1)]
    node = oh.make_node(op_type, names, outs, domain=domain, **attrs)
    results = [oh.make_empty_tensor_value_info(n) for n in outs if n]
    graph = oh.make_graph([node], "g", infos, results, initializer=fixed)
    opsets = [oh.make_opsetid("", opset), oh.make_opsetid(MS, 1), oh.make_opsetid(ML, ml)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), fed


def _code(array: Array) -> int:
    return TensorProto.STRING if array.dtype == object else oh.np_dtype_to_tensor_dtype(array.dtype)


def imported(*args: Any, may_use_host: bool = False, **kwargs: Any) -> list[Array]:
    """Return the node's outputs by the importer; no operator may run on the host unless `may_use_host`."""
    model, feeds = node_model(*args, **kwargs)
    ran: list[str] = []

    def runner(op_type: str, *rest: Any) -> list[Any]:
        ran.append(op_type)
        return run_host(op_type, *rest)

    set_host_runner(runner)
    try:
        session = NumpySession(model)
        found = session.run(feeds)
    finally:
        set_host_runner(run_host)
    ran += [type(t).__name__ for t in session.tasks if not isinstance(t, TrimTask)]
    assert may_use_host or not ran, f"{ran} ran on the host"
    return found


def by_ort(*args: Any, **kwargs: Any) -> list[Array]:
    """Return the node's outputs by onnxruntime."""
    ort = pytest.importorskip("onnxruntime")
    model, feeds = node_model(*args, **kwargs)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def by_onnx(*args: Any, **kwargs: Any) -> list[Array]:
    """Return the node's outputs by onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    import onnx

    model, feeds = node_model(*args, **kwargs)
    return list(ReferenceEvaluator(onnx.load_from_string(model)).run(None, feeds))


def assert_same(got: Sequence[Array], want: Sequence[Array], tol: float = 1e-4, steps: int = 0) -> None:
    """Equal shapes and types; floats within `tol` of the largest value, integers within `steps`."""
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if w.dtype.kind == "f":
            np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
            scale = max(1.0, float(np.abs(w[np.isfinite(w)]).max(initial=0)))
            np.testing.assert_allclose(g, w, rtol=tol, atol=tol * scale)
        elif steps:
            assert np.abs(g.astype(np.int64) - w.astype(np.int64)).max(initial=0) <= steps
        else:
            np.testing.assert_array_equal(g, w)


class Values:
    """Repeatable random arrays."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def f(self, *shape: int) -> Array:
        """Normal float32."""
        return self._rng.standard_normal(shape).astype(np.float32)

    def u8(self, *shape: int) -> Array:
        """uint8 of the full range."""
        return self._rng.integers(0, 256, shape).astype(np.uint8)

    def i8(self, *shape: int) -> Array:
        """int8 of the full range."""
        return self._rng.integers(-128, 128, shape).astype(np.int8)

    def i7(self, *shape: int) -> Array:
        """int8 of 7 bits: onnxruntime adds two products with uint8 in 16 bits on processors without VNNI."""
        return self._rng.integers(-64, 64, shape).astype(np.int8)

    def ints(self, low: int, high: int, *shape: int, dtype: Any = np.int64) -> Array:
        """Integers in [low, high)."""
        return self._rng.integers(low, high, shape).astype(dtype)


def f32(value: float) -> Array:
    """A float32 scalar."""
    return np.asarray(value, np.float32)
