"""Skeletons of `opalite kernel new`: a module, its OpenCL C and its test, which pass before anything is filled in.

For a node of an operator that Opalite computes, the skeleton is a copy of the fastest kernel there is. For one of an
unknown operator it is an operator and a kernel that repeat the first input's elements until the output is full.
"""

from __future__ import annotations

import json
import keyword
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..expr.expression import Expr
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Node, Value
from ..ir.plugins import is_foreign
from ..ir.symbols import hint_of
from ..ir.tensor_type import TensorType
from ..kernels.kernel_sources import FOLDER
from ..kernels.launch import STORAGE
from ..kernels.node_in_layouts import place_node
from ..layout.kernel_candidates import find_options
from ..ops.model_names import TFLITE_DOMAIN
from ..ops.operator import Op
from ..plan.bundle.json_codec import Encoder
from .find_node import UnknownNode
from .register_operator import is_reserved

_MOST_LITERALS = 64  # integers of a constant that are written out


@dataclass(frozen=True)
class Skeleton:
    """The files by name, and sentences on what is left to do."""

    files: dict[str, str]
    notes: list[str]


def write_skeleton(skeleton: Skeleton, folder: Path) -> list[Path]:
    """Write the files. InputError if one exists."""
    paths = [folder / name for name in skeleton.files]
    if there := [str(p) for p in paths if p.exists()]:
        raise InputError(f"{', '.join(there)} exists already; choose another name, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, skeleton.files.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def make_skeleton(name: str, node: Node | UnknownNode, device: DeviceInfo) -> Skeleton:
    """The skeleton called `name`, a Python name, for a node."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InputError(f"{name!r} is no name of a Python module: letters, digits and underscores, such as my_softmax")
    found = _operator(name, node) if isinstance(node, UnknownNode) else _rival(name, node, device)
    test = _TEST.format(name=name)
    return Skeleton({**found.files, f"test_{name}.py": test}, found.notes)


def class_name(name: str) -> str:
    """The name of a class, MySoftmax, from that of a module, my_softmax."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


# A rival of a built-in kernel


def _rival(name: str, node: Node, device: DeviceInfo) -> Skeleton:
    inputs, const = [], []
    for i, v in enumerate(node.inputs):
        if v is None:
            inputs.append("None")
            continue
        shape = tuple(map(hint_of, v.shape))
        if v.is_const:
            const.append(i)
        if v.dtype in (DType.INT32, DType.INT64) and (not v.is_const or v.type.count <= _MOST_LITERALS):
            # Positions and the like: random ones would point outside.
            array = v.array.tolist() if v.is_const else None
            made = f"np.zeros({shape}, np.{v.dtype.np})" if array is None else f"np.array({array}, np.{v.dtype.np})"
            inputs.append(made)
        else:
            inputs.append(f'"{v.dtype.short}[{",".join(map(str, shape))}]"')
    base, source = _base(node, device)
    op = _operator_text(node.op)
    arguments = [op, f"[{', '.join(inputs)}]"]
    arguments += [f"const={tuple(const)}"] if const else []
    arguments += [f"epilogue={_expression_text(node.epilogue)}"] if node.epilogue is not None else []
    used = ["Case", "register_kernel", *re.findall(r"\b(make_operator|expression|from_record)\(", " ".join(arguments))]
    lines = "\n".join(textwrap.indent(f"{a},", " " * 8) for a in arguments)
    text = _RIVAL.format(
        name=name,
        cls=class_name(name),
        base=base.__name__,
        module=base.__module__,
        op=node.op.name,
        label=node.label,
        used=", ".join(sorted(set(used), key=lambda u: (not u[0].isupper(), u))),
        arguments=lines,
        numpy="import numpy as np\n\n" if "np." in lines else "",
    )
    notes = [
        f"{name}.cl is a copy of the OpenCL C of {base.__name__}, the fastest kernel for {node.label}: change it",
        f"{name}.py takes launches and parameters from {base.__name__}: override launch, space, refuse as you need",
    ]
    return Skeleton({f"{name}.py": text, f"{name}.cl": source}, notes)


def _base(node: Node, device: DeviceInfo) -> tuple[type[Any], str]:
    """The fastest built-in kernel whose OpenCL C is one file, and that file. InputError if there is none."""
    plain = _unplaced(node)
    options, _ = find_options(plain, device, None)
    for kernel in (o.kernel for o in options if o.kernel is not None):
        if is_foreign(type(kernel)):
            continue
        p = kernel.problem(place_node(plain, kernel.bindings(kernel.problem(plain, device))[0]), device)
        if not any(x.source for x in kernel.launch(p, kernel.defaults(p))):
            return type(kernel), (FOLDER / kernel.source).read_text(encoding="utf-8")
    raise InputError(f"no kernel of one file computes {node.label}, from which a skeleton could begin")


def _unplaced(node: Node) -> Node:
    """The node without layouts, its sizes plain."""
    made = node.with_(inputs=[None if v is None else _plain(v) for v in node.inputs])
    made.outputs = [_plain(v) for v in node.outputs]
    return made


def _plain(v: Value) -> Value:
    found = Value(v.name, TensorType(v.dtype, tuple(map(hint_of, v.shape))))
    found.share(v)
    return found


def _operator_text(op: Op) -> str:
    """Python that makes the operator."""
    attributes = "".join(f", {k}={_literal(v)}" for k, v in op.attributes().items())
    return f'make_operator("{op.name}"{attributes})'


def _literal(value: Any) -> str:
    """Python that makes an attribute, of a symbolic size its hint."""
    value = hint_of(value)
    if isinstance(value, Expr):
        return _expression_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, bool | int | float | str) or value is None:
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return f"from_record({json.dumps(Encoder().encode(value))!r})"


