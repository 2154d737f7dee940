"""Case: a node by which a kernel is tested and timed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import PluginError
from ..expr.expression import Expr
from ..expr.parse import parse_expr
from ..ir.dtype import DType
from ..ir.graph import Node, Origin, Value
from ..ir.precision import Precision
from ..ir.tensor_type import TensorType
from ..ops.operator import Op, make_op
from ..plan.bundle.json_codec import decode

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
_TYPE = re.compile(r"(\w+)\[([\d, ]*)\]")


@dataclass(frozen=True, eq=False)
class Case:
    """A node: its operator and inputs. A module's kernels are tested and timed by the Cases in its list CASES.

    inputs: each a type such as "f32[5,7]", for random contents; an array; or None for an absent one. Types get other
    sizes in tests, arrays do not. const: numbers of the inputs that are constants, as weights are. epilogue: an
    expression of the first output.
    """

    op: Op
    inputs: Sequence[str | Array | None]
    const: Sequence[int] = ()
    epilogue: Expr | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.op, Op):
            raise PluginError(f"a Case takes an operator, such as make_operator('Softmax', axis=1), got {self.op!r}")
        types = self.types
        if wrong := [i for i in self.const if not (isinstance(i, int) and 0 <= i < len(types) and types[i])]:
            raise PluginError(f"const={tuple(self.const)} of a Case: {wrong[0]!r} is the number of no input")

    @cached_property
    def types(self) -> tuple[tuple[DType, Shape] | None, ...]:
        """Element type and shape of each input; PluginError for a text that is none."""
        return tuple(map(_parse_type, self.inputs))

    @property
    def elements(self) -> int:
        """Elements of the largest input."""
        return max((math.prod(shape) for _, shape in filter(None, self.types)), default=0)

    def arrays(self, shapes: Sequence[Shape | None] = (), dtype: DType | None = None) -> list[Array | None]:
        """Contents of the inputs, the same at each call. shapes: other ones. dtype: in place of float32."""
        rng = np.random.default_rng(0)
        made: list[Array | None] = []
        for i, given in enumerate(self.inputs):
            found = self.types[i]
            if found is None or given is None:
                made.append(None)
                continue
            kind, shape = found
            array = _random(kind, (shapes[i] if shapes else None) or shape, rng) if isinstance(given, str) else given
            made.append(array.astype(dtype.np) if dtype is not None and kind is DType.FLOAT32 else array)
        return made

    def node(self, arrays: Sequence[Array | None], precision: Precision = Precision.FP32) -> Node:
        """The node on `arrays`, without layouts. ShapeError if the operator refuses them."""
        ins = [
            None if a is None else Value(f"x{i}", TensorType(DType.of(a), a.shape), a if i in self.const else None)
            for i, a in enumerate(arrays)
        ]
        node = Node(self.op, list(ins), [], self.epilogue, self.op.name.lower(), (Origin(self.op.name, "case"),))
        node.precision = precision
        node.outputs = [Value(f"y{i}", t) for i, t in enumerate(node.infer())]
        for out in node.outputs:
            out.producer = node
        return node

    def __str__(self) -> str:
        attributes = ", ".join(f"{k}={v}" for k, v in self.op.attributes().items())
        types = ", ".join("-" if t is None else f"{t[0].short}[{','.join(map(str, t[1]))}]" for t in self.types)
        return f"{self.op.name}({attributes}) of {types}"


def make_operator(name: str, **attributes: Any) -> Op:
    """The operator `name`, one of Opalite's or a registered one. InputError for a wrong attribute."""
    try:
        return make_op(name, attributes)
    except KeyError:
        raise PluginError(f"there is no operator {name!r}; `opalite inspect` shows a model's") from None


def expression(text: str, *dtypes: str) -> Expr:
    """The expression that `opalite inspect --node` shows as `text`, of operands of these types, such as "f32"."""
    return parse_expr(text, [DType.parse(d) for d in dtypes])


def from_record(text: str) -> Any:
    """An attribute that has no shorter form in Python, as `opalite kernel new` writes it."""
    return decode(json.loads(text), ())


def type_of(array: Array) -> TensorType:
    """Element type and shape of an array."""
    return TensorType(DType.of(array), array.shape)


def _parse_type(given: str | Array | None) -> tuple[DType, Shape] | None:
    if given is None:
        return None
    if isinstance(given, np.ndarray):
        return DType.of(given), given.shape
    m = _TYPE.fullmatch(given) if isinstance(given, str) else None
    if m is None:
        raise PluginError(f'an input of a Case is a type such as "f32[5,7]", an array or None, got {given!r}')
    try:
        return DType.parse(m[1]), tuple(int(d) for d in m[2].split(",") if d.strip())
    except ValueError as e:
        raise PluginError(f"the input {given!r} of a Case: {e}") from None


def _random(dtype: DType, shape: Shape, rng: np.random.Generator) -> Array:
    """Floats around zero, integers from 0 to 7, booleans."""
    if dtype.is_float:
        return (2 * rng.random(shape, np.float32) - 1).astype(dtype.np)
    return rng.integers(0, 2 if dtype is DType.BOOL else 8, shape).astype(dtype.np)
