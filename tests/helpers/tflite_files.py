"""Small .tflite files written by the schema that comes with ai-edge-litert, and LiteRT's own results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

flatbuffers = pytest.importorskip("flatbuffers")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

Array = np.ndarray[Any, Any]
TYPES = {
    "float32": 0,
    "float16": 1,
    "int32": 2,
    "uint8": 3,
    "int64": 4,
    "object": 5,
    "bool": 6,
    "int16": 7,
    "complex64": 8,
    "int8": 9,
    "float64": 10,
    "uint64": 12,
    "uint32": 15,
    "uint16": 16,
    "int4": 17,
    "bfloat16": 18,
}
"""Numbers of element types by NumPy's names."""
RESOURCE = 13


class Subgraph:
    """A subgraph being written. Tensors are numbers; an absent input is -1."""

    def __init__(self, file: TfliteFile, name: str) -> None:
        self.file = file
        self.table = schema.SubGraphT(tensors=[], inputs=[], outputs=[], operators=[], name=name)

    def tensor(
        self,
        dtype: Any,
        shape: Sequence[int] = (),
        name: str = "",
        *,
        signature: Sequence[int] | None = None,
        scale: Any = None,
        zero: Any = 0,
        axis: int = 0,
        variable: bool = False,
        buffer: int = 0,
        sparsity: Any = None,
    ) -> int:
        """Add a tensor. dtype: a NumPy type, or a number of the schema. scale, zero: of its quantisation."""
        index = len(self.table.tensors)
        made = schema.TensorT(
            shape=list(shape),
            type=dtype if isinstance(dtype, int) else TYPES[np.dtype(dtype).name],
            buffer=buffer,
            name=name or f"t{index}",
            isVariable=variable,
            shapeSignature=None if signature is None else list(signature),
            hasRank=True,
            sparsity=sparsity,
        )
        if scale is not None:
            scales = np.atleast_1d(scale).astype(float).tolist()
            zeros = np.broadcast_to(np.atleast_1d(zero), len(scales)).tolist()
            made.quantization = schema.QuantizationParametersT(scale=scales, zeroPoint=zeros, quantizedDimension=axis)
        self.table.tensors.append(made)
        return index

    def input(self, dtype: Any, shape: Sequence[int] = (), name: str = "", **kwargs: Any) -> int:
        """Add an input."""
        index = self.tensor(dtype, shape, name, **kwargs)
        self.table.inputs.append(index)
        return index

    def constant(self, array: Any, name: str = "", **kwargs: Any) -> int:
        """Add a tensor with contents."""
        held = np.asarray(array)
        raw = _strings(held) if held.dtype == object else held.tobytes()
        return self.tensor(held.dtype, held.shape, name, buffer=self.file.buffer(raw), **kwargs)

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        *,
        version: int = 1,
        custom: bytes | None = None,
        intermediates: Sequence[int] = (),
        second: bool = False,
        **fields: Any,
    ) -> None:
        """Add an operator: a builtin, or a custom one with its options as bytes. options: their table in the schema.

        second: they are of the schema's second union.
        """
        made = schema.OperatorT(
            opcodeIndex=self.file.code(name, version), inputs=list(inputs), outputs=list(outputs), builtinOptions=None
        )
        if intermediates:
            made.intermediates = list(intermediates)
        if options:
            table = getattr(schema, f"{options}T")(**fields)
            union = "BuiltinOptions2" if second else "BuiltinOptions"
            setattr(made, f"b{union[1:]}Type", getattr(getattr(schema, union), options))
            setattr(made, f"b{union[1:]}", table)
        if custom is not None:
            made.customOptions = list(custom)
        self.table.operators.append(made)

    def output(self, *tensors: int) -> None:
        """Let tensors be outputs."""
        self.table.outputs += tensors


class TfliteFile:
    """A file being written, with one subgraph to begin with: `main`."""

    def __init__(self) -> None:
        self.model = schema.ModelT(version=3, operatorCodes=[], subgraphs=[], buffers=[], description="test")
        self.model.signatureDefs, self.model.metadata = [], []
        self.buffer(b"")
        self.main = self.subgraph("main")

    def subgraph(self, name: str) -> Subgraph:
        """Add a subgraph; its number is the order."""
        made = Subgraph(self, name)
        self.model.subgraphs.append(made.table)
        return made

    def buffer(self, raw: bytes) -> int:
        """Add a buffer."""
        data = np.frombuffer(raw, np.uint8) if raw else None
        self.model.buffers.append(schema.BufferT(data=data))
        return len(self.model.buffers) - 1

    def code(self, name: str, version: int) -> int:
        """Return the number of an operator's code; a name that the schema lacks is a custom operator's."""
        number = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
        custom = name if number == schema.BuiltinOperator.CUSTOM else None
        for i, c in enumerate(self.model.operatorCodes):
            if (c.builtinCode, c.customCode, c.version) == (number, custom, version):
                return i
        code = schema.OperatorCodeT(min(number, 127), custom, version, number)
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1

    def signature(self, key: str, inputs: Mapping[str, int], outputs: Mapping[str, int], subgraph: int = 0) -> None:
        """Name inputs and outputs of a subgraph."""
        maps = [[schema.TensorMapT(name=n, tensorIndex=i) for n, i in group.items()] for group in (inputs, outputs)]
        self.model.signatureDefs.append(schema.SignatureDefT(*maps, signatureKey=key, subgraphIndex=subgraph))

    def metadata(self, name: str, raw: bytes) -> None:
        """Add a metadata entry."""
        self.model.metadata.append(schema.MetadataT(name=name, buffer=self.buffer(raw)))

    def bytes(self) -> bytes:
        """Return the file."""
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _strings(array: Array) -> bytes:
    raws = [str(s).encode() for s in array.reshape(-1)]
    ends = 4 * (len(raws) + 2) + np.cumsum([0, *map(len, raws)])
    return np.array([len(raws), *ends], np.int32).tobytes() + b"".join(raws)


def one_op(
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    options: str = "",
    const: Sequence[int] = (),
    **kwargs: Any,
) -> tuple[bytes, list[Array]]:
    """Return (a file of one operator, what its inputs are fed).

    inputs: arrays, None for an absent one; those in `const` are constants. outputs: (dtype, shape) of each.
    """
    file = TfliteFile()
    numbers, fed = [], []
    for i, array in enumerate(inputs):
        if array is None:
            numbers.append(-1)
        elif i in const:
            numbers.append(file.main.constant(array, f"c{i}"))
        else:
            numbers.append(file.main.input(array.dtype, array.shape, f"x{i}"))
            fed.append(array)
    made = [file.main.tensor(dtype, shape, f"y{i}") for i, (dtype, shape) in enumerate(outputs)]
    file.main.op(name, numbers, made, options, **kwargs)
    file.main.output(*made)
    return file.bytes(), fed


def litert(model: bytes, feeds: Sequence[Array], runs: int = 1) -> list[Array]:
    """Return LiteRT's outputs of the last of some runs on `feeds`, in order, by its own kernels without a delegate."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    made = interpreter.Interpreter(
        model_content=model,
        num_threads=1,
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    for detail, array in zip(made.get_input_details(), feeds, strict=True):
        if tuple(detail["shape"]) != array.shape:
            made.resize_tensor_input(detail["index"], array.shape)
    made.allocate_tensors()
    for _ in range(runs):
        for detail, array in zip(made.get_input_details(), feeds, strict=True):
            made.set_tensor(detail["index"], array)
        made.invoke()
    return [made.get_tensor(d["index"]) for d in made.get_output_details()]
