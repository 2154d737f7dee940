"""Writer of .tflite files: tensors, operators and subgraphs through the FlatBuffer builders of the package tflite."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "float16": tflite.TensorType.FLOAT16,
    "float64": tflite.TensorType.FLOAT64,
    "int8": tflite.TensorType.INT8,
    "uint8": tflite.TensorType.UINT8,
    "int16": tflite.TensorType.INT16,
    "uint16": tflite.TensorType.UINT16,
    "int32": tflite.TensorType.INT32,
    "uint32": tflite.TensorType.UINT32,
    "int64": tflite.TensorType.INT64,
    "uint64": tflite.TensorType.UINT64,
    "bool": tflite.TensorType.BOOL,
    "complex64": tflite.TensorType.COMPLEX64,
    "int4": tflite.TensorType.INT4,
    "resource": tflite.TensorType.RESOURCE,
}


@dataclass(frozen=True)
class Quant:
    """Scales and zero points of a tensor: one, or one for each index along `axis`."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...] = (0,)
    axis: int = 0

    @property
    def scale(self) -> float:
        """The first scale, as float32 rounds it."""
        return float(np.float32(self.scales[0]))

    @property
    def zero(self) -> int:
        """The first zero point."""
        return self.zeros[0]


@dataclass
class Tensor:
    """One tensor. data: of a constant; packed: its bytes, where they are not those of data; signature: sizes, -1 for
    open ones."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Any = None
    quant: Quant | None = None
    variable: bool = False
    signature: tuple[int, ...] | None = None
    packed: bytes | None = None


@dataclass
class Operator:
    """One operator: builtin name, or the custom one's with its options as bytes."""

    name: str
    inputs: list[int]
    outputs: list[int]
    options: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    custom: bytes | None = None


@dataclass
class Subgraph:
    """Tensors and operators by number, in order."""

    name: str = "main"
    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def tensor(self, dtype: str, shape: Sequence[int], data: Any = None, **rest: Any) -> int:
        """Add a tensor; its number."""
        name = rest.pop("name", f"{self.name}_t{len(self.tensors)}")
        self.tensors.append(Tensor(name, dtype, tuple(int(d) for d in shape), data, **rest))
        return len(self.tensors) - 1

    def const(self, array: Any, **rest: Any) -> int:
        """Add a constant tensor."""
        held = np.ascontiguousarray(array).reshape(np.shape(array))
        return self.tensor(str(held.dtype), held.shape, held, **rest)

    def op(self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **fields: Any) -> None:
        """Add an operator; `fields` are those of its options in the schema's spelling, with a capital."""
        version, custom = fields.pop("version", 1), fields.pop("custom", None)
        self.operators.append(Operator(name, list(inputs), list(outputs), options, fields, version, custom))


def write_model(*subgraphs: Subgraph, signatures: Sequence[tuple[str, int]] = ()) -> bytes:
    """The file. signatures: (key, number of the subgraph), whose inputs and outputs have the tensors' names."""
    b = flatbuffers.Builder(1024)
    buffers: list[bytes] = [b""]
    codes: list[tuple[str, int]] = []
    graphs = [_write_subgraph(b, g, buffers, codes) for g in subgraphs]
    held = [_table(b, "Buffer", Data=_bytes(b, data) if data else None) for data in buffers]
    kinds = [_write_code(b, name, version) for name, version in codes]
    signed = []
    for key, at in signatures:
        graph = subgraphs[at]
        maps = []
        for ends in (graph.inputs, graph.outputs):
            rows = [_table(b, "TensorMap", Name=b.CreateString(graph.tensors[t].name), TensorIndex=t) for t in ends]
            maps.append(_offsets(b, rows))
        name = b.CreateString(key)
        signed.append(_table(b, "SignatureDef", Inputs=maps[0], Outputs=maps[1], SignatureKey=name, SubgraphIndex=at))
    parts = {"OperatorCodes": _offsets(b, kinds), "Subgraphs": _offsets(b, graphs), "Buffers": _offsets(b, held)}
    if signed:
        parts["SignatureDefs"] = _offsets(b, signed)
    b.Finish(_table(b, "Model", Version=3, **parts), file_identifier=b"TFL3")
    return bytes(b.Output())


