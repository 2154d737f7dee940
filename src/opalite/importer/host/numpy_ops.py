"""Registry of host operators in NumPy: `@host_op` registers what makes the step of one node, `@host_step` a step.

    @host_op("Label", DOMAIN)
    def label(node: HostNode) -> Step:
        labels = node.labels()
        return lambda inputs: [labels[inputs[0]]]

Code before the step runs once per node. The step gets arrays, lists (sequences), dicts (maps) or None.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import onnx

from ...ir.plugins import watch

Step = Callable[[Sequence[Any]], list[Any]]
"""Runs one node on the host: inputs (arrays, lists, dicts or None) to named outputs, both in order."""


@dataclass(frozen=True)
class HostNode:
    """A node for the host. `attrs` holds Python values: decoded strings, arrays for tensors."""

    op_type: str
    attrs: dict[str, Any]
    outputs: tuple[str, ...]

    def named(self, values: Sequence[Any]) -> list[Any]:
        """Select the values of outputs that have a name."""
        return [v for v, name in zip(values, self.outputs, strict=False) if name]


_Run = Callable[[HostNode, Sequence[Any]], list[Any]]
_MAKERS: dict[tuple[str, str], Callable[[HostNode], Step]] = {}
watch(_MAKERS.values)


def host_op(name: str, domain: str = "") -> Callable[[Callable[[HostNode], Step]], Callable[[HostNode], Step]]:
    """Decorate the function that makes the step of operator `name` of `domain`, for all versions."""

    def register(make: Callable[[HostNode], Step]) -> Callable[[HostNode], Step]:
        _MAKERS[domain, name] = make
        return make

    return register


def host_step(name: str, domain: str = "") -> Callable[[_Run], _Run]:
    """Decorate the step of operator `name` of `domain` itself: a function of the node and its inputs."""

    def register(run: _Run) -> _Run:
        host_op(name, domain)(lambda node: partial(run, node))
        return run

    return register


def find_native(op_type: str, domain: str, proto: bytes) -> Step | None:
    """Return the step of node `proto` (a serialised NodeProto); None if it needs the reference implementation."""
    _load()
    make = _MAKERS.get((domain, op_type))
    if make is None:
        return None
    node = onnx.NodeProto.FromString(proto)
    attrs = {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
    return make(HostNode(op_type, attrs, tuple(node.output)))


def is_native(op_type: str, domain: str) -> bool:
    """Whether the operator has a NumPy implementation."""
    _load()
    return (domain, op_type) in _MAKERS


@cache
def _load() -> None:
    """Import every module of this folder, so that its operators register themselves."""
    for module in sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])):
        importlib.import_module(f"{__package__}.{module}")


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        array = onnx.numpy_helper.to_array(value)
        if array.dtype.kind in "OSU":
            text = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()]
            return np.array(text, object).reshape(array.shape)
        return array
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [v.decode() for v in value]
    return value
