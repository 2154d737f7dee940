"""What kernels declare, read from the program as it is built."""

from __future__ import annotations

import re

import pytest

from opalite.kernels.lower_arguments import Parameter, find_signature
from opalite.kernels.opencl_preprocessor import Preprocessed

KERNEL = re.compile(r"kernel void \w+\(")


def expand(text: str, **options: object) -> str:
    """The last line of `text` as the preprocessor leaves it."""
    *_, last = text.splitlines()
    program = Preprocessed((text,), {k: str(v) for k, v in options.items()})
    return program.expand(last, (0, len(text) - len(last)))


@pytest.mark.parametrize(
    "text, options, expected",
    [
        ("#define A int\nA x", {}, "int x"),
        ("#ifndef A\n#define A int\n#endif\nA x", {"A": "long"}, "long x"),
        ("#if N > 1 && !defined(B)\n#define A int\n#else\n#define A uint\n#endif\nA", {"N": 2}, "int"),
        ("#if N > 1 && !defined(B)\n#define A int\n#else\n#define A uint\n#endif\nA", {"N": 2, "B": 1}, "uint"),
        ("#if N == 0\n#define A 0\n#elif N == 1\n#define A 1\n#elif N == 1\n#define A 2\n#endif\nA", {"N": 1}, "1"),
        ("#define JOIN_(a, b) a##b\n#define JOIN(a, b) JOIN_(a, b)\nJOIN(P_, N)", {"N": 3}, "P_3"),
        (
            "#define P_1 , int a\n#define P_2 P_1, int b\n#define C(a, b) a##b\nint n C(P_, 2)",
            {},
            "int n , int a, int b",
        ),
        ("#define LONG int a, \\\n    int b\nLONG", {}, "int a,      int b"),
        ("#define A int // a comment\nA", {}, "int"),
        ("#define A int\n#undef A\nA", {}, "A"),
        ("#define A A\nA", {}, "A"),
        ("#if 0\n#if 1\n#define A int\n#endif\n#endif\nA", {}, "A"),
    ],
)
def test_macros_and_conditions(text: str, options: dict[str, object], expected: str) -> None:
    assert expand(text, **options) == expected


def test_a_macro_is_what_it_was_where_the_kernel_stands() -> None:
    text = "#define T int\nkernel void f(T x) {}\n#undef T\n#define T long\nkernel void g(T x) {}\n"
    program = Preprocessed((text,), {})
    assert program.expand("T", (0, text.index("kernel"))) == "int"
    assert program.expand("T", (0, text.rindex("kernel"))) == "long"


def test_text_that_is_not_compiled_is_passed_by() -> None:
    text = "#if N\nkernel void f(int x) {}\n#else\nkernel void g(int x) {}\n#endif\n"
    for n, name in ((0, "g"), (1, "f")):
        found = Preprocessed((text,), {"N": str(n)}).find(KERNEL)
        assert found is not None
        assert found[0][0] == f"kernel void {name}("


def test_a_condition_beyond_integers_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be evaluated"):
        Preprocessed(("#if import os\nkernel void f(int x)\n#endif",), {}).find(KERNEL)


def test_parameters_follow_defines_and_prelude() -> None:
    defines = {"STORAGE": 1, "HAS_BIAS": False}
    prelude = "#define EPILOGUE_PARAMS , global const float *e1, const int e1_0\n"
    plain = find_signature("conv/row_major_vectors.cl", "", defines, "conv_rows")
    assert plain[0] == Parameter("x", "global", "half", is_read=True)
    assert "bias" not in {p.name for p in plain}
    more = find_signature("conv/row_major_vectors.cl", prelude, {"STORAGE": 0, "HAS_BIAS": True}, "conv_rows")
    assert [p.name for p in more] == [p.name for p in (*plain[:2],)] + ["bias"] + [p.name for p in plain[2:]] + [
        "e1",
        "e1_0",
    ]
    assert more[-2:] == (Parameter("e1", "global", "float", is_read=True), Parameter("e1_0", "", "int"))


def test_a_missing_kernel_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"declaration of conv_x in conv/row_major_vectors.cl is not understood: there is no kernel"
    ):
        find_signature("conv/row_major_vectors.cl", "", {}, "conv_x")
