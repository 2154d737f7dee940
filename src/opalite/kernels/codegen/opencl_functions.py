"""OpenCL C functions that generated expressions call, emitted for one vector type at a time on demand.

Longer than 400 lines: a list of independent functions.

`helper(name, type)` gives the function `<name>_<type>`. Masks are comparison results of that type; a ternary with a
vector condition selects lane by lane. Sums of products are `fma`, because PoCL makes two operations of `mad`.
"""

from __future__ import annotations

from collections.abc import Callable

from .vector_types import Vec

Writer = Callable[[Vec], str]


def helper(name: str, t: Vec) -> str:
    """Source of the helper `name` for type `t`."""
    return _HELPERS[name](t)


def _function(name: str, t: Vec, params: str, body: str, result: Vec | None = None) -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"static inline {result or t} {name}_{t}({params}) {{\n{lines}}}\n"


def _polynomial(x: str, t: Vec, coefficients: tuple[float, ...]) -> str:
    """Horner's scheme, highest power first."""
    text = t.literal(coefficients[0])
    for c in coefficients[1:]:
        text = f"fma({text}, {x}, {t.literal(c)})"
    return text


# -- Floating point --------------------------------------------------------------------------------------------


def _exp(t: Vec) -> str:
    """2^n * e^r with |r| <= ln(2)/2; error below 2 ulp; results below the least normal number are zero."""
    i = t.of("int")
    p = _polynomial("r", t, (1.9875691e-4, 1.3981999e-3, 8.333452e-3, 4.1665796e-2, 1.6666666e-1, 0.5))
    text = f"""
const {t} m = fma(x, {t.literal(1.44269504)}, {t.literal(12582912.0)});
const {t} n = m - {t.literal(12582912.0)};
const {t} r = fma(n, {t.literal(2.12194440e-4)}, fma(n, {t.literal(-0.693359375)}, x));
const {t} p = fma({p}, r * r, r) + {t.literal(1.0)};
const {t} y = {t.reinterpret(f"{i.unsigned.reinterpret('p')} + ({i.unsigned.reinterpret('m')} << 23)")};
const {t} low = x >= {t.literal(-87.33654)} ? y : {t.literal(0.0)};
return x <= {t.literal(88.72283)} ? low : x + {t.literal(float("inf"))};
"""
    return _function("exp", t, f"{t} x", text)


def _odd_rational(name: str, limit: float, p: tuple[float, ...], q: tuple[float, ...]) -> Writer:
    """x P(x^2) / Q(x^2) for an odd function that is 1 in float from `limit` on; NaN is propagated.

    Beyond `limit` the result is exactly 1, because Gelu multiplies 1 + erf(x) by a large x.
    """

    def write(t: Vec) -> str:
        one = t.literal(1.0)
        text = f"""
const {t} s = x * x;
const {t} y = x * {_polynomial("s", t, p)} / {_polynomial("s", t, q)};
return ((fabs(x) >= {t.literal(limit)}) | (fabs(y) > {one})) ? copysign({one}, x) : y;
"""
        return _function(name, t, f"{t} x", text)

    return write


# Least-squares fits of the relative error on [-limit, limit]; 6 ulp, 4e-7 absolute.
_erf = _odd_rational(
    "erf",
    3.92,
    (2.0501129e-6, 2.8487906e-4, 3.7654636e-3, 5.2748255e-2, 1.9040293e-1, 1.1283791),
    (3.8091788e-5, 1.1624978e-3, 1.4968911e-2, 1.1410765e-1, 5.0207293e-1, 1.0),
)
_tanh = _odd_rational(
    "tanh",
    9.01,
    (1.3337081e-8, 2.0596464e-5, 3.4948236e-3, 1.3380383e-1, 1.0),
    (7.7693846e-7, 3.2843830e-4, 2.5874076e-2, 4.6713698e-1, 1.0),
)


