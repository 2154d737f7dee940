"""Case: a model and what it is fed, and its form as a file of Python that people read."""

from __future__ import annotations

import base64
import importlib.util
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

import onnx
from onnx import helper

from .oracle import IR_VERSIONS, value_info
from .protos import opset_ids, opset_of

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


@dataclass
class Case:
    """A ModelProto and its feeds. The first fits for certain, the others where onnxruntime takes them."""

    model: Any
    feeds: list[Feeds]

    def save(self, path: Path) -> None:
        """As path.onnx and path.npz, which `load` reads."""
        onnx.save(self.model, path.with_suffix(".onnx"))
        np.savez(path.with_suffix(".npz"), **{f"{i}|{n}": a for i, f in enumerate(self.feeds) for n, a in f.items()})

    @staticmethod
    def load(path: Path) -> Case:
        """A case from its .py, or from NAME.onnx and NAME.npz."""
        if path.suffix == ".py":
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found = module.CASE
            assert isinstance(found, Case)
            return found
        model = onnx.load(path.with_suffix(".onnx"))
        feeds: list[Feeds] = [{}]
        with np.load(path.with_suffix(".npz")) as arrays:
            for key in arrays.files:
                number, name = key.split("|", 1)
                while len(feeds) <= int(number):
                    feeds.append({})
                feeds[int(number)][name] = arrays[key]
        return Case(model, feeds)


# The words that files of cases are written in


def case(
    *,
    opset: int,
    inputs: Mapping[str, Sequence[int | str] | None],
    feeds: Sequence[Feeds],
    nodes: Sequence[Any],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
) -> Case:
    """inputs: declared shapes by name; None leaves the rank open. feeds: one or more sets of inputs."""
    infos = [value_info(n, feeds[0][n], shape) for n, shape in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(o) for o in outputs]
    tensors = [nph.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    proto = helper.make_graph(list(nodes), "fuzz", infos, outs, tensors)
    return Case(helper.make_model(proto, opset_imports=opset_ids(opset), ir_version=IR_VERSIONS[opset]), list(feeds))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> Any:
    """A node; arrays among its attributes are tensors."""
    given = {k: nph.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
    return helper.make_node(op, inputs, outputs, name=f"{op}_{outputs[0]}", **given)


def graph(
    inputs: Mapping[str, tuple[str, Sequence[int | str] | None]],
    nodes: Sequence[Any],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
) -> Any:
    """A body. inputs: (type, shape) by name."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), s)
        for n, (t, s) in inputs.items()
    ]
    tensors = [nph.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    return helper.make_graph(
        list(nodes), "body", infos, [helper.make_empty_tensor_value_info(o) for o in outputs], tensors
    )


def array(values: Any, dtype: str) -> Array:
    """Values as written."""
    return np.asarray(values, dtype)


def noise(shape: Sequence[int], dtype: str = "f4", seed: int = 0) -> Array:
    """Seeded values around zero: normal, or integers below 4 in magnitude."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    low = 0 if np.dtype(dtype).kind in "ub" else -3
    return np.asarray(rng.integers(low, 4, shape) if dtype not in ("?", "bool") else rng.random(shape) < 0.5).astype(
        dtype
    )


def full(shape: Sequence[int], value: float, dtype: str = "f4") -> Array:
    """One value everywhere."""
    return np.full(shape, value, dtype)


def packed(text: str, shape: Sequence[int], dtype: str) -> Array:
    """An array from its compressed bytes."""
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype).reshape(shape)


# Writing them

NAN_WORDS = {"nan": "float('nan')", "inf": "float('inf')", "-inf": "float('-inf')"}


def array_text(a: Array) -> str:
    """The shortest of the words above that gives `a`."""
    kind = a.dtype.str.lstrip("<|=")
    shape = tuple(a.shape)
    if a.size > 4:
        if a.size and (a == a.flat[0]).all():
            return f"full({shape}, {a.flat[0].item()!r}, {kind!r})"
        for seed in range(4):
            if np.array_equal(noise(shape, kind, seed), a):
                return f"noise({shape}, {kind!r}, {seed})"
    if a.size <= 48 and (a.size or a.ndim == 1):
        text = repr(a.tolist())
        for word, meaning in NAN_WORDS.items():
            text = text.replace(word, meaning) if word != "inf" else text
        return f"array({text}, {kind!r})" if "inf" not in text else packed_text(a)
    if not a.size:
        return f"full({shape}, 0, {kind!r})"
    return packed_text(a)


def packed_text(a: Array) -> str:
    text = base64.b85encode(zlib.compress(np.ascontiguousarray(a).tobytes(), 9)).decode()
    return f"packed({text!r}, {tuple(a.shape)}, {a.dtype.str.lstrip('<|=')!r})"


def _attribute_text(a: Any) -> str:
    value = helper.get_attribute_value(a)
    if isinstance(value, onnx.TensorProto):
        return array_text(nph.to_array(value))
    if isinstance(value, onnx.GraphProto):
        return _graph_text(value)
    if isinstance(value, bytes):
        return repr(value.decode())
    if isinstance(value, (list, tuple)):
        return repr([v.decode() if isinstance(v, bytes) else v for v in value])
    return repr(round(value, 7) if isinstance(value, float) else value)


def _node_text(n: Any) -> str:
    attrs = "".join(f", {a.name}={_attribute_text(a)}" for a in n.attribute)
    domain = f", domain={n.domain!r}" if n.domain else ""
    return f"node({n.op_type!r}, {list(n.input)}, {list(n.output)}{domain}{attrs})"


def _dims(info: Any) -> list[int | str] | None:
    tensor = info.type.tensor_type
    return [d.dim_param or d.dim_value for d in tensor.shape.dim] if tensor.HasField("shape") else None


def _graph_text(g: Any) -> str:
    inputs = {}
    for v in g.input:
        kind = helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type).str.lstrip("<|=")
        inputs[v.name] = (kind, _dims(v))
    constants = ", ".join(f"{t.name!r}: {array_text(nph.to_array(t))}" for t in g.initializer)
    nodes = ", ".join(_node_text(n) for n in g.node)
    return f"graph({inputs}, [{nodes}], {[o.name for o in g.output]}, {{{constants}}})"


def case_text(c: Case, title: str) -> str:
    """A file of Python that makes the case."""
    g = c.model.graph
    out = io.StringIO()
    out.write(f'"""{title}"""\n\n')
    body = io.StringIO()
    body.write("CASE = case(\n")
    body.write(f"    opset={opset_of(c.model)},\n")
    body.write(f"    inputs={ {v.name: _dims(v) for v in g.input} },\n")
    body.write("    feeds=[\n")
    for feeds in c.feeds:
        body.write("        {" + ", ".join(f"{n!r}: {array_text(a)}" for n, a in feeds.items()) + "},\n")
    body.write("    ],\n")
    if g.initializer:
        body.write("    constants={\n")
        for t in g.initializer:
            body.write(f"        {t.name!r}: {array_text(nph.to_array(t))},\n")
        body.write("    },\n")
    body.write("    nodes=[\n")
    for n in g.node:
        body.write(f"        {_node_text(n)},\n")
    body.write("    ],\n")
    body.write(f"    outputs={[o.name for o in g.output]},\n)\n")
    text = body.getvalue()
    words = [w for w in ("array", "case", "full", "graph", "node", "noise", "packed") if f"{w}(" in text]
    out.write(f"from tests.fuzz.case import {', '.join(words)}\n\n{text}")
    return out.getvalue()
