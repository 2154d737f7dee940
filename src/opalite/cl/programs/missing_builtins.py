"""OpenCL C definitions of fma, sin, cos and tan for drivers that declare but do not link these builtins.

Mesa's rusticl 26 with LLVM's libclc fails with `nir_shader not fully linked`. Devices with the quirk `unlinked_fma` get
DEFINITIONS in front of every program.

fma computes the product's error by Dekker's method and the sum's by Knuth's; only its last rounding is inexact. Sine
and cosine reduce the argument by 2/pi in 96 bits (Payne and Hanek), then evaluate polynomials: within 2.4 ULP.
"""

from __future__ import annotations

_FMA = """
static inline __attribute__((overloadable)) FLOAT stand_in_fma(FLOAT a, FLOAT b, FLOAT c) {
    const FLOAT p = a * b, ah = AS_FLOAT(AS_UINT(a) & 0xFFFFF000u), bh = AS_FLOAT(AS_UINT(b) & 0xFFFFF000u);
    const FLOAT al = a - ah, bl = b - bh, e = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
    const FLOAT s = p + c, t = s - p, u = (p - (s - t)) + (c - t), exact = s + (u + e);
    // Where the product overflows, or its parts would underflow, the plain sum.
    const INT plain = !(fabs(p) < 1e30f) || !(fabs(a) < 1e30f) || !(fabs(b) < 1e30f) || !(fabs(c) < 1e30f)
        || fabs(p) < 1e-30f;
    return PICK;
}
"""
_HALF = """
static inline __attribute__((overloadable)) HALF stand_in_fma(HALF a, HALF b, HALF c) {
    return CONVERT_HALF(CONVERT_FLOAT(a) * CONVERT_FLOAT(b) + CONVERT_FLOAT(c));
}
"""
_CIRCULAR = """
static inline float stand_in_turn(float x, int *quarter) {
    const uint two_by_pi[8] = {
        0, 0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu,
    };
    const uint bits = as_uint(fabs(x));
    *quarter = 0;
    if (fabs(x) < 0.78f) return x;
    if (bits >= 0x7F800000u) return NAN;
    // x is m * 2^e; of 2/pi the bits are left out whose products are whole turns.
    const ulong m = (bits & 0x7FFFFFu) | 0x800000u;
    const int first = (int)(bits >> 23) - 150 - 2 + 32, word = first >> 5, shift = first & 31;
    uint w[3];
    for (int i = 0; i < 3; ++i) {
        const uint next = word + i + 1 < 8 ? two_by_pi[word + i + 1] : 0u;
        w[i] = (uint)(((((ulong)two_by_pi[word + i]) << 32 | next) << shift) >> 32);
    }
    const ulong middle = m * w[1] + ((m * w[2]) >> 32), high = m * w[0] + (middle >> 32);
    const ulong turn = high << 32 | (middle & 0xFFFFFFFFu), q = (turn + (1UL << 61)) >> 62;
    const float r = (float)(long)(turn - (q << 62)) * 3.4061215800e-19f;  // pi / 2 / 2^62
    *quarter = (int)(x < 0 ? 4 - q : q) & 3;
    return x < 0 ? -r : r;
}
static inline float stand_in_sine(float x, int more) {
    int quarter;
    const float r = stand_in_turn(x, &quarter), z = r * r;
    const float s = r + r * z * (-1.6666655e-1f + z * (8.3321609e-3f + z * -1.9515296e-4f));
    const float c = 1.0f - 0.5f * z + z * z * (4.1666646e-2f + z * (-1.3887316e-3f + z * 2.4433157e-5f));
    const int turns = quarter + more;
    const float y = (turns & 1) != 0 ? c : s;
    return (turns & 2) != 0 ? -y : y;
}
static inline __attribute__((overloadable)) float stand_in_sin(float x) { return stand_in_sine(x, 0); }
static inline __attribute__((overloadable)) float stand_in_cos(float x) { return stand_in_sine(x, 1); }
static inline __attribute__((overloadable)) float stand_in_tan(float x) {
    return stand_in_sine(x, 0) / stand_in_sine(x, 1);
}
"""
_LANES = """
static inline __attribute__((overloadable)) floatWIDTH stand_in_NAME(floatWIDTH x) {
    floatWIDTH y;
    for (int i = 0; i < WIDTH; ++i) ((float *)&y)[i] = stand_in_NAME(((const float *)&x)[i]);
    return y;
}
"""
_WIDTHS = (1, 2, 4, 8, 16)
_FUNCTIONS = ("sin", "cos", "tan")


def _filled(text: str, width: int) -> str:
    w = "" if width == 1 else str(width)
    pick = "plain ? s : exact" if width == 1 else "select(exact, s, plain)"
    words = {"CONVERT_FLOAT": f"convert_float{w}", "CONVERT_HALF": f"convert_half{w}", "AS_FLOAT": f"as_float{w}"}
    words |= {"AS_UINT": f"as_uint{w}", "FLOAT": f"float{w}", "HALF": f"half{w}", "INT": f"int{w}", "PICK": pick}
    for word, put in words.items():
        text = text.replace(word, put)
    return text


def _text() -> str:
    parts = ["#pragma OPENCL FP_CONTRACT OFF", *(_filled(_FMA, w) for w in _WIDTHS)]
    parts += ["#ifdef cl_khr_fp16", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable"]
    parts += [*(_filled(_HALF, w) for w in _WIDTHS), "#endif", _CIRCULAR]
    parts += [_LANES.replace("NAME", f).replace("WIDTH", str(w)) for f in _FUNCTIONS for w in _WIDTHS[1:]]
    # Macros with arguments leave variables of these names alone.
    parts += ["#define fma(a, b, c) stand_in_fma(a, b, c)", *(f"#define {f}(x) stand_in_{f}(x)" for f in _FUNCTIONS)]
    return "\n".join([*parts, "#line 1\n"])


DEFINITIONS = _text()
"""Text in front of a program."""

PROBE = "kernel void f(global float *x) { x[0] = fma(x[1], x[2], sin(x[3])); }"
"""A program that fails to build on such a driver."""
