"""Host execution of ONNX operators: by the NumPy code of this folder, else by onnx's reference evaluator."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

import onnx

from ...errors import ModelError, OpaliteError, UnsupportedOpError
from ...ir import TensorType, Value
from ...ops.host import BY_PYTHON, HostOp, set_host_runner
from ..proto.encode import make_proto
from ..proto.graphdef import DOMAIN, NodeDef
from ..proto.op_schemas import find_schema, infer_types
from ..walk.constant_evaluation import RANDOM_OPS
from ..walk.graph_builder import GraphBuilder
from .numpy_ops import Step, find_native, is_native

REFERENCE_OPS = {
    ("", "BatchNormalization"): "it trains, in the form of opsets before 14",
    ("", "DeformConv"): "its spatial axes are not two",
    ("", "Dropout"): "it trains",
    ("", "ImageDecoder"): "it decodes pictures, by Pillow",
    ("", "QLinearMatMul"): "its operands are floats of 8 bits",
    ("ai.onnx.preview.training", "Adagrad"): "it trains",
    ("ai.onnx.preview.training", "Adam"): "it trains",
    ("ai.onnx.preview.training", "Momentum"): "it trains",
}
"""Operators that only onnx's reference evaluator computes, with the reason (docs/placement.md). It is slow Python."""

_log = logging.getLogger(__name__)


class NeedTask(Exception):  # noqa: N818  (a signal to GraphWalk, not an error)
    """Output types of the node are unknown before it runs: it runs as a task between two segments."""


def emit_host(
    builder: GraphBuilder,
    node: NodeDef,
    inputs: Sequence[Value | None],
    types: Sequence[TensorType] | None = None,
    reason: str = "",
) -> list[Value | None]:
    """Add the node as a HostOp and return its outputs (None for unnamed ones).

    types: of the named outputs, if the importer knows these types. With constant inputs the node runs at once. NeedTask
    if neither the importer nor onnx's inference knows the types of all outputs.
    """
    inputs = [None if v is None else builder.fix_sizes(v) for v in inputs]
    proto = make_proto(node).SerializeToString()
    place = [i for i, n in enumerate(node.outputs) if n]
    outs: Sequence[Value]
    if node.op_type not in RANDOM_OPS and all(v is None or v.is_const for v in inputs):
        data = [None if v is None else v.data for v in inputs]
        arrays = run_host(node.op_type, node.domain, node.version, proto, data)
        if not all(isinstance(a, np.ndarray) for a in arrays):
            raise NeedTask
        outs = [builder.constant(a, node.outputs[i]) for i, a in zip(place, arrays, strict=True)]
    else:
        if types is None:
            # For operators unknown to onnx, the types are known only after the host has run them.
            written_here = find_native(node.op_type, node.domain, proto) is not None
            types = None if written_here and find_schema(node) is None else infer_types(node, inputs)
        if types is None:
            raise NeedTask
        reason = reason or host_reason(node.op_type, node.domain)
        op = HostOp(node.op_type, node.domain, node.version, proto, tuple(types), reason)
        name = node.outputs[place[0]]
        outs = builder.add(op, inputs, n_outputs=len(types), name=node.name, origin=node.op_type, out_name=name)
    by_place = dict(zip(place, outs, strict=True))
    return [by_place.get(i) for i in range(len(node.outputs))]


def add_host(
    builder: GraphBuilder,
    node: NodeDef,
    op_type: str,
    inputs: Sequence[Value | None],
    types: Sequence[TensorType],
    reason: str,
    attrs: Mapping[str, Any],
) -> list[Value]:
    """Add a host operator of domain 'opalite' as a part of `node`; its outputs have `types`."""
    names = ["" if v is None else f"x{i}" for i, v in enumerate(inputs)]
    outs = [f"y{i}" for i in range(len(types))]
    proto = onnx.helper.make_node(op_type, names, outs, domain=DOMAIN, **attrs).SerializeToString()
    out_name = next((o for o in node.outputs if o), node.name)
    if all(v is None or v.is_const for v in inputs):
        arrays = run_host(op_type, DOMAIN, 1, proto, [None if v is None else v.data for v in inputs])
        return [builder.constant(a, out_name) for a in arrays]
    op = HostOp(op_type, DOMAIN, 1, proto, tuple(types), reason)
    return builder.add(op, inputs, n_outputs=len(types), name=node.name, origin=node.op_type, out_name=out_name)


def host_reason(op_type: str, domain: str) -> str:
    """Return the reason why an operator runs on the host, and its implementation."""
    if op_type in _PASS_THROUGH_OPS or is_native(op_type, domain):
        return "NumPy computes it: the operator has no canonical form"
    return f"{BY_PYTHON}: {REFERENCE_OPS.get((domain, op_type), 'nothing else here knows the operator')}"