def _circular(name: str, quarter: int) -> Writer:
    """sin (quarter 0) or cos (1): Cody-Waite reduction to [-pi/4, pi/4], Cephes' polynomials of sinf and cosf.

    If a lane is beyond 8192, the scalar built-in computes all lanes, because PoCL's vectors lose small lanes next to
    large ones.
    """

    def write(t: Vec) -> str:
        i = t.of("int")
        one, magic = t.literal(1.0), t.literal(12582912.0)
        odd = _polynomial("z", t, (-1.9515296e-4, 8.3321609e-3, -1.6666655e-1))
        even = _polynomial("z", t, (2.4433157e-5, -1.3887316e-3, 4.1666646e-2))
        turns = f"{i.reinterpret('m')} + {i.literal(quarter)}"
        negative = f"({turns}) & {i.literal(2)}"
        text = f"""
const {t.mask} large = fabs(x) > {t.literal(8192.0)};
if ({"large" if t.width == 1 else "any(large)"}) {{
    {t} y;
    for (int k = 0; k < {t.width}; ++k) (({t.base} *)&y)[k] = {name}(((const {t.base} *)&x)[k]);
    return y;
}}
const {t} m = fma(x, {t.literal(0.63661977)}, {magic});
const {t} n = m - {magic};
const {t} h = fma(n, {t.literal(-4.8375130e-4)}, fma(n, {t.literal(-1.5703125)}, x));
const {t} r = fma(n, {t.literal(-7.5497900e-8)}, h);
const {t} z = r * r;
const {t} s = fma(r * z, {odd}, r);
const {t} c = fma(z * z, {even}, {one} - {t.literal(0.5)} * z);
const {t} y = (({turns}) & {i.literal(1)}) != {i.literal(0)} ? c : s;
return ({negative}) != {i.literal(0)} ? -y : y;
"""
        return _function(name, t, f"{t} x", text)

    return write


def _fmod_float(t: Vec) -> str:
    """Remainder with the sign of the dividend, exact, in a bounded number of rounds.

    Each round subtracts the quotient's leading bits, rounded to four bits fewer than the fraction has, so that the rest
    is exact. For CPUs: PoCL's fmod of double does not return for huge quotients.
    """
    exact, most, rounds = (2.0**19, 2.0**100, 8) if t.base == "float" else (2.0**48, 2.0**900, 24)
    zero, inf, nan = t.literal(0.0), t.literal(float("inf")), t.literal(float("nan"))
    u = t.unsigned
    leading = t.reinterpret(f"({u.reinterpret('p')} + {u.literal(8)}) & {u.literal(-16)}")
    left = "fabs(r) >= d"
    text = f"""
const {t} d = fabs(b);
{t} r = a;
for (int k = 0; k < {rounds} && {left if t.width == 1 else f"any({left})"}; ++k) {{
    const {t} p = clamp(r / d, {t.literal(-most)}, {t.literal(most)});
    const {t} q = fabs(p) < {t.literal(exact)} ? rint(p) : {leading};
    r = {left} ? fma(-q, d, r) : r;
}}
const {t} near = copysign(r, a) == r ? r : r + copysign(d, a);
const {t} y = near == {zero} ? copysign({zero}, a) : near;
return (fabs(a) < {inf}) & (d > {zero}) ? y : {nan};
"""
    return _function("fmod", t, f"{t} a, {t} b", text)


# Chebyshev fits: log2(1 + f) / f for 1 + f in [sqrt(1/2), sqrt(2)], 2e-11; 2^r for |r| <= 1/2, 3e-9.
_LOG2 = (
    7.751562321744e-2,
    -1.429437427886e-1,
    1.447283164806e-1,
    -1.43130697358e-1,
    1.587696206725e-1,
    -1.803029596234e-1,
    2.061754880611e-1,
    -2.404530686275e-1,
    2.885372878338e-1,
    -3.606736765078e-1,
    4.808983614641e-1,
    -7.213475208603e-1,
    1.442695040869,
)
_EXP2 = (
    1.546973201578e-4,
    1.340043216499e-3,
    9.618025602827e-3,
    5.55032721421e-2,
    2.40226512136e-1,
    6.931472067106e-1,
    9.999999999595e-1,
)


