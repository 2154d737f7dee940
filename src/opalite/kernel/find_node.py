"""The node of a model for which `opalite kernel new` writes a kernel: a planned one, or one of an unknown operator."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import InputError, UnsupportedOpError
from ..importer.walk.node_context import NodeContext, provisional_handlers
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Node
from ..ir.symbols import hint_of
from ..ir.tensor_type import TensorType
from ..ops.model_names import TFLITE_DOMAIN
from ..ops.operator import Array, Arrays, Op, Types
from ..run.model.compile_options import CompileOptions
from ..run.model.imported_model import ImportedModel
from ..run.model.model_inputs_outputs import NodeArg
from ..run.report.device_plan import example_graphs, graph_planner


@dataclass(frozen=True)
class UnknownNode:
    """A node of an operator that nothing here knows. outputs: their types, those of the model where it declares them.

    const: numbers of the inputs that are constants. guessed: whether the types of the outputs are guesses.
    """

    name: str
    op_type: str
    domain: str
    version: int
    attributes: Mapping[str, Any]
    inputs: tuple[TensorType | None, ...]
    const: tuple[int, ...]
    outputs: tuple[TensorType, ...]
    guessed: bool


@dataclass(frozen=True)
class _Provisional(Op):
    """An operator that stands for an unknown one, so that the rest of the model can be imported."""

    name: ClassVar[str] = "Provisional"
    types: tuple[TensorType, ...] = ()

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return list(self.types)

    def reference(self, arrays: Arrays) -> list[Array]:
        return [np.zeros(tuple(map(hint_of, t.shape)), t.dtype.np) for t in self.types]


def find_node(
    model: str | os.PathLike[str], name: str, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]]
) -> Node | UnknownNode:
    """The node that has this name, gives this output or is of this operator. InputError lists the nodes."""
    seen: list[UnknownNode] = []
    with provisional_handlers() as provide:
        graphs, _, _ = example_graphs(_import(model, seen, provide), shapes)
    found = next((u for u in seen if name in (u.name, u.op_type)), None)
    if found is not None:
        return found
    if seen:
        names = ", ".join(f"{u.op_type} '{u.name}'" for u in seen)
        raise InputError(f"no node of an unknown operator is named {name!r}; there are: {names}. Register these first")
    plan = graph_planner(device, CompileOptions("fp32"), keeps_graph=True)
    nodes: list[Node] = []
    for graph in graphs:
        planned = plan(graph)
        assert planned.emitted is not None
        nodes += [n for n in planned.emitted.graph.nodes if n.chosen.kernel is not None]
    return _matching(nodes, name)


def _import(model: Any, seen: list[UnknownNode], provide: Any) -> ImportedModel:
    """The model, with a provisional operator for each that is unknown."""
    outputs: dict[str, NodeArg] = {}
    while True:
        try:
            imported = ImportedModel(model)
        except UnsupportedOpError as e:
            if e.operator is None or not provide(*e.operator, lambda ctx: _note(ctx, seen, outputs)):
                raise
            continue
        outputs.update((a.name, a) for a in imported.outputs)
        return imported


def _note(ctx: NodeContext, seen: list[UnknownNode], outputs: Mapping[str, NodeArg]) -> Any:
    """Record an unknown node, and import it as if its outputs had the types that the model declares."""
    _, definition, inputs = ctx.parts
    types = [None if v is None else v.type for v in inputs]
    first = next(t for t in types if t is not None)
    declared = [_declared(outputs.get(name), first) for name in definition.outputs]
    given = tuple(t if t is not None else TensorType(first.dtype, first.shape) for t in declared)
    plain = [None if t is None else TensorType(t.dtype, tuple(map(hint_of, t.shape))) for t in types]
    outs = tuple(TensorType(t.dtype, tuple(map(hint_of, t.shape))) for t in given)
    label = definition.name or next((o for o in definition.outputs if o), "")
    const = tuple(i for i, v in enumerate(inputs) if v is not None and v.is_const)
    attributes = dict(definition.attrs)
    if definition.domain == TFLITE_DOMAIN:
        from ..importer.tflite.custom import flex_options

        attributes = flex_options(ctx)
    guessed = None in declared
    seen.append(
        UnknownNode(
            label,
            definition.op_type,
            definition.domain,
            definition.version,
            attributes,
            tuple(plain),
            const,
            outs,
            guessed,
        )
    )
    return ctx.add_many(_Provisional(given), [v for v in inputs if v is not None], len(definition.outputs))


def _declared(arg: NodeArg | None, like: TensorType) -> TensorType | None:
    """The declared type of an output; an open dimension is that of `like` on the same axis."""
    if arg is None or arg.dtype is None or arg.any_rank:
        return None
    if len(arg.shape) == like.rank:
        pairs = zip(arg.shape, like.shape, strict=True)
        return TensorType(arg.dtype, tuple(d if isinstance(d, int) else s for d, s in pairs))
    sizes = tuple(d for d in arg.shape if isinstance(d, int))
    return TensorType(arg.dtype, sizes) if len(sizes) == len(arg.shape) else None


def _matching(nodes: Sequence[Node], name: str) -> Node:
    """The largest node that fits: a name of the model's own may be that of several."""
    found = [n for n in nodes if name == n.name or name in (o.name for o in n.origin)]
    found = found or [n for n in nodes if name in (v.name for v in n.outputs)]
    found = found or [n for n in nodes if name in (n.op.name, *(o.op_type for o in n.origin))]
    if not found:
        names = ", ".join(n.name for n in nodes if n.name)
        raise InputError(f"no node that a kernel computes is named {name!r} after fusion; there are: {names}")
    return max(found, key=lambda n: math.prod(hint_of(n.y.shape)))