def _expression_text(expr: Expr) -> str:
    return f"expression({str(expr)!r}, {', '.join(repr(d.short) for d in expr.dtypes)})"


# An operator of one's own


def _operator(name: str, node: UnknownNode) -> Skeleton:
    cls = class_name(name)
    fields, strange = [], []
    for key, value in node.attributes.items():
        kind = _attribute_type(value)
        if kind is None or not key.isidentifier():
            strange.append(key)
            continue
        field = f"{key}_" if is_reserved(key) else key
        fields.append(f"    {field}: {kind} = {_literal(tuple(value) if isinstance(value, list) else value)}")
    if strange:
        raise InputError(
            f"{node.op_type} node '{node.name}' has the attributes {', '.join(strange)}, which are no numbers, texts "
            "or lists of these: registered operators do not take them"
        )
    first = node.inputs[0]
    if first is None:
        raise InputError(f"{node.op_type} node '{node.name}' has no first input, from which a skeleton could begin")
    types = ", ".join("None" if t is None else f'"{t}"' for t in node.inputs)
    same = [t.shape == first.shape and t.dtype is first.dtype for t in node.outputs]
    outs = ", ".join(
        "x" if s else f"TensorType({_dtype(t.dtype, first.dtype)}, {t.shape})"
        for s, t in zip(same, node.outputs, strict=True)
    )
    # One REAL serves if all types are equal; else each has a name of its own.
    is_typed = first.dtype in STORAGE and all(t.dtype is first.dtype for t in node.outputs)
    registered = "tflite=True" if node.domain == TFLITE_DOMAIN else f'domain="{node.domain}"'
    registered += "" if node.op_type == cls else f', name="{node.op_type}"'
    text = _OPERATOR.format(
        name=name,
        cls=cls,
        op_type=node.op_type,
        domain=node.domain,
        label=f"{node.op_type} node '{node.name}'",
        registered=registered,
        fields="\n".join(fields) + "\n" if fields else "",
        count=len(node.inputs),
        types=types,
        outs=outs,
        guess="guessed: the model does not declare it" if node.guessed else "those of the model",
        const=f", const={node.const}" if node.const else "",
        imports=("STORAGE, " if is_typed else "")
        + "Case, "
        + ("DType, " if "DType." in outs or not is_typed else "")
        + "Kernel, Launch, Operator, "
        + ("TensorType, " if "TensorType(" in outs else "")
        + "need, register_kernel, register_operator, tensor, type_of",
        defines=_REAL if is_typed else _IN_OUT,
        refusal=_REFUSES_UNKNOWN if is_typed else _REFUSES_HALVES,
    )
    source = (_OPERATOR_CL if is_typed else _CAST_CL).format(name=name, cls=cls)
    notes = [
        f"reference in {name}.py: what {node.op_type} computes, in NumPy; the skeleton repeats the first input",
        f"infer_shape in {name}.py: the types of the outputs{' (guessed)' if node.guessed else ''}",
        f"{name}.cl: the same in OpenCL C; attributes reach it as arguments or defines of launch",
    ]
    return Skeleton({f"{name}.py": text, f"{name}.cl": source}, notes)


