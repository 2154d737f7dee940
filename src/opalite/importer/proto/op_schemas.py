"""Operator schemas of the onnx package: lookup, checks of nodes, and type inference."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from onnx import AttributeProto, checker, defs, helper, numpy_helper, shape_inference

from ...errors import ShapeError, UnsupportedOpError
from ...ir import DType, TensorType, Value
from ...ir.feeds import dtype_name
from ...ir.load_plugins import failures
from ...ir.symbols import fixed, hint_of, is_symbolic_int
from ...ops.model_names import MODEL_NAMES, TFLITE_DOMAIN
from .decode import decode_type, elem_code, elem_dtype, onnx_name
from .encode import make_proto
from .graphdef import Attr, AttrRef, NodeDef

TFLITE = TFLITE_DOMAIN
"""Domain of TensorFlow Lite's operators, built in and custom."""

PADDLE = "paddle"
"""Domain of Paddle's operators, of programs of both kinds."""

SMALL = 4096
"""Largest constant, in elements, passed to shape inference, which reads sizes and axes from constants."""


def find_schema(node: NodeDef) -> Any | None:
    """Return the schema of the node's operator at its opset version, or None."""
    return _schema(node.op_type, node.domain, node.version)


@cache
def _schema(op_type: str, domain: str, version: int) -> Any | None:
    try:
        return defs.get_schema(op_type, version, domain)
    except (defs.SchemaError, TypeError):  # TypeError: a version that is no C++ int
        return None


def unknown_op(node: NodeDef) -> UnsupportedOpError:
    """Return the error for an operator without schema, model function or importer function."""
    domains, versions = _known_ops()
    where = node.label + (f" of domain '{node.domain}'" if node.domain else "")
    if (reason := unsupported_reason(node.op_type, node.domain)) is not None:
        return UnsupportedOpError(f"{where} is not supported: {reason}")
    if node.domain == TFLITE:
        return UnsupportedOpError(
            f"{where}, version {node.version}: no importer function knows this operator of TensorFlow Lite"
            + ("; it needs TensorFlow's own kernels (Select TF ops)" if node.op_type.startswith("Flex") else "")
            + ". docs/tflite.md lists those that are known: convert the model without it, or register a custom "
            f"operator (docs/add-a-kernel.md){_failed_plugins()}"
        )
    if node.domain == PADDLE:
        return UnsupportedOpError(
            f"{where}: no importer function knows this operator of Paddle. docs/paddle.md lists those that are known: "
            "save the model without it"
        )
    if registered := MODEL_NAMES.get((node.domain, node.op_type)):
        return UnsupportedOpError(
            f"{where}: the operator is registered from version {min(registered)} of its domain on, and the model "
            f"imports version {node.version}"
        )
    if node.domain not in domains:
        return UnsupportedOpError(
            f"{where}: nothing here knows the domain '{node.domain}'. Register the operator (`opalite kernel new` "
            "writes a beginning, docs/add-a-kernel.md), give it as a model-local function made of standard ones, or "
            f"export the model without it{_failed_plugins()}"
        )
    since = versions.get((node.domain, node.op_type))
    if since is not None:
        return UnsupportedOpError(
            f"{where}: the operator exists since opset {since}, but the model imports opset {node.version} of "
            f"'{node.domain or 'ai.onnx'}': convert the model to a newer opset"
        )
    names = [name for domain, name in versions if domain == node.domain]
    close = difflib.get_close_matches(node.op_type, names, 3)
    hint = f"did you mean {' or '.join(close)}?" if close else "is it a custom operator of another runtime?"
    return UnsupportedOpError(f"{where}: there is no such operator in '{node.domain or 'ai.onnx'}'; {hint}")


def _failed_plugins() -> str:
    """A sentence on installed packages with operators that could not be imported; '' if there are none."""
    return "".join(f". The kernels of {name} could not be imported: {why}" for name, why in failures.items())


@cache
def _known_ops() -> tuple[set[str], dict[tuple[str, str], int]]:
    """Return all domains, and for each (domain, operator) the first version."""
    first: dict[tuple[str, str], int] = {}
    for s in defs.get_all_schemas_with_history():
        key = (s.domain, s.name)
        first[key] = min(first.get(key, s.since_version), s.since_version)
    return {domain for domain, _ in first}, first


def check_form(node: NodeDef) -> None:
    """Raise ShapeError for unknown inputs, outputs or attributes, or a missing required attribute."""
    schema = find_schema(node)
    if schema is None or node.overload:
        return
    if len(node.inputs) > schema.max_input:
        raise ShapeError(f"{node.label} has {len(node.inputs)} inputs; {node.op_type} takes up to {schema.max_input}")
    if len(node.outputs) > schema.max_output:
        raise ShapeError(
            f"{node.label} has {len(node.outputs)} outputs; {node.op_type} gives up to {schema.max_output}"
        )
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in node.attributes:
            raise ShapeError(f"{node.label} lacks the attribute '{name}', which {node.op_type} must have")
    for name, given in node.attributes.items():
        if name not in schema.attributes and not schema.deprecated:
            known = ", ".join(schema.attributes) or "none"
            raise ShapeError(f"{node.label} has the attribute '{name}'; {node.op_type} knows {known}")
        if name in schema.attributes and not _is_of_type(given, schema.attributes[name].type):
            raise ShapeError(
                f"{node.label} has the attribute '{name}' of type {_type_name(given.type)}; {node.op_type} expects "
                f"{schema.attributes[name].type.name}"
            )


