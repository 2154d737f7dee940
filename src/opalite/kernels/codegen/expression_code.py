"""Generates OpenCL C for an Expr: one typed variable per instruction, in vectors of any width.

The table expr/function_table.py has the simple function forms; this module has the others. float16 and bfloat16 are
computed in float. bool is int 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...expr.expression import Expr, In, Instr, Lit, Ref, Tmp
from ...expr.function_table import FUNCTIONS, Form, Function, How, Result, Wrapped
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from .fast_math import SHORT, short_helper
from .opencl_functions import helper, wrapped
from .vector_types import Vec, compute_type

Coord = Callable[[int], str]


@dataclass(frozen=True)
class Code:
    """Generated text: `statements` (one per line), the variable or literal of `result`, `helpers` by name."""

    statements: tuple[str, ...]
    result: str
    helpers: Mapping[str, str]

    def body(self, indent: str = "    ") -> str:
        """The statements as indented lines."""
        return "".join(f"{indent}{s}\n" for s in self.statements)


def generate(
    expr: Expr,
    width: int,
    operands: Sequence[str],
    *,
    device: DeviceInfo,
    coord: Coord | None = None,
    stored: DType | None = None,
    reciprocals: frozenset[int] = frozenset(),
) -> Code:
    """OpenCL C that computes `expr` on `operands`, variables of their compute types in `width` lanes.

    coord(axis): an expression for the output coordinates along `axis` as long in `width` lanes; without it the
    expression must not use coordinates. stored: storage type of the result, if known. reciprocals: numbers of operands
    whose divisions use reciprocals (`reciprocal_divisors`).
    """
    emitter = _Emitter(expr, width, operands, device, coord, stored, reciprocals)
    for k, ins in enumerate(expr.instrs):
        emitter.add(k, ins)
    return Code(tuple(emitter.statements), emitter.text(expr.result), emitter.helpers)


def generation_refusal(expr: Expr, device: DeviceInfo) -> str | None:
    """The reason why `expr` cannot be computed on `device`, or None."""
    for dtype in (*expr.dtypes, *(i.dtype for i in expr.instrs), *(a.dtype for a in _literals(expr))):
        if not dtype.on_device:
            return f"OpenCL has no element type {dtype}"
        if dtype is DType.FLOAT64 and not device.fp64:
            return f"{device.name} has no double precision"
    return None


def _literals(expr: Expr) -> list[Lit]:
    return [a for i in expr.instrs for a in i.args if isinstance(a, Lit)]


@dataclass
class _Emitter:
    """Collects the statements of one expression at one width."""

    expr: Expr
    width: int
    operands: Sequence[str]
    device: DeviceInfo
    coord: Coord | None
    stored: DType | None
    reciprocals: frozenset[int]
    statements: list[str] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cpu = self.device.on_host
        self.short = self.stored is DType.FLOAT16 and not self.cpu

    def vec(self, ref: Ref | DType) -> Vec:
        """Compute type of a reference or element type."""
        return compute_type(ref if isinstance(ref, DType) else self.expr.ref_dtype(ref), self.width)

    def text(self, ref: Ref) -> str:
        """Variable or literal of a reference."""
        if isinstance(ref, In):
            return self.operands[ref.i]
        return f"t{ref.k}" if isinstance(ref, Tmp) else self.vec(ref).literal(ref.value)

    def call(self, name: str, t: Vec, *args: str) -> str:
        """A call of the helper `name` for type `t`."""
        self.helpers.setdefault(f"{name}_{t}", helper(name, t))
        return f"{name}_{t}({', '.join(args)})"

    def add(self, k: int, ins: Instr) -> None:
        """The statement of instruction `k`."""
        value = self.value(k, ins)
        self.statements.append(f"const {self.vec(ins.dtype)} t{k} = {value};")

    def value(self, k: int, ins: Instr) -> str:
        """Expression for the result of instruction `k`."""
        if ins.fn == "coord":
            axis = ins.args[0]
            assert isinstance(axis, Lit)
            assert self.coord is not None, f"'{self.expr}' needs coordinates, and its place gives none"
            return self.coord(int(axis.value))
        if ins.fn in _WHOLE:
            return _WHOLE[ins.fn](self, k, ins)
        t, row = self.vec(ins.args[0]), FUNCTIONS[ins.fn]
        args = [self.as_type(a, t) for a in ins.args]
        if self.expr.ref_dtype(ins.args[0]) is DType.BOOL and row.booleans is not None:
            return self.form(row, row.booleans, t, args)
        if t.is_float and ins.fn in ("max", "min"):
            # One comparison propagates NaN if the other operand is a number.
            sign = ">" if ins.fn == "max" else "<"
            for number, other in (0, 1), (1, 0):
                if _is_number(ins.args[number]):
                    return f"{args[number]} {sign} {args[other]} ? {args[number]} : {args[other]}"
        if ins.fn == "div" and t.base == "float" and isinstance(ins.args[1], In) and ins.args[1].i in self.reciprocals:
            return self.call("div_by", t, *args)
        value = self.float_value(ins.fn, t, args) if t.is_float else self.form(row, row.integers, t, args)
        return self.from_mask(value) if row.result is Result.BOOL else value

    def form(self, row: Function, form: Form | None, t: Vec, args: Sequence[str]) -> str:
        """A call of a function in the given form."""
        match form:
            case str():
                inf = t.literal(float("inf")) if t.is_float else ""
                return form.format(*args, zero=t.literal(0), one=t.literal(1), inf=inf, t=t, i=t.signed)
            case Wrapped():
                return wrapped(t, form.operator, *args)
            case How.HELPER:
                return self.call(row.name, t, *args)
            case How.OWN:
                return _OWN[row.name](self, t, args)
        raise ValueError(f"'{row.name}' has no meaning on {t.base}")

    def as_type(self, ref: Ref, t: Vec) -> str:
        """A reference converted to `t` if it is of another type."""
        return self.text(ref) if self.vec(ref) == t else t.convert(self.text(ref))

    def from_mask(self, mask: str) -> str:
        """A comparison's result (-1 in vectors, 1 in scalars) as int 0 or 1."""
        if self.width == 1:
            return mask
        return f"{Vec('int', self.width).convert(mask)} & 1"

    def float_value(self, fn: str, t: Vec, args: Sequence[str]) -> str:
        """Functions of float and double."""
        row = FUNCTIONS[fn]
        if self.short and fn in SHORT and t.base == "float":
            self.helpers.setdefault(f"short_{fn}_{t}", short_helper(fn, t))
            return f"short_{fn}_{t}({', '.join(args)})"
        return self.form(row, How.HELPER if self.cpu and t.base in row.cpu else row.floats, t, args)

    def sigmoid(self, t: Vec, args: Sequence[str]) -> str:
        """1 / (1 + exp(-x))."""
        e = self.float_value("exp", t, [f"-{args[0]}"])
        return f"{t.literal(1.0)} / ({t.literal(1.0)} + {e})"

    def tangent(self, t: Vec, args: Sequence[str]) -> str:
        """On a CPU by the helpers of sine and cosine."""
        if self.cpu and t.base == "float":
            return f"{self.call('sin', t, *args)} / {self.call('cos', t, *args)}"
        return f"tan({args[0]})"

    def modulus(self, t: Vec, args: Sequence[str]) -> str:
        """C's remainder, moved to the sign of the divisor."""
        return self.call("mod", t, self.float_value("fmod", t, args), args[1])

    def absolute(self, t: Vec, args: Sequence[str]) -> str:
        """Absolute value of integers; the least integer stays itself."""
        return args[0] if t.is_unsigned else t.reinterpret(f"abs({args[0]})")

    def sign(self, t: Vec, args: Sequence[str]) -> str:
        """Sign of integers."""
        zero = t.literal(0)
        return f"min({args[0]}, {t.literal(1)})" if t.is_unsigned else _sign_of(t, args[0], zero)

    def shift_left(self, t: Vec, args: Sequence[str]) -> str:
        """Left shift by any count."""
        return self.shift("shl", t, args)

    def shift_right(self, t: Vec, args: Sequence[str]) -> str:
        """Right shift by any count."""
        return self.shift("shr", t, args)

    def shift(self, fn: str, t: Vec, args: Sequence[str]) -> str:
        """Shifts by any count: from the type's width on, only the sign remains."""
        a, count = args
        u = t.unsigned
        bits = count if t.is_unsigned else u.reinterpret(count)
        inside = f"{bits} < {u.literal(t.bits)}"
        safe = f"({bits} & {u.literal(t.bits - 1)})"
        if fn == "shr":
            rest = t.literal(0) if t.is_unsigned else f"({a} >> {u.literal(t.bits - 1)})"
            return t.choose(inside, f"{a} >> {safe}", rest)
        moved = f"{u.convert(a) if self.width == 1 else u.reinterpret(a)} << {safe}"
        return t.choose(inside, t.convert(moved) if self.width == 1 else t.reinterpret(moved), t.literal(0))

    def requantize(self, t: Vec, args: Sequence[str]) -> str:
        """Computed in int, whatever integers the operands are."""
        i = t.of("int")
        value = self.call("requantize", i, *(a if t == i else i.convert(a) for a in args))
        return value if t == i else t.convert(value)

    def where(self, k: int, ins: Instr) -> str:
        """c ? a : b with the condition converted to the lanes' size."""
        t = self.vec(ins.dtype)
        c = self.text(ins.args[0])
        if self.width > 1:
            c = f"{c} != {Vec('int', self.width).literal(0)}" if t.bits == 32 else t.mask.convert(f"-{c}")
        return t.choose(c, self.as_type(ins.args[1], t), self.as_type(ins.args[2], t))

    def power(self, k: int, ins: Instr) -> str:
        """Small literal powers by multiplication; integers exactly; else the built-in."""
        base, exponent = ins.args
        t, e = self.vec(base), self.vec(exponent)
        a = self.text(base)
        if not t.is_float and isinstance(exponent, Lit) and float(exponent.value).is_integer():
            return self.call("pow", t, a, t.of("long").literal(int(exponent.value)))
        if not t.is_float and e.is_float:
            # Slightly more, so that truncation does not lower a power that is a whole number.
            e = e.of("double") if self.device.fp64 else e
            more = e.literal(1 + 2.0 ** (-50 if e.base == "double" else -22))
            power = self.float_power(e, e.convert(a), self.as_type(exponent, e))
            self.statements.append(f"const {e} p{k} = {power} * {more};")
            return self.to_int(f"p{k}", e, t)
        if not t.is_float:
            return self.call("pow", t, a, self.as_type(exponent, t.of("long")))
        if isinstance(exponent, Lit):
            value = float(exponent.value)
            if value in _POWERS:
                return _POWERS[value].format(a, one=t.literal(1.0))
            if value in _ROOTS:
                # Fractional powers of -0 equal those of 0, and of -infinity those of infinity.
                # (Mesa takes a + 0 for a.)
                inf, zero = t.literal(float("inf")), t.literal(0.0)
                self.statements.append(f"const {t} r{k} = {a} == -{inf} ? {inf} : {a} == {zero} ? {zero} : {a};")
                return _ROOTS[value].format(f"r{k}")
        return self.float_power(t, a, self.as_type(exponent, t))

    def float_power(self, t: Vec, a: str, b: str) -> str:
        """a to the power of b."""
        return self.call("pow", t, a, b) if self.cpu and self.device.fp64 else f"pow({a}, {b})"

    def cast(self, k: int, ins: Instr) -> str:
        """Casts: to bool by comparison, float to integer by truncation, integers wrapping around."""
        ref, src, dst = ins.args[0], self.vec(ins.args[0]), self.vec(ins.dtype)
        a = self.text(ref)
        from_dtype = self.expr.ref_dtype(ref)
        if ins.dtype is DType.BOOL:
            return a if from_dtype is DType.BOOL else self.from_mask(f"{a} != {src.literal(0)}")
        if src.is_float and ins.dtype.is_int:
            return self.to_int(a, src, dst)
        if src != dst:
            a = dst.convert(a)
        if ins.dtype in (DType.FLOAT16, DType.BFLOAT16) and from_dtype is not ins.dtype:
            return self.rounded(a, dst, ins.dtype)
        return a

    def rounded(self, a: str, t: Vec, dtype: DType) -> str:
        """Float `a` rounded to a value of `dtype`."""
        if dtype is DType.FLOAT16:
            return self.call("round_half", t, a)
        u = t.of("uint")
        return t.reinterpret(f"{u.convert(self.call('bf16_bits', t, a))} << 16")

    def to_int(self, a: str, src: Vec, dst: Vec) -> str:
        """Float `a` toward zero; NaN gives 0. Narrow types take the low bits of int; uint and ulong those of long."""
        number = f"{a} == {a} ? {a} : {src.literal(0.0)}"
        if dst.bits < 32:
            return dst.convert(dst.of("int").convert_sat(number))
        if dst.base == "uint":
            return dst.convert(dst.of("long").convert_sat(number))
        if dst.base == "ulong":
            low = dst.reinterpret(dst.of("long").convert_sat(number))
            return f"{_mask_of(src, f'{a} < {src.literal(0.0)}', dst)} ? {low} : {dst.convert_sat(number)}"
        return dst.convert_sat(number)

    def bits(self, k: int, ins: Instr) -> str:
        """The same bits as another type of equal size; 16-bit floats are held as float, bool as int."""
        src = self.expr.ref_dtype(ins.args[0])
        if src.size != ins.dtype.size or any(d in _HELD_WIDER for d in (src, ins.dtype)):
            raise ValueError(f"'bits' has no meaning from {src} to {ins.dtype}")
        return self.vec(ins.dtype).reinterpret(self.text(ins.args[0]))

    def saturate(self, k: int, ins: Instr) -> str:
        """Clamps to the range of the integer result; NaN gives 0."""
        src, dst = self.vec(ins.args[0]), self.vec(ins.dtype)
        a = self.text(ins.args[0])
        low, high = dst.limits
        if not src.is_float:
            least, most = src.limits
            bounds = src.literal(max(low, least)), src.literal(min(high, most))
            return dst.convert(f"clamp({a}, {bounds[0]}, {bounds[1]})")
        if dst.bits >= 32:
            return dst.convert_sat(f"{a} == {a} ? {a} : {src.literal(0.0)}")
        clamped = f"clamp({a}, {src.literal(low)}, {src.literal(high)})"
        return dst.convert(dst.of("int").convert(f"{a} == {a} ? {clamped} : {src.literal(0.0)}"))