def _dtype(dtype: DType, like: DType) -> str:
    return "x.dtype" if dtype is like else f"DType.{dtype.name}"


def _attribute_type(value: Any) -> str | None:
    if isinstance(value, bool | int | float | str):
        return type(value).__name__
    kinds = {type(v).__name__ for v in value} if isinstance(value, tuple | list) else set()
    kind = "float" if kinds == {"int", "float"} else next(iter(kinds), "int")
    return f"tuple[{kind}, ...]" if isinstance(value, Sequence) and kind in ("int", "float", "str") else None


_TEST = '''"""Tests of {name}.py: run by pytest in this folder."""

from pathlib import Path

from opalite.kernel.testing import assert_file


def test_{name}() -> None:
    assert_file(Path(__file__).with_name("{name}.py"))
'''

_RIVAL = '''"""{cls}: a kernel of {op}, which began as a copy of Opalite's {base}."""

{numpy}from opalite.kernel import {used}
from {module} import {base}


@register_kernel
class {cls}({base}):
    """TODO: say how it computes. Parameters, refusals and launches are those of {base} until they are overridden."""

    source = "{name}.cl"


# {label}. Tests run it in other sizes, too.
CASES = [
    Case(
{arguments}
    )
]
'''

_OPERATOR = '''"""{cls}: the operator {op_type} of the domain {domain}, and a kernel for it."""

import numpy as np

from opalite.kernel import {imports}


@register_operator({registered})
class {cls}(Operator):
    """TODO: say what it computes."""

{fields}
    def check_shape(self, ins):
        # TODO: refuse inputs that do not fit, in a sentence.
        need(len(ins) == {count}, f"expected number of inputs: {count}, got {{len(ins)}}")
        tensor(ins, 0, "x")

    def infer_shape(self, ins):
        # TODO: the types of the outputs ({guess}).
        x = ins[0]
        return [{outs}]

    def reference(self, arrays):
        # TODO: what it computes. This repeats the first input until an output is full.
        types = self.infer_shape([None if a is None else type_of(a) for a in arrays])
        return [np.resize(arrays[0], t.shape) for t in types]


@register_kernel
class {cls}Kernel(Kernel):
    """One work-item an element."""

    op = "{cls}"

    def refuse(self, p):
        # TODO: refuse what the OpenCL C does not compute, in a sentence.
{refusal}

    def launch(self, p, params):
        # TODO: give attributes (p.node.as_({cls})) and further inputs (p.node.input(1)) as arguments.
        x = p.node.x
        return [
            Launch(
                "{name}",
                {{"x": x, "y": y, "repeats": x.type.count, "count": y.type.count}},
                (y.type.count,),
                defines={defines},
            )
            for y in p.node.outputs
        ]


# {label}. Tests run it in other sizes, too.
CASES = [Case({cls}(), [{types}]{const})]
'''

_REAL = '{"STORAGE": STORAGE[y.type.storage], "PACK": 1}'
_IN_OUT = '{"IN": x.type.storage.cl, "OUT": y.type.storage.cl}'
_REFUSES_UNKNOWN = (
    '''        return None if p.node.x.dtype in STORAGE else f"elements of {p.node.x.dtype} are not supported"'''
)
_REFUSES_HALVES = """        values = [v for v in (*p.node.inputs, *p.node.outputs) if v is not None]
        kept = [p.node.precision.stored(v.dtype) for v in values]
        narrow = [t for t in kept if t in (DType.FLOAT16, DType.BFLOAT16) or not t.on_device]
        return f"elements of {narrow[0]} are not supported" if narrow else None"""

_CAST_CL = """// {cls}: y[i] = x[i mod repeats], one work-item an element. The grid may be rounded up.
// IN and OUT are the types in memory, which launch defines.

kernel void {name}(global const IN *x, global OUT *y, int repeats, int count) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    // TODO: what the operator computes.
    y[i] = x[i % repeats];
}}
"""

_OPERATOR_CL = """// {cls}: y[i] = x[i mod repeats], one work-item an element. The grid may be rounded up.
// REAL is the type in memory, ACC that of arithmetic; LOAD and STORE convert (Opalite's include/common.cl).

kernel void {name}(global const REAL *x, global REAL *y, int repeats, int count) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    // TODO: what the operator computes.
    const ACC v = LOAD(x, i % repeats);
    STORE(y, i, v);
}}
"""