def _pow_float(t: Vec) -> str:
    """Power through logarithm and exponential in double, rounded once: error below 0.6 ulp, subnormals included.

    Special cases are C's; a lane that may be special sends all lanes through the tests. PoCL's vector pow takes 260 ns
    for 16 lanes on an Emerald Rapids, this function 40.
    """
    i, d, n = t.of("int"), t.of("double"), t.of("long")
    zero, one, inf = t.literal(0.0), t.literal(1.0), t.literal(float("inf"))
    magic = d.literal(6755399441055744.0)  # 1.5 * 2^52: the sum's low bits are the integer
    text = f"""
const {t} x = fabs(a);
const {t.mask} tiny = x < {t.literal(2.0**-126)};
const {i} bits = {i.reinterpret(f"tiny ? x * {t.literal(2.0**24)} : x")};
const {i} k = (bits - {i.literal(0x3F3504F3)}) >> 23;
const {t} f = {t.reinterpret("bits - (k << 23)")} - {one};
const {t} e = {t.convert("k")} - (tiny ? {t.literal(24.0)} : {zero});
const {d} g = {d.convert("f")};
const {d} l = fma(g, {_polynomial("g", d, _LOG2)}, {d.convert("e")});
const {d} p = l * {d.convert("b")};
const {d} low = p < {d.literal(-500.0)} ? {d.literal(-500.0)} : p;
const {d} c = low > {d.literal(500.0)} ? {d.literal(500.0)} : low;
const {d} m = c + {magic};
const {d} r = c - (m - {magic});
const {n} q = {n.reinterpret(_polynomial("r", d, _EXP2))} + ({n.reinterpret("m")} << 52);
{t} y = {t.convert(d.reinterpret("q"))};
const {t.mask} odd = !((a > {zero}) & (a < {inf}) & (fabs(b) < {inf}));
if ({"odd" if t.width == 1 else "any(odd)"}) {{
    const {t} h = b * {t.literal(0.5)};
    const {t.mask} whole = trunc(b) == b, uneven = whole & (trunc(h) != h);
    const {t} none = b > {zero} ? {zero} : {inf}, all = b > {zero} ? {inf} : {zero};
    y = x == {zero} ? none : y;
    y = x == {inf} ? all : y;
    y = (fabs(b) == {inf}) & (x < {one}) ? none : y;
    y = (fabs(b) == {inf}) & (x > {one}) ? all : y;
    y = (a < {zero}) & (x < {inf}) & !whole ? {t.literal(float("nan"))} : y;
    y = uneven ? copysign(y, a) : y;
    y = (a != a) | (b != b) ? a + b : y;
    y = (a == {one}) | (b == {zero}) | ((x == {one}) & (fabs(b) == {inf})) ? {one} : y;
}}
return y;
"""
    return _function("pow", t, f"{t} a, {t} b", text)


def _pow_lanes(t: Vec) -> str:
    """The scalar built-in lane by lane: PoCL's vectors of double lose lanes next to very large or small results."""
    scalars = "(({0} *)&{1})[k]".format
    out, a, b = (scalars(f"const {t.base}" if v != "y" else t.base, v) for v in "yab")
    return _function(
        "pow", t, f"{t} a, {t} b", f"{t} y;\nfor (int k = 0; k < {t.width}; ++k) {out} = pow({a}, {b});\nreturn y;"
    )


def _rint(t: Vec) -> str:
    """Rounds half to even, by one instruction if the compiler has one, else by adding and subtracting 2^23.

    Values of at least 2^23 are integers.
    """
    big = t.literal(8388608.0)
    return f"""#if defined(__has_builtin) && (defined(__SSE4_1__) || defined(__aarch64__))
#if __has_builtin(__builtin_elementwise_roundeven)
#define ROUNDS_TO_EVEN
#endif
#endif
static inline {t} rint_{t}({t} x) {{
#ifdef ROUNDS_TO_EVEN
    return __builtin_elementwise_roundeven(x);
#else
    const {t} m = copysign({big}, x);
    return fabs(x) < {big} ? copysign((x + m) - m, x) : x;
#endif
}}
"""


