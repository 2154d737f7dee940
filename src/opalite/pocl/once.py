"""Spares PoCL compiling each kernel three times.

PoCL makes three functions of a kernel, two of which call the first, and inlines it there: it optimises the body three
times, and calls one of the three. LLVM does not inline a function that jumps to a label by its address. So each kernel
gets such a jump in front, which no run takes. Measured with PoCL 3.0 (LLVM 14): a program of MobileNetV2 takes 0.18 s
in place of 0.29, and runs as fast.

Kernels with barriers are left alone: PoCL divides them at their barriers, and expects plain branches between these. So
are programs with assembly, as a step loop's own, one of whose functions the host calls: they are small.
"""

from __future__ import annotations

import re

_NAME = "OPALITE_COMPILED_ONCE"
# The jump's target is read from memory, or LLVM would know it. Before the first work-item there is no work-group.
PRELUDE = f"""#if defined(__clang_major__) && __clang_major__ <= 14
#define {_NAME} if ((long)get_global_size(0) < 0) {{ volatile __typeof__(&&body_) at_ = &&body_; goto *at_; }} body_:;
#else
#define {_NAME}
#endif"""
"""What comes in front of a program that `mark_kernels` has marked."""

_COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/")
_LEFT_ALONE = re.compile(r"\b(?:sub_group_|work_group_)?barrier\s*\(|\b__asm__\b")
_KERNEL = re.compile(r"^(?:(?!#|//)[^\n;{}])*?\b(?:__)?kernel\b[^;{}]*?\bvoid\s+\w+\s*\([^;{}]*\)\s*\{", re.MULTILINE)


def mark_kernels(text: str) -> str:
    """A program's text whose kernels are compiled once, behind PRELUDE; unchanged if it has barriers or assembly."""
    if _LEFT_ALONE.search(_COMMENT.sub("", text)):
        return text
    return _KERNEL.sub(lambda found: f"{found[0]} {_NAME}", text)