def _is_of_type(given: Attr, wanted: Any) -> bool:
    """Whether an attribute has a schema's type; integers match both number types."""
    number = int(wanted.value)
    if isinstance(given.value, AttrRef) or given.type in (0, number):
        return True
    for pair in _NUMBERS:
        if {given.type, number} == pair:
            values = given.value if isinstance(given.value, tuple) else (given.value,)
            return all(v == int(v) for v in values)
    return False


def _type_name(number: int) -> str:
    return str(AttributeProto.AttributeType.Name(number))


_NUMBERS = ({AttributeProto.FLOAT, AttributeProto.INT}, {AttributeProto.FLOATS, AttributeProto.INTS})


def check_types(node: NodeDef, inputs: Sequence[Value | None]) -> None:
    """Raise ShapeError for an input of an unsupported element type, or of two types that must be equal.

    The newest version of the operator is checked first, because it accepts nearly all types of older ones; then the
    node's own version. int32 and int64 are interchangeable if exactly one type is allowed.
    """
    dtypes = tuple(None if v is None else v.dtype for v in inputs)
    problem = _type_problem(node.op_type, node.domain, None, dtypes)
    if problem is not None and _type_problem(node.op_type, node.domain, node.version, dtypes) is not None:
        raise ShapeError(f"{node.label} {problem}")


@cache
def _type_problem(op_type: str, domain: str, version: int | None, dtypes: tuple[DType | None, ...]) -> str | None:
    """Describe a wrong element type; version: None for the newest, also used if the version lacks the operator."""
    try:
        schema = defs.get_schema(op_type, domain) if version is None else defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None if version is None else _type_problem(op_type, domain, None, dtypes)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    bound: dict[str, DType] = {}
    for i, dtype in enumerate(dtypes):
        if dtype is None or not schema.inputs:
            continue
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        variadic = formal.option == defs.OpSchema.FormalParameterOption.Variadic
        if i >= len(schema.inputs) and not variadic:
            continue
        types = allowed.get(formal.type_str, [formal.type_str])
        if not _takes(types, dtype):
            listed = ", ".join(sorted(types))
            return f"does not take {dtype_name(dtype)} for input {i} ({formal.name}); it takes {listed}"
        if formal.type_str in allowed and not (variadic and not formal.is_homogeneous):
            first = bound.setdefault(formal.type_str, dtype)
            if first is not dtype:
                return (
                    f"mixes {dtype_name(first)} and {dtype_name(dtype)} (input {i}, {formal.name}): both must have one "
                    "element type; put a Cast before it"
                )
    return None


def _takes(types: Sequence[str], dtype: DType) -> bool:
    name = onnx_name(dtype)
    if len(types) == 1 and dtype in (DType.INT32, DType.INT64):
        return types[0] in ("tensor(int32)", "tensor(int64)")
    return any(t.endswith(f"tensor({name})") or t.endswith(f"tensor({name}))") for t in types)


def infer_types(node: NodeDef, inputs: Sequence[Value | None]) -> list[TensorType] | None:
    """Infer the types of all outputs by onnx; None if one is no tensor or its shape depends on data.

    ShapeError if inputs and attributes are inconsistent.
    """
    schema = find_schema(node)
    if schema is None:
        raise unknown_op(node)
    present = [(f"x{i}", v) for i, v in enumerate(inputs) if v is not None]
    symbols = {d.text: d for _, v in present for d in v.shape if is_symbolic_int(d)}
    if symbols:
        found = _infer(node, schema, present, lambda t: [d.text if is_symbolic_int(d) else d for d in t.shape], symbols)
        if found is not None or _infer(node, schema, present, lambda t: hint_of(t.shape), {}) is None:
            return found
    return _infer(node, schema, present, lambda t: fixed(t.shape), {})