def _div_by(t: Vec) -> str:
    """a / b by 1 / b, which compilers hoist out of loops, and one Markstein correction."""
    text = f"""
const {t} r = {t.literal(1.0)} / b;
const {t} q = a * r;
return fabs(q) < {t.literal(1e30)} ? fma(fma(-q, b, a), r, q) : q;
"""
    return _function("div_by", t, f"{t} a, {t} b", text)


def _sign(t: Vec) -> str:
    zero, one = t.literal(0), t.literal(1)
    return _function("sign", t, f"{t} x", f"return x > {zero} ? {one} : x < {zero} ? -{one} : x;")


def _max(t: Vec) -> str:
    """Maximum that propagates NaN from either side."""
    return _function("max", t, f"{t} a, {t} b", f"const {t} m = a > b ? a : b;\nreturn a == a ? m : a;")


def _min(t: Vec) -> str:
    return _function("min", t, f"{t} a, {t} b", f"const {t} m = a < b ? a : b;\nreturn a == a ? m : a;")


def _mod_float(t: Vec) -> str:
    """Source of `mod`: C's remainder `r`, adjusted to the sign of the divisor `b`."""
    zero = t.literal(0)
    differ = f"((r < {zero}) != (b < {zero}))"
    text = f"""
const {t} moved = {differ} ? r + b : r;
return r == {zero} ? copysign({zero}, b) : moved;
"""
    return _function("mod", t, f"{t} r, {t} b", text)


def _round_half(t: Vec) -> str:
    """The nearest value of half: ten fraction bits, steps of 2^-24 below 2^-14, infinity from 65520 on."""
    u = t.unsigned
    text = f"""
const {u} b = {u.reinterpret("x")};
const {t} fine = {t.reinterpret(f"(b + {u.literal(0xFFF)} + ((b >> 13) & {u.literal(1)})) & {u.literal(0xFFFFE000)}")};
const {t} a = fabs(x);
const {t} tiny = copysign((a + {t.literal(0.5)}) - {t.literal(0.5)}, x);
const {t} y = a < {t.literal(2.0**-14)} ? tiny : fine;
const {t} high = a < {t.literal(65520.0)} ? y : copysign({t.literal(float("inf"))}, x);
return x == x ? high : x;
"""
    return _function("round_half", t, f"{t} x", text)


def _bf16_bits(t: Vec) -> str:
    """The upper half of a float, rounded to nearest even; NaN kept quiet."""
    u, out = t.unsigned, t.of("ushort")
    rounded = f"(b + {u.literal(0x7FFF)} + ((b >> 16) & {u.literal(1)})) >> 16"
    text = f"""
const {u} b = {u.reinterpret("x")};
const {u} quiet = (b >> 16) | {u.literal(0x40)};
const {u} bits = x == x ? {rounded} : quiet;
return {out.convert("bits")};
"""
    return _function("bf16_bits", t, f"{t} x", text, out)


# -- Integers --------------------------------------------------------------------------------------------------


def wrapped(t: Vec, op: str, *args: str) -> str:
    """`a op b` (or `op a`) on integers with wraparound, since signed overflow is undefined in C."""
    unsigned = t.unsigned
    if t.width == 1:
        # Narrow scalars are promoted to int, so they are widened to uint by hand.
        wide = unsigned if t.bits >= 32 else Vec("uint", 1)
        parts = [f"({wide})({a})" for a in args]
    else:
        parts = [a if t.is_unsigned else unsigned.reinterpret(a) for a in args]
    text = f"{op}{parts[0]}" if len(parts) == 1 else f"{parts[0]} {op} {parts[1]}"
    if t.width == 1:
        return f"({t})({text})"
    return text if t.is_unsigned else t.reinterpret(text)


