"""Import of the operators that other packages register (opalite.kernel): attributes by their declared types."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from ...errors import ShapeError, UnsupportedOpError
from ...ir import Value
from ...ops.model_names import ATTRIBUTE_TYPES, MODEL_NAMES, TFLITE_DOMAIN
from ...ops.operator import Op, make_op
from .node_context import NodeContext, Result


def import_registered(ctx: NodeContext) -> Result:
    """The node by the operator that is registered for its domain, name and version."""
    versions = MODEL_NAMES[ctx.domain, ctx.op_type]
    cls = versions[max(since for since in versions if since <= ctx.version)]
    op = make_op(cls.__name__, _attributes(ctx, cls))
    inputs = list(ctx.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    types = [None if v is None else v.type for v in inputs]
    op.check_shape(types)
    given = len(op.infer_shape(types))
    if given < ctx.n_outputs:
        raise ShapeError(f"{ctx.label} has {ctx.n_outputs} outputs; {cls.__name__}.infer_shape gives {given}")
    found: list[Value | None] = [*ctx.add_many(op, inputs, ctx.n_outputs)]
    return found


def _attributes(ctx: NodeContext, cls: type[Op]) -> dict[str, Any]:
    """The node's attributes, converted to the declared types. ShapeError names one that does not fit."""
    if ctx.domain == TFLITE_DOMAIN:
        from ..tflite.common import is_quantized
        from ..tflite.custom import flex_options

        if is_quantized(ctx):
            raise UnsupportedOpError(
                f"{ctx.label} has quantised tensors, which registered operators do not take; convert the model in float"
            )
        given = flex_options(ctx)
    else:
        given = ctx.parts[1].attrs
    hints = get_type_hints(cls)
    known = {f.name: hints[f.name] for f in dataclasses.fields(cls)}
    given = {f"{name}_" if name not in known and f"{name}_" in known else name: v for name, v in given.items()}
    for name in given:
        if name not in known:
            raise ShapeError(
                f"{ctx.label} has the attribute {name!r}; operator {cls.__name__} declares {', '.join(known) or 'none'}"
            )
    missing = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in given]
    if missing:
        raise ShapeError(f"{ctx.label} lacks the attribute {missing[0]!r}, for which {cls.__name__} has no default")
    return {name: _converted(ctx, name, value, known[name]) for name, value in given.items()}


def _converted(ctx: NodeContext, name: str, value: Any, wanted: Any) -> Any:
    kind = ATTRIBUTE_TYPES[wanted]
    several = wanted not in (bool, int, float, str)
    items = value if isinstance(value, tuple | list) else (value,)
    fits = several == isinstance(value, tuple | list) and all(_is_a(v, kind) for v in items)
    if not fits:
        expected = f"a tuple of {kind.__name__}" if several else kind.__name__
        raise ShapeError(f"{ctx.label} has {name} = {value!r}; {expected} is declared")
    made = tuple(kind(v) for v in items)
    return made if several else made[0]


def _is_a(value: Any, kind: type[Any]) -> bool:
    if kind is str:
        return isinstance(value, str)
    is_number = isinstance(value, int | float) and not isinstance(value, str)
    return is_number and (kind is float or value == int(value))