def _infer(
    node: NodeDef,
    schema: Any,
    present: Sequence[tuple[str, Value]],
    shape_of: Callable[[TensorType], Sequence[int | str]],
    symbols: Mapping[str, Any],
) -> list[TensorType] | None:
    """Infer types for inputs by name; `shape_of` gives their shapes: sizes, or names of `symbols`."""
    types = {name: helper.make_tensor_type_proto(elem_code(v.dtype), shape_of(v.type)) for name, v in present}
    data = {
        name: numpy_helper.from_array(v.data, name)
        for name, v in present
        if v.data is not None and v.data.size <= SMALL
    }
    opsets = [helper.make_opsetid(domain, version) for domain, version in node.opsets.items()]
    try:
        found = shape_inference.infer_node_outputs(schema, make_proto(node), types, data, opset_imports=opsets)
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError) as e:
        raise ShapeError(f"{node.label}: {' '.join(str(e).split())}") from e
    outs = []
    for i, name in enumerate(node.outputs):
        t = _tensor_type(found.get(f"y{i}"), symbols) if name else None
        if t is None and name:
            return None
        if t is not None:
            outs.append(t)
    return outs


def _tensor_type(proto: Any, symbols: Mapping[str, Any]) -> TensorType | None:
    """Return the TensorType of a TypeProto whose dimensions are all numbers or names in `symbols`, else None."""
    if proto is None or proto.WhichOneof("value") != "tensor_type" or not proto.tensor_type.elem_type:
        return None
    info = decode_type(proto)
    shape = [symbols.get(d) if isinstance(d, str) else d for d in info.shape or ()]
    if info.shape is None or any(d is None for d in shape):
        return None
    return TensorType(elem_dtype(proto.tensor_type.elem_type), tuple(d for d in shape if d is not None))


# Unsupported operators of onnxruntime's own domains, with reasons; docs/contrib.md lists them


MS = "com.microsoft"
NHWC = "com.ms.internal.nhwc"

_NVIDIA = "it is a kernel for NVIDIA's GPUs that onnxruntime's tools put in place of portable operators"
_WEBGPU = "onnxruntime fuses it for WebGPU within a session; models do not hold it"
_PADDING = "it works on sequences without their padding, by kernels for NVIDIA's GPUs"
_PAGES = "it reads caches in pages, which a server for NVIDIA's GPUs manages"
_LAYOUT = "its integers have the layout of cuBLASLt, for NVIDIA's GPUs"
_REPLAY = "it takes back tokens that speculative decoding has refused, by states of onnxruntime-genai on NVIDIA's GPUs"
_FLOAT8 = "it multiplies floats of 4 or 8 bits in blocks, on NVIDIA's GPUs"
_PACKED = "its weights are packed for one engine: quantise the model with MatMulNBits"
_OTHER = "it holds a program for another engine"
_RARE = "nothing here computes it"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "DecoderAttention"), _NVIDIA),
    **dict.fromkeys(("GatedRelativePositionBias", "LongformerAttention", "RMSNormRotary"), _NVIDIA),
    **dict.fromkeys(("DynamicSparseAttention", "SparseAttentionIndexer", "HyperConnectionLowRankMix"), _NVIDIA),
    **dict.fromkeys(("MatMulNBitsMlp", "MatMulNBitsQkv", "MatMulNBitsQLoRA"), _WEBGPU),
    **dict.fromkeys(("RemovePadding", "RestorePadding", "PackedAttention", "PackedMultiHeadAttention"), _PADDING),
    **dict.fromkeys(("MatMulPacked", "MoEPacked"), _PACKED),
    **dict.fromkeys(("PagedAttention", "SparsePagedAttention"), _PAGES),
    **dict.fromkeys(("PackedSparseAttentionIndexer", "PackedSparseAttentionIndexerMerge"), _PAGES),
    **dict.fromkeys(("QOrderedAttention", "QOrderedGelu", "QOrderedLayerNormalization", "QOrderedMatMul"), _LAYOUT),
    **dict.fromkeys(("QOrderedLongformerAttention", "QuantizeWithOrder", "DequantizeWithOrder"), _LAYOUT),
    **dict.fromkeys(
        ("ConvStateReplay", "GatedDeltaNetStateReplay", "Mamba2Verify", "SpeculativePrefixCommit"), _REPLAY
    ),
    **dict.fromkeys(("GemmFloat8", "MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight"), _FLOAT8),
    **dict.fromkeys(("QuantizeBFP", "DequantizeBFP", "MatMulFpQ4", "GatherPacked"), _PACKED),
    **dict.fromkeys(("EPContext", "Snpe"), _OTHER),
    "RouterGateUpProj": "it is fused for one family of experts, on NVIDIA's GPUs: export the model with MoE or QMoE",
    **dict.fromkeys(("AttnLSTM", "WordConvEmbedding", "MaxpoolWithMask", "SparseAttention", "GatedDeltaNet"), _RARE),
    **dict.fromkeys(("VarlenCausalConvWithState", "VarlenNGramHashMapping"), _RARE),
    "SparseToDenseMatMul": "sparse tensors that arrive at a run are not supported",
}
"""Reasons by operator of domain com.microsoft."""


def unsupported_reason(op_type: str, domain: str) -> str | None:
    """Return the reason why the operator is unsupported; None if it is not listed."""
    if domain == NHWC:
        return "operators with channels last are made for one engine within a session; models do not hold them"
    return REFUSED.get(op_type) if domain == MS else None
