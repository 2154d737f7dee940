"""Messages of a `.pdmodel` file: Paddle's ProgramDesc, as far as inference reads it."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "opalite.paddle"

# A field is "NUMBER type name", with * after the type for a repeated one. Names of messages begin with a capital.
_MESSAGES = {
    "Complex": "1 double r, 2 double i",
    "Scalar": "1 int32 type, 2 bool b, 3 int64 i, 4 double r, 5 Complex c",
    "Attr": (
        "1 string name, 2 int32 type, 3 int32 i, 4 float f, 5 bytes s, 6 int32* ints, 7 float* floats, "
        "8 bytes* strings, 10 bool b, 11 bool* bools, 12 int32 block_idx, 13 int64 l, 14 int32* blocks_idx, "
        "15 int64* longs, 16 double* float64s, 17 bytes var_name, 18 bytes* vars_name, 19 double float64, "
        "20 Scalar scalar, 21 Scalar* scalars"
    ),
    "Slot": "1 bytes parameter, 2 bytes* arguments",
    "Op": "1 Slot* inputs, 2 Slot* outputs, 3 bytes type, 4 Attr* attrs",
    "TensorDesc": "1 int32 data_type, 2 int64* dims",
    "LoDTensor": "1 TensorDesc tensor, 2 int32 lod_level",
    "VarType": "1 int32 type, 3 LoDTensor lod_tensor, 4 LoDTensor tensor_array",
    "Var": "1 bytes name, 2 VarType type, 3 bool persistable",
    "Block": "1 int32 idx, 2 int32 parent_idx, 3 Var* vars, 4 Op* ops",
    "Version": "1 int64 version",
    "Program": "1 Block* blocks, 4 Version version",
}


@cache
def message(name: str) -> Any:
    """Return the class of a message: 'Program', 'TensorDesc'..."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto2")
    for title, fields in _MESSAGES.items():
        made = file.message_type.add(name=title)
        for text in fields.split(", "):
            number, kind, label = text.split()
            repeated = kind.endswith("*")
            kind = kind.removesuffix("*")
            added = made.field.add(name=label, number=int(number))
            added.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if kind[0].isupper():
                added.type, added.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
