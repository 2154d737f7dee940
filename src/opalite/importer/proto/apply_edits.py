"""Applies a caller's ModelEdits to a ModelProto, and fills in the output shapes that the file leaves out."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

import onnx
from onnx import numpy_helper

from ...errors import OptionError
from ...ir.model_edits import ModelEdits
from .argmax_output import add_likeliest
from .decode import Array, elem_dtype
from .last_token_logits import keep_last
from .subgraphs import inside

_log = logging.getLogger(__name__)
W = TypeVar("W")


def edit_model(proto: Any, weights: Mapping[int, W], edits: ModelEdits) -> dict[int, W]:
    """Change `proto` as `edits` say. `weights`: data kept outside the message by number of the initializer; given back
    without that of replaced initializers. OptionError for initializers of another type or shape than the model's.
    """
    graph = proto.graph
    if edits.dims or edits.dims_by_denotation:
        _set_dims((*graph.input, *graph.output, *graph.value_info), edits)
    left = dict(weights)
    numbers = {t.name: i for i, t in enumerate(graph.initializer)}
    for name, array in {**edits.external, **edits.initializers}.items():
        number = numbers.get(name)
        if number is None:  # options may serve several models
            _log.info("the model has no initializer '%s' to replace", name)
            continue
        old = graph.initializer[number]
        _check_same(name, old, array)
        if name in edits.external and name not in edits.initializers and not _is_external(old):
            raise OptionError(f"initializer '{name}' holds its data itself: replace it with add_initializer")
        old.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))
        left.pop(number, None)
    keep_last(proto, edits.last)
    add_likeliest(proto, edits.likeliest)
    return left


def _set_dims(values: Iterable[Any], edits: ModelEdits) -> None:
    for value in values:
        kind = value.type.WhichOneof("value")
        if kind not in ("tensor_type", "sparse_tensor_type"):
            continue
        for dim in getattr(value.type, kind).shape.dim:
            size = edits.dims.get(dim.dim_param) if dim.dim_param else None
            if size is None and dim.denotation and not dim.dim_value:
                size = edits.dims_by_denotation.get(dim.denotation)
            if size is not None:
                dim.dim_value = size


def _check_same(name: str, old: Any, array: Array) -> None:
    want, shape = elem_dtype(old.data_type).np, tuple(old.dims)
    if array.dtype != want or array.shape != shape:
        raise OptionError(
            f"initializer '{name}' is {want}{list(shape)}, but the value given for it is {array.dtype}"
            f"{list(array.shape)}: give one of the same type and shape"
        )


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


FRAGILE = frozenset(("DictVectorizer", "EyeLike", "LabelEncoder", "RegexFullMatch", "TreeEnsemble"))
"""Operators whose inference in onnx (1.23) ends the process where the type of what they read is not known, as behind an
operator that onnx has no inference for. Found by trying all operators so."""


def infer_shapes(proto: Any) -> Any:
    """A copy of the ModelProto with the types that onnx infers. Fragile nodes take part once their input has a type."""
    fragile = _hidden(proto)
    if not fragile:
        return onnx.shape_inference.infer_shapes(proto)
    typed = {v.name for v in proto.graph.input if v.type.WhichOneof("value")}
    typed.update(t.name for t in proto.graph.initializer)
    while True:
        asked = onnx.ModelProto()
        asked.CopyFrom(proto)
        for node in _hidden(asked, typed):
            node.op_type = f"{node.op_type} of unknown type"
        found = onnx.shape_inference.infer_shapes(asked)
        now = typed | {v.name for v in found.graph.value_info if v.type.WhichOneof("value")}
        if not any(n.input and n.input[0] in now - typed for n in fragile):
            return found
        typed = now


def _hidden(proto: Any, typed: Container[str] = ()) -> list[Any]:
    """The fragile nodes that read something not in `typed`, and all of subgraphs and functions."""
    outer = [n for n in proto.graph.node if not (n.input and n.input[0] in typed)]
    inner = [i for n in proto.graph.node for i in inside(n)]
    inner += [i for f in proto.functions for n in f.node for i in (n, *inside(n))]
    return [n for n in (*outer, *inner) if n.op_type in FRAGILE]


def infer_outputs(proto: Any, always: bool = False) -> None:
    """Give outputs without a declared shape the one that onnx infers, if it can.

    always: also those that declare one, since sizes of the inputs are known better now.
    """
    asked = [v for v in proto.graph.output if always or _is_open(v)]
    if not asked:
        return
    try:
        inferred = infer_shapes(proto)
    except Exception as e:  # a model may run all the same: sizes are known when it does
        _log.info("output shapes are not inferred: %s", e)
        return
    found = {v.name: v for v in inferred.graph.output}
    for value in asked:
        known = found[value.name].type
        if known.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(known.tensor_type.shape)
        if value.type.WhichOneof("value") in (None, "tensor_type") and not value.type.tensor_type.elem_type:
            value.type.CopyFrom(known)


def _is_open(value: Any) -> bool:
    kind = value.type.WhichOneof("value")
    return kind is None or (kind == "tensor_type" and not value.type.tensor_type.HasField("shape"))


def write_model(proto: Any, path: str, data_file: str = "", from_bytes: int = 1024) -> None:
    """Save `proto` as an ONNX file. data_file: put initializers of `from_bytes` and more into this file beside it."""
    if data_file:
        onnx.save_model(
            proto,
            path,
            save_as_external_data=True,
            location=data_file,
            size_threshold=from_bytes,
            convert_attribute=False,
        )
    else:
        onnx.save_model(proto, path)


def edited_model(source: Any, edits: ModelEdits) -> Any:
    """The ModelProto of a file or of bytes, with its data, `edits` and inferred shapes: what `write_model` saves."""
    folder = edits.folder
    if isinstance(source, bytes):
        proto = onnx.ModelProto.FromString(source)
    else:
        proto = onnx.load_model(source, load_external_data=not (folder or edits.external or edits.files))
    if folder:
        onnx.load_external_data_for_model(proto, folder)
    edit_model(proto, {}, edits)
    _take_files(proto, edits.files)
    infer_outputs(proto, bool(edits.dims or edits.dims_by_denotation))
    return proto


def _take_files(proto: Any, files: Mapping[str, bytes]) -> None:
    """Put data that the caller holds in memory into the message."""
    for tensor in proto.graph.initializer:
        if not _is_external(tensor):
            continue
        entries = {e.key: e.value for e in tensor.external_data}
        contents = files.get(entries.get("location", ""))
        if contents is not None:
            start = int(entries.get("offset") or 0)
            length = int(entries.get("length") or len(contents) - start)
            tensor.raw_data = contents[start : start + length]
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