def _write_code(b: Any, name: str, version: int) -> int:
    number = getattr(tflite.BuiltinOperator, name, None)
    custom = None if number is not None else b.CreateString(name)
    number = tflite.BuiltinOperator.CUSTOM if number is None else number
    fields = {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number, "Version": version}
    return _table(b, "OperatorCode", **fields, CustomCode=custom)


def _write_subgraph(b: Any, g: Subgraph, buffers: list[bytes], codes: list[tuple[str, int]]) -> int:
    tensors = [_write_tensor(b, t, buffers) for t in g.tensors]
    operators = []
    for o in g.operators:
        key = (o.name, o.version)
        if key not in codes:
            codes.append(key)
        ends = {"Inputs": b.CreateNumpyVector(np.int32(o.inputs)), "Outputs": b.CreateNumpyVector(np.int32(o.outputs))}
        more: dict[str, Any] = {}
        if o.options:
            second = hasattr(tflite.BuiltinOptions2, o.options)
            where = "2" if second else ""
            kinds = tflite.BuiltinOptions2 if second else tflite.BuiltinOptions
            more[f"BuiltinOptions{where}Type"] = getattr(kinds, o.options)
            more[f"BuiltinOptions{where}"] = _options(b, o.options, o.fields)
        if o.custom is not None:
            more["CustomOptions"] = _bytes(b, o.custom)
        operators.append(_table(b, "Operator", OpcodeIndex=codes.index(key), **ends, **more))
    ends = {"Inputs": b.CreateNumpyVector(np.int32(g.inputs)), "Outputs": b.CreateNumpyVector(np.int32(g.outputs))}
    parts = {"Tensors": _offsets(b, tensors), "Operators": _offsets(b, operators), "Name": b.CreateString(g.name)}
    return _table(b, "SubGraph", **parts, **ends)


def _write_tensor(b: Any, t: Tensor, buffers: list[bytes]) -> int:
    data = t.packed if t.packed is not None else None if t.data is None else np.asarray(t.data).tobytes()
    at = 0
    if data is not None:
        buffers.append(data)
        at = len(buffers) - 1
    quant = None
    if t.quant is not None:
        scales = b.CreateNumpyVector(np.float32(t.quant.scales))
        zeros = b.CreateNumpyVector(np.int64(t.quant.zeros))
        quant = _table(b, "QuantizationParameters", Scale=scales, ZeroPoint=zeros, QuantizedDimension=t.quant.axis)
    fields: dict[str, Any] = {"Shape": b.CreateNumpyVector(np.int32(t.shape)), "Name": b.CreateString(t.name)}
    if t.signature is not None:
        fields["ShapeSignature"] = b.CreateNumpyVector(np.int32(t.signature))
    fields |= {"Type": TYPES[t.dtype], "Buffer": at, "Quantization": quant, "IsVariable": t.variable, "HasRank": True}
    return _table(b, "Tensor", **fields)


def _options(b: Any, name: str, fields: dict[str, Any]) -> int:
    ready = {}
    for key, value in fields.items():
        if isinstance(value, str):
            value = b.CreateString(value)
        elif isinstance(value, list | tuple | np.ndarray):
            value = b.CreateNumpyVector(np.asarray(value, np.int32))
        ready[key] = value
    return _table(b, name, **ready)


def _table(b: Any, name: str, **fields: Any) -> int:
    """A table of the schema from its fields; those of None are left out."""
    module = importlib.import_module(f"tflite.{name}")
    getattr(module, f"{name}Start")(b)
    for key, value in fields.items():
        if value is not None:
            getattr(module, f"{name}Add{key}")(b, value)
    return int(getattr(module, f"{name}End")(b))


def _bytes(b: Any, data: bytes) -> int:
    return int(b.CreateNumpyVector(np.frombuffer(data, np.uint8)))


def _offsets(b: Any, items: Sequence[int]) -> int:
    b.StartVector(4, len(items), 4)
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return int(b.EndVector())