def _is_number(ref: Ref) -> bool:
    """Whether a reference is a literal other than NaN."""
    return isinstance(ref, Lit) and ref.value == ref.value


def _mask_of(src: Vec, mask: str, dst: Vec) -> str:
    """A comparison of `src` lanes as a condition for `dst` lanes."""
    return mask if src.width == 1 or src.bits == dst.bits else dst.mask.convert(mask)


def _sign_of(t: Vec, a: str, zero: str) -> str:
    # Comparisons are 1 in scalars and -1 in vectors.
    return f"({a} > {zero}) - ({a} < {zero})" if t.width == 1 else f"({a} < {zero}) - ({a} > {zero})"


_OWN: dict[str, Callable[[_Emitter, Vec, Sequence[str]], str]] = {
    "sigmoid": _Emitter.sigmoid,
    "tan": _Emitter.tangent,
    "mod": _Emitter.modulus,
    "abs": _Emitter.absolute,
    "sign": _Emitter.sign,
    "shl": _Emitter.shift_left,
    "shr": _Emitter.shift_right,
    "requantize": _Emitter.requantize,
}
"""Forms that are more than a text, of converted arguments."""

_WHOLE: dict[str, Callable[[_Emitter, int, Instr], str]] = {
    "where": _Emitter.where,
    "pow": _Emitter.power,
    "cast": _Emitter.cast,
    "saturate": _Emitter.saturate,
    "bits": _Emitter.bits,
}
"""Those that look at the instruction: at its type, or at literals."""

_HELD_WIDER = (DType.FLOAT16, DType.BFLOAT16, DType.BOOL)

_POWERS = {
    0.0: "{one}",
    1.0: "{0}",
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
    4.0: "({0} * {0}) * ({0} * {0})",
    -1.0: "{one} / {0}",
    -2.0: "{one} / ({0} * {0})",
}

_ROOTS = {
    0.25: "sqrt(sqrt({0}))",
    0.5: "sqrt({0})",
    0.75: "sqrt({0}) * sqrt(sqrt({0}))",
    1.25: "{0} * sqrt(sqrt({0}))",
    1.5: "{0} * sqrt({0})",
    1.75: "{0} * (sqrt({0}) * sqrt(sqrt({0})))",
    -0.25: "sqrt(rsqrt({0}))",
    -0.5: "rsqrt({0})",
    -0.75: "rsqrt({0}) * sqrt(rsqrt({0}))",
    -1.25: "sqrt(rsqrt({0})) / {0}",
    -1.5: "rsqrt({0}) / {0}",
    -1.75: "rsqrt({0}) * sqrt(rsqrt({0})) / {0}",
}
"""Powers by square roots: on a CPU within 4e-7, in a quarter of the time that `pow` of helpers.py takes."""
