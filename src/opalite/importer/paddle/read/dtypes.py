"""Element types of Paddle, by number in a ProgramDesc and by name in PIR."""

from __future__ import annotations

from ....errors import ModelFormatError
from ....ir import DType

_NUMBERS = {
    0: DType.BOOL,
    1: DType.INT16,
    2: DType.INT32,
    3: DType.INT64,
    4: DType.FLOAT16,
    5: DType.FLOAT32,
    6: DType.FLOAT64,
    20: DType.UINT8,
    21: DType.INT8,
    22: DType.BFLOAT16,
    23: DType.COMPLEX64,
    24: DType.COMPLEX128,
    32: DType.FLOAT8E4M3FN,
    33: DType.FLOAT8E5M2,
}
_SHORT = {"f8e4m3fn": DType.FLOAT8E4M3FN, "f8e5m2": DType.FLOAT8E5M2, "ui8": DType.UINT8, "i8": DType.INT8}
_SHORT |= {"bool": DType.BOOL, "i16": DType.INT16, "i32": DType.INT32, "i64": DType.INT64, "f16": DType.FLOAT16}
_SHORT |= {"bf16": DType.BFLOAT16, "f32": DType.FLOAT32, "f64": DType.FLOAT64}
_SHORT |= {"c64": DType.COMPLEX64, "c128": DType.COMPLEX128}
_NAMES = {d.value[1]: d for d in _SHORT.values()}


def by_number(number: int) -> DType:
    """Return the element type of a VarType number."""
    if number not in _NUMBERS:
        raise ModelFormatError(f"element type number {number} is none that Paddle's tensors have")
    return _NUMBERS[number]


def by_type(text: str) -> DType | None:
    """Return the element type of a PIR type such as '0.t_f32'; None if it is none."""
    return _SHORT.get(text.rpartition("t_")[2])


def declared(value: object) -> DType | None:
    """Return the element type of an attribute: a number or a name; None if it is undefined."""
    if isinstance(value, str):
        return _NAMES.get(value)
    return by_number(value) if isinstance(value, int) and value >= 0 else None
