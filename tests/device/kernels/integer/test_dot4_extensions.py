"""Dot products by extensions of devices that are not here: doubles in OpenCL C stand for their built-in functions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyopencl as cl
import pytest

from opalite.cl.device import probe_dot_products
from opalite.cl.runtime import Runtime
from opalite.ir.device.device_family import ARM_DOT, PTX_DOT, QCOM_DOT
from opalite.kernels import kernel_sources
from opalite.kernels.integer import dot4_common

from ..conv_checks import as_gpu
from .test_integer import MIXES, check_conv, in_plain_c, make_conv

_TERMS = "{ const int4 p = convert_int4(a) * convert_int4(b); return c + p.x + p.y + p.z + p.w; }\n"
ACCUMULATES = (
    "#define cl_arm_integer_dot_product_accumulate_int8 1\n#define arm_dot_acc double_dot_acc\n"
    f"static inline int __attribute__((overloadable)) arm_dot_acc(char4 a, char4 b, int c) {_TERMS}"
    f"static inline uint __attribute__((overloadable)) arm_dot_acc(uchar4 a, uchar4 b, uint c) {_TERMS}"
)
MULTIPLIES = (
    "#undef cl_arm_integer_dot_product_accumulate_int8\n#define arm_dot double_dot\n"
    f"static inline int __attribute__((overloadable)) arm_dot(char4 a, char4 b) {_TERMS.replace('c +', '')}"
    f"static inline uint __attribute__((overloadable)) arm_dot(uchar4 a, uchar4 b) {_TERMS.replace('c +', '')}"
)
QUALCOMM = (
    "static inline int double_dot8(char4 a, uchar4 b, int c) " + _TERMS + "#define qcom_dot8_acc(a, b, c) "
    "double_dot8(as_char4(a), as_uchar4(b), c)\n"
)
UNSIGNED = QUALCOMM.replace("char4 a", "uchar4 a").replace("as_char4(a)", "as_uchar4(a)")
DOUBLES = [("arm", ARM_DOT, ACCUMULATES), ("arm", ARM_DOT, MULTIPLIES), ("qcom", QCOM_DOT, QUALCOMM)]


@pytest.mark.parametrize(("kind", "quirk", "double"), DOUBLES, ids=["arm accumulates", "arm", "qcom"])
@pytest.mark.parametrize("mix", MIXES)
def test_convolutions(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch, kind: str, quirk: str, double: str, mix: tuple[str, str]
) -> None:
    other = as_gpu(in_plain_c(rt))
    other.info = dataclasses.replace(other.info, quirks=(*(q for q in other.info.quirks if q != PTX_DOT), quirk))
    assert other.info.dot_product == kind
    head, rest = kernel_sources._common()
    monkeypatch.setattr(kernel_sources, "_common", lambda: (head, rest + double))
    check_conv(other, "ConvDot4", *make_conv("stride", mix, "xmb"))
    assert dot4_common.dot_defines(other.info, None, None)["DOT"] in (3, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("probe", "double", "right"),
    [("arm", ACCUMULATES, True), ("arm", MULTIPLIES, True), ("qcom", QUALCOMM, True), ("qcom", UNSIGNED, False)],
)
def test_probes(rt: Runtime, monkeypatch: pytest.MonkeyPatch, probe: str, double: str, right: bool) -> None:
    monkeypatch.setattr(probe_dot_products, "_SOURCE", double + probe_dot_products._SOURCE)
    listed = probe_dot_products.ARM_EXTENSIONS[double is MULTIPLIES]
    info = dataclasses.replace(rt.info, extensions=(listed,))
    device = rt.device
    if probe == "arm":
        assert probe_dot_products.supports_arm_dot(device, info) is right
    else:
        assert probe_dot_products.supports_qcom_dot(device) is right


def test_functions_that_are_not_there(rt: Runtime, capfd: Any) -> None:
    if rt.info.has(probe_dot_products.QCOM_EXTENSION):
        pytest.skip("the device has it")
    assert probe_dot_products.supports_qcom_dot(rt.device) is False


def test_acceleration_is_what_the_driver_says(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(*flags: int) -> Any:
        def ask(device: int, name: int, size: int, at: int, got: Any) -> int:
            (probe_dot_products.ctypes.c_uint32 * 6).from_address(at)[:] = flags
            return 0

        return lambda *signature: ask

    for flags, slow in (((1, 1, 1, 0, 0, 0), False), ((0, 1, 0, 0, 0, 0), True), ((0, 0, 1, 0, 0, 0), False)):
        monkeypatch.setattr(probe_dot_products, "find_call", says(*flags))
        assert probe_dot_products.is_khr_dot_slow(rt.device) is slow
    monkeypatch.setattr(probe_dot_products, "find_call", lambda *signature: lambda *arguments: -30)
    assert probe_dot_products.is_khr_dot_slow(rt.device) is False


assert cl  # pyopencl is needed