def _guarded(t: Vec, rest: str, by_minus_one: str) -> str:
    """Statements for r: zero if b is zero, `by_minus_one` if it is -1 (the least integer traps), else `rest`.

    `rest` divides by d.
    """
    zero, one = t.literal(0), t.literal(1)
    if t.is_unsigned:
        return f"const {t} d = b == {zero} ? {one} : b;\nconst {t} r = b == {zero} ? {zero} : {rest};\n"
    minus = t.literal(-1)
    return f"""
const {t} d = {t.choose(f"(b == {zero}) | (b == {minus})", one, "b")};
const {t} q = {t.choose(f"b == {minus}", by_minus_one, rest)};
const {t} r = {t.choose(f"b == {zero}", zero, "q")};
"""


def _div(t: Vec) -> str:
    """Integer division toward zero."""
    return _function("div", t, f"{t} a, {t} b", _guarded(t, "a / d", wrapped(t, "-", "a")) + "return r;")


def _fmod_int(t: Vec) -> str:
    """Remainder with the sign of the dividend."""
    return _function("fmod", t, f"{t} a, {t} b", _guarded(t, "a % d", t.literal(0)) + "return r;")


def _mod_int(t: Vec) -> str:
    """Remainder with the sign of the divisor."""
    zero = t.literal(0)
    differ = f"(r != {zero}) & ((r < {zero}) != (b < {zero}))"
    end = "return r;" if t.is_unsigned else f"return {t.choose(differ, 'r + b', 'r')};"
    return _function("mod", t, f"{t} a, {t} b", _guarded(t, "a % d", zero) + end)


def _pow_int(t: Vec) -> str:
    """Power by squaring, with wraparound; negative powers of anything but 1 and -1 are zero."""
    e, n = t.of("long"), t.of("ulong")
    zero, one = t.literal(0), t.literal(1)

    def mask(condition: str) -> str:
        return condition if t.width == 1 else t.mask.convert(condition)

    unit = f"a == {one}" if t.is_unsigned else f"(a == {one}) | (a == {t.literal(-1)})"
    more = f"n != {n.literal(0)}"
    text = f"""
const {t.mask} gone = {mask(f"e < {e.literal(0)}")} & !({unit});
{t} y = {one};
{t} s = a;
for ({n} n = abs(e); {more if t.width == 1 else f"any({more})"}; n >>= 1) {{
    y = {t.choose(mask(f"(n & {n.literal(1)}) != {n.literal(0)}"), wrapped(t, "*", "y", "s"), "y")};
    s = {wrapped(t, "*", "s", "s")};
}}
return {t.choose("gone", zero, "y")};
"""
    return _function("pow", t, f"{t} a, {e} e", text)


def _requantize(t: Vec) -> str:
    """x * m / 2^31 of int, halves up, by a product in long; then / 2^bits, halves away from zero."""
    w, u = t.of("long"), t.unsigned
    text = f"""
const {t} right = bits & {t.literal(31)};
const {w} wide = {w.convert("x")} * {w.convert("m")} + {w.literal(1 << 30)};
const {t} high = {t.convert("wide >> 31")};
const {t} mask = {t.reinterpret(f"({u.literal(1)} << {u.reinterpret('right')}) - {u.literal(1)}")};
const {t} up = (high & mask) > (mask >> 1) - (high >> 31) ? {t.literal(1)} : {t.literal(0)};
return (high >> right) + up;
"""
    return _function("requantize", t, f"{t} x, {t} m, {t} bits", text)


_POWERS: dict[str, Writer] = {"float": _pow_float, "double": _pow_lanes}

_HELPERS: dict[str, Writer] = {
    "exp": _exp,
    "erf": _erf,
    "tanh": _tanh,
    "rint": _rint,
    "div_by": _div_by,
    "sin": _circular("sin", 0),
    "cos": _circular("cos", 1),
    "sign": _sign,
    "max": _max,
    "min": _min,
    "mod": lambda t: _mod_float(t) if t.is_float else _mod_int(t),
    "fmod": lambda t: _fmod_float(t) if t.is_float else _fmod_int(t),
    "round_half": _round_half,
    "bf16_bits": _bf16_bits,
    "div": _div,
    "requantize": _requantize,
    "pow": lambda t: _POWERS.get(t.base, _pow_int)(t),
}
