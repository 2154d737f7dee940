"""OpenCL C vector types as text: names, conversions, literals, loads, stores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...ir.dtype import DType

WIDTHS = (1, 2, 4, 8, 16)
"""Vector widths that generated code may have."""

_BITS = {"char": 8, "short": 16, "int": 32, "long": 64, "float": 32, "double": 64}
_SIGNED = {8: "char", 16: "short", 32: "int", 64: "long"}


@dataclass(frozen=True)
class Vec:
    """A vector type of OpenCL C: `base` in `width` lanes (1 is the scalar type)."""

    base: str
    width: int

    def __str__(self) -> str:
        return self.base if self.width == 1 else f"{self.base}{self.width}"

    @property
    def is_float(self) -> bool:
        """float or double."""
        return self.base in ("float", "double")

    @property
    def is_unsigned(self) -> bool:
        """uchar, ushort, uint or ulong."""
        return self.base[0] == "u"

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return _BITS[self.base.lstrip("u")]

    @property
    def mask(self) -> Vec:
        """Type of a comparison's result: signed integers of the same size; int for scalars."""
        return Vec("int", 1) if self.width == 1 else replace(self, base=_SIGNED[self.bits])

    @property
    def signed(self) -> Vec:
        """Signed integers of the same size."""
        return replace(self, base=_SIGNED[self.bits])

    @property
    def unsigned(self) -> Vec:
        """Unsigned integers of the same size."""
        return replace(self, base="u" + _SIGNED[self.bits])

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value of an integer lane."""
        if self.is_unsigned:
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    def of(self, base: str) -> Vec:
        """The type of the same width over `base`."""
        return replace(self, base=base)

    def convert(self, text: str) -> str:
        """`text`, of the same width, with its value converted to this type."""
        return f"({self})({text})" if self.width == 1 else f"convert_{self}({text})"

    def convert_sat(self, text: str) -> str:
        """`text` converted to this integer type with saturation."""
        return f"convert_{self}_sat({text})"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """`yes` if the condition, a mask of this type, holds, else `no`.

        Scalars of char are not promoted to int: Mesa's llvmpipe crashes when it narrows that
        (tests/portability/faults/rusticl_choice_of_bytes.py).
        """
        if self.width == 1 and self.base == "char":
            return f"select((char)({no}), (char)({yes}), (char)({condition}))"
        return f"{condition} ? {yes} : {no}"

    def reinterpret(self, text: str) -> str:
        """The bits of `text` as this type."""
        return f"as_{self}({text})"

    def literal(self, value: float | int | bool) -> str:
        """`value` in every lane."""
        text = number(value, self.base)
        return text if self.width == 1 else f"(({self})({text}))"


def compute_type(dtype: DType, width: int) -> Vec:
    """The type in which generated code holds `dtype`: float for half and bfloat16, int (0 or 1) for bool."""
    if dtype in (DType.FLOAT16, DType.BFLOAT16):
        return Vec("float", width)
    if dtype is DType.BOOL:
        return Vec("int", width)
    assert dtype.cl is not None, f"{dtype} has no OpenCL type"
    return Vec(dtype.cl, width)


def number(value: float | int | bool, base: str) -> str:
    """`value` as a scalar literal of OpenCL type `base`; infinities, NaN and the least integers included."""
    if base in ("float", "double"):
        suffix = "f" if base == "float" else ""
        with np.errstate(over="ignore"):
            v = float(np.float32(value)) if base == "float" else float(value)
        if math.isnan(v):
            return "NAN" if base == "float" else "((double)NAN)"
        if math.isinf(v):
            text = "INFINITY" if base == "float" else "((double)INFINITY)"
            return text if v > 0 else f"(-{text})"
        text = str(np.float32(v)) if base == "float" else repr(v)
        if "." not in text and "e" not in text:
            text += ".0"
        return f"{text}{suffix}" if math.copysign(1.0, v) > 0 else f"({text}{suffix})"
    v = int(value)
    bits = _BITS[base.lstrip("u")]
    if base[0] == "u":
        v %= 1 << bits
        return f"{v}{'ul' if bits == 64 else 'u'}" if bits >= 32 else f"(({base}){v})"
    suffix = "l" if bits == 64 else ""
    if v == -(1 << (bits - 1)) and bits >= 32:
        return f"({v + 1}{suffix} - 1)"
    text = f"{v}{suffix}" if v >= 0 else f"({v}{suffix})"
    return text if bits >= 32 else f"(({base}){text})"


def pointer_type(storage: DType) -> str:
    """Element type of a buffer that holds `storage`."""
    assert storage.cl is not None, f"{storage} has no OpenCL type"
    return storage.cl


def vector_load(t: Vec, pointer: str) -> str:
    """Elements at `pointer`, an expression of type pointer to global `t.base`."""
    if t.width == 1:
        return f"*({pointer})"
    return f"VLOAD_AT({t.base}, {t.width}, {pointer})" if t.bits <= 32 else f"vload{t.width}(0, {pointer})"


def vector_store(t: Vec, pointer: str, value: str) -> str:
    """Expression that stores `value` at `pointer`."""
    if t.width == 1:
        return f"*({pointer}) = {value}"
    if t.bits <= 32:
        return f"VSTORE_AT({t.base}, {t.width}, {value}, {pointer})"
    return f"vstore{t.width}({value}, 0, {pointer})"


def load(storage: DType, dtype: DType, width: int, pointer: str, index: str, *, aligned: bool = False) -> str:
    """Expression for `width` elements from element `index` on, as the compute type of `dtype`.

    aligned: the index is a multiple of `width`; some compilers need this to load four elements at once.
    """
    stored = compute_type(storage, width)
    wanted = compute_type(dtype, width)
    if storage is DType.FLOAT16:
        text = f"vload_half({index}, {pointer})" if width == 1 else f"HLOAD_{width}({index}, {pointer})"
        if aligned and width == 4:
            text = f"load_half4({pointer} + {index})"
    elif aligned and storage in (DType.FLOAT32, DType.INT32, DType.INT8, DType.UINT8) and width == 4:
        text = f"*(global const {pointer_type(storage)}4 *)({pointer} + {index})"
    else:
        text = vector_load(Vec(pointer_type(storage), width), f"{pointer} + {index}")
        if storage is DType.BFLOAT16:
            text = stored.reinterpret(f"{stored.of('uint').convert(text)} << 16")
        elif storage is DType.BOOL:
            text = stored.convert(text)
    return text if stored == wanted else wanted.convert(text)


def store(storage: DType, dtype: DType, width: int, pointer: str, index: str, value: str) -> str:
    """Statement that stores the `width` lanes of `value`, of the compute type of `dtype`, from element `index` on.

    For bfloat16 the statement calls `bf16_bits_<type>` of helpers.py.
    """
    held = compute_type(dtype, width)
    stored = compute_type(storage, width)
    if held != stored:
        value = stored.convert(value)
    if storage is DType.FLOAT16:
        if width == 1:
            return f"vstore_half({value}, {index}, {pointer});"
        return f"HSTORE_{width}({value}, {index}, {pointer});"
    if storage is DType.BFLOAT16:
        value = f"bf16_bits_{stored}({value})"
    elif storage is DType.BOOL:
        value = Vec("uchar", width).convert(value)
    return f"{vector_store(Vec(pointer_type(storage), width), f'{pointer} + {index}', value)};"
