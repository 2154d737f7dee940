"""Application of a caller's ModelEdits to a ModelProto, and inference of undeclared output shapes."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

import onnx
from onnx import TensorProto, helper, numpy_helper

from ...errors import OptionError
from ...ir import Array
from ...ir.model_edits import ModelEdits, argmax_name, max_name, unknown_value
from .decode import elem_dtype
from .graphdef import read_opsets

_log = logging.getLogger(__name__)
W = TypeVar("W")


def edit_model(proto: Any, weights: Mapping[int, W], edits: ModelEdits) -> dict[int, W]:
    """Change `proto` as `edits` say, and return `weights` without those of replaced initializers.

    weights: data stored outside the message, by initializer number. OptionError for a replacement of another type or
    shape.
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
    keep_last_position(proto, edits.last)
    add_argmax_outputs(proto, edits.argmax)
    select_outputs(graph, edits.outputs)
    return left


def select_outputs(graph: Any, names: Sequence[str]) -> None:
    """Make the values `names` the outputs, if there are any names. InputError for a name that is no value."""
    if not names:
        return
    declared = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}
    known = dict.fromkeys([v.name for v in graph.input] + [o for n in graph.node for o in n.output if o])
    for name in names:
        if name not in known:
            inner = {o for n in graph.node for i in nested_nodes(n) for o in i.output}
            raise unknown_value(name, known, [v.name for v in graph.output], inner)
    chosen = [declared.get(name) or onnx.ValueInfoProto(name=name) for name in names]
    copies = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in chosen]
    del graph.output[:]
    graph.output.extend(copies)


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
"""Operators whose inference in onnx (1.23) crashes the process if the type of their input is unknown. Found by a trial
of all operators."""


def infer_shapes(proto: Any) -> Any:
    """Return a copy of the ModelProto with types inferred by onnx; fragile nodes wait until their input is typed."""
    fragile = _fragile_nodes(proto)
    if not fragile:
        return onnx.shape_inference.infer_shapes(proto)
    typed = {v.name for v in proto.graph.input if v.type.WhichOneof("value")}
    typed.update(t.name for t in proto.graph.initializer)
    while True:
        asked = onnx.ModelProto()
        asked.CopyFrom(proto)
        for node in _fragile_nodes(asked, typed):
            node.op_type = f"{node.op_type} of unknown type"
        found = onnx.shape_inference.infer_shapes(asked)
        now = typed | {v.name for v in found.graph.value_info if v.type.WhichOneof("value")}
        if not any(n.input and n.input[0] in now - typed for n in fragile):
            return found
        typed = now


def _fragile_nodes(proto: Any, typed: Container[str] = ()) -> list[Any]:
    """Return the fragile nodes that read an untyped value, and all fragile nodes of subgraphs and functions."""
    outer = [n for n in proto.graph.node if not (n.input and n.input[0] in typed)]
    inner = [i for n in proto.graph.node for i in nested_nodes(n)]
    inner += [i for f in proto.functions for n in f.node for i in (n, *nested_nodes(n))]
    return [n for n in (*outer, *inner) if n.op_type in FRAGILE]


def infer_outputs(proto: Any, always: bool = False) -> None:
    """Set the shapes of outputs without a declared shape, as inferred by onnx.

    always: also replace declared shapes, because input sizes are known more exactly now.
    """
    asked = [v for v in proto.graph.output if always or _is_open(v)]
    if not asked:
        return
    try:
        inferred = infer_shapes(proto)
    except Exception as e:  # the model may run without: a run knows the sizes
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
    """Save `proto` as an ONNX file; data_file: second file for initializers of at least `from_bytes` bytes."""
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
    """Return the ModelProto of a file or of bytes with its data, `edits` and inferred shapes, for `write_model`."""
    folder = edits.folder
    if isinstance(source, bytes):
        proto = onnx.ModelProto.FromString(source)
    else:
        proto = onnx.load_model(source, load_external_data=not (folder or edits.external or edits.files))
    if folder:
        onnx.load_external_data_for_model(proto, folder)
    edit_model(proto, {}, edits)
    _inline_files(proto, edits.files)
    infer_outputs(proto, bool(edits.dims or edits.dims_by_denotation))
    return proto


