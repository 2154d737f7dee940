"""Spares PoCL compiling each kernel three times.

PoCL makes three functions of a kernel, two of which call the first, and inlines it there: it optimises the body three
times, and calls one of the three. LLVM does not inline a function of which it stores the address of a label. So each
kernel gets a label in front, and stores its address on a branch that no run takes. All branches stay plain ones, which
PoCL expects where it divides a kernel at its barriers. Measured with PoCL 3.0 (LLVM 14): a program of MobileNetV2 takes
0.18 s in place of 0.29, a tile of attention with barriers 1.4 in place of 3.8, and they run as fast.

Programs with assembly are left alone, as a step loop's own, one of whose functions the host calls: they are small.
"""

from __future__ import annotations

import re

_NAME = "OPALITE_COMPILED_ONCE"
# Before the first work-item there is no work-group.
PRELUDE = f"""#if defined(__clang_major__) && __clang_major__ <= 14
#define {_NAME} if ((long)get_global_size(0) < 0) {{ volatile __typeof__(&&body_) at_ = &&body_; }} body_:;
#else
#define {_NAME}
#endif"""
"""What comes in front of a program that `mark_kernels` has marked."""

_COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/")
_LEFT_ALONE = re.compile(r"\b__asm__\b")
_KERNEL = re.compile(r"^(?:(?!#|//)[^\n;{}])*?\b(?:__)?kernel\b[^;{}]*?\bvoid\s+\w+\s*\([^;{}]*\)\s*\{", re.MULTILINE)


def mark_kernels(text: str) -> str:
    """A program's text whose kernels are compiled once, behind PRELUDE; unchanged if it has assembly."""
    if _LEFT_ALONE.search(_COMMENT.sub("", text)):
        return text
    return _KERNEL.sub(lambda found: f"{found[0]} {_NAME}", text)