def run_host(op_type: str, domain: str, opset: int, proto: bytes, inputs: Sequence[Any]) -> list[Any]:
    """Run one ONNX node and return its named outputs.

    `proto` is a serialised NodeProto. `inputs` are arrays, lists of arrays (sequences) or None (absent, or an empty
    optional), in the node's order. UnsupportedOpError if onnx has no implementation; ModelError if it fails.
    """
    if op_type in _PASS_THROUGH_OPS:
        return _run_pass_through(op_type, inputs)
    step = _find_step(op_type, domain, opset, proto)
    arrays = [v if type(v) is np.ndarray else _plain(v) for v in inputs]
    try:
        with np.errstate(all="ignore"):
            found = step(arrays)
    except OpaliteError as e:
        raise e.add_context(f"while running {op_type} node of opset {opset} on the host") from e
    except NotImplementedError as e:
        raise UnsupportedOpError(f"{op_type} node of opset {opset} cannot run on the host: {e}") from e
    except Exception as e:  # the reference implementations raise whatever NumPy raises
        kinds = ", ".join(f"x{i}: {_describe(v)}" for i, v in enumerate(arrays))
        raise ModelError(
            f"{op_type} node of opset {opset} failed on the host with inputs {kinds or '(none)'}: {_innermost(e)}"
        ) from e
    return [v if type(v) is np.ndarray and v.dtype.kind not in "US" else _result(v) for v in found]


@lru_cache(maxsize=256)
def _find_step(op_type: str, domain: str, opset: int, proto: bytes) -> Step:
    """Return Opalite's NumPy implementation of the node, else that of onnx's ReferenceEvaluator."""
    return find_native(op_type, domain, proto) or _reference(op_type, domain, opset, proto)


def _reference(op_type: str, domain: str, opset: int, proto: bytes) -> Step:
    """Make a step of onnx's ReferenceEvaluator, for a graph of this node only."""
    from onnx.reference import ReferenceEvaluator  # takes 50 ms; most models do not need it

    node = onnx.NodeProto.FromString(proto)
    graph = onnx.GraphProto(name=op_type)
    graph.node.append(node)
    graph.output.extend(onnx.ValueInfoProto(name=o) for o in node.output if o)
    try:
        # Inputs stay undeclared: a function body that depends on types then takes them from the arrays.
        evaluator = ReferenceEvaluator(graph, opsets={"": max(opset, 1), domain: opset})
    except Exception as e:
        raise UnsupportedOpError(
            f"{op_type} of domain '{domain or 'ai.onnx'}' has neither an importer function here nor an implementation "
            f"in onnx's reference evaluator ({_innermost(e)}): replace it in the model"
        ) from e

    _warn_once(op_type, domain)

    def run(arrays: Sequence[Any]) -> list[Any]:
        return list(evaluator.run(None, {n: v for n, v in zip(node.input, arrays, strict=False) if n}))

    return run


@cache
def _warn_once(op_type: str, domain: str) -> None:
    """Log once that Python computes an operator."""
    _log.warning("%s of domain '%s': %s", op_type, domain or "ai.onnx", host_reason(op_type, domain))


_PASS_THROUGH_OPS = frozenset(("Optional", "OptionalHasElement", "OptionalGetElement", "Identity", "PassThrough"))


def _run_pass_through(op_type: str, inputs: Sequence[Any]) -> list[Any]:
    """Run an operator on optionals, which are Python values: None, or their contents."""
    held = inputs[0] if inputs else None
    if op_type == "OptionalHasElement":
        return [np.asarray(held is not None)]
    if op_type == "OptionalGetElement" and held is None:
        raise ModelError("OptionalGetElement reads an optional that holds nothing")
    return [held]


def _plain(value: Any) -> Any:
    """Convert a value to NumPy arrays on the host; maps stay dicts."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return np.asarray(value)


def _result(value: Any) -> Any:
    """Convert an output to an ndarray (strings as objects) or a list of them."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [_result(v) for v in value]
    if isinstance(value, dict):  # an element of ZipMap's sequence
        return value
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _describe(value: Any) -> str:
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if isinstance(value, dict):
        return f"a map of {len(value)}"
    return "absent" if value is None else f"{value.dtype}{list(value.shape)}"


def _innermost(e: BaseException) -> str:
    while e.__cause__ is not None:
        e = e.__cause__
    return f"{type(e).__name__}: {e}"


set_host_runner(run_host)