def _inline_files(proto: Any, files: Mapping[str, bytes]) -> None:
    """Copy external data into the message's initializers, from `files`: contents in memory by location."""
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


# Outputs for text generation: logits reduced to the last position, and argmax outputs for greedy decoding


_log = logging.getLogger(__name__)
_SINCE = 11
"""First opset in which Gather accepts negative indices."""


def keep_last_position(proto: Any, names: Iterable[str]) -> None:
    """Reduce the named outputs [batch, positions, ...] to the last position: [batch, 1, ...].

    Outputs that the model lacks, of unknown rank, or with one position stay unchanged.
    """
    opset = read_opsets(proto.opset_import).get("", 0)
    for name in dict.fromkeys(names):
        output = next((o for o in proto.graph.output if o.name == name), None)
        maker = next((n for n in proto.graph.node if name in n.output), None)
        if output is None or maker is None or opset < _SINCE:
            _log.info("the model has no output '%s' to take the last position of", name)
            continue
        dims = output.type.tensor_type.shape.dim
        if len(dims) > 1 and dims[1].dim_value != 1:
            _keep_last(proto.graph, name)
            dims[1].dim_value = 1


def _keep_last(graph: Any, name: str) -> None:
    """Rename value `name`, and give its old name to the last position."""
    whole, index = f"{name}/all positions", f"{name}/last position"
    for node in graph.node:
        for names in (node.output, *(n.input for n in (node, *nested_nodes(node)))):
            names[:] = [whole if n == name else n for n in names]
    graph.initializer.append(numpy_helper.from_array(np.array([-1]), index))
    graph.node.append(helper.make_node("Gather", [whole, index], [name], name=f"{name}/last", axis=1))


def nested_nodes(node: Any) -> Iterator[Any]:
    """Yield all nodes of a node's subgraphs, recursively."""
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            for inner in graph.node:
                yield inner
                yield from nested_nodes(inner)


_ARGMAX_SINCE = 13
"""First opset in which ArgMax accepts every floating-point type."""


def add_argmax_outputs(proto: Any, names: Iterable[str]) -> None:
    """Add, for each named output [batch, positions, n], argmax and maximum of its last position, [batch, 1] each.

    The new outputs are NAME/argmax (int64) and NAME/max. Outputs that the model lacks, or without three axes or
    a declared type, are skipped.
    """
    opset = read_opsets(proto.opset_import).get("", 0)
    for name in dict.fromkeys(names):
        output = next((o for o in proto.graph.output if o.name == name), None)
        found = None if output is None else output.type.tensor_type
        if found is None or opset < _ARGMAX_SINCE or len(found.shape.dim) != 3 or not found.elem_type:
            _log.info("the model has no output '%s' of three axes to give the largest number of", name)
            continue
        _add_argmax(proto.graph, name, found)


def _add_argmax(graph: Any, name: str, logits: Any) -> None:
    index, row = f"{name}/the last", f"{name}/last row"
    token, top = argmax_name(name), max_name(name)
    graph.initializer.append(numpy_helper.from_array(np.array(-1), index))
    graph.node.append(helper.make_node("Gather", [name, index], [row], name=row, axis=1))
    graph.node.append(helper.make_node("ArgMax", [row], [token], name=token, axis=-1, keepdims=1))
    graph.node.append(helper.make_node("GatherElements", [row, token], [top], name=top, axis=-1))
    for made, kind in ((token, TensorProto.INT64), (top, logits.elem_type)):
        value = helper.make_tensor_value_info(made, kind, [None, 1])
        value.type.tensor_type.shape.dim[0].CopyFrom(logits.shape.dim[0])
        graph.output.append(value)
