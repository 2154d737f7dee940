"""Waves asked for: full or half ones of an Adreno, by the registers that a kernel is expected to need."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from ..ir.device.device_info import DeviceInfo
from .kernel_sources import program_parts
from .launch import Launch
from .lower_arguments import SCALARS, declaration
from .opencl_preprocessor import Position, Preprocessed, evaluate

# Scalars, addresses and temporaries of a kernel: eight registers of four floats. Not measured.
OTHERS = 128

_REQUEST = """#ifdef cl_qcom_reqd_sub_group_size
#pragma OPENCL EXTENSION cl_qcom_reqd_sub_group_size : enable
#define kernel __attribute__((qcom_reqd_sub_group_size("{}"))) __kernel
#endif
"""
_ARRAYS = re.compile(
    r"^[ \t]+(?:const\s+)?(?!(?:return|local|global|constant)\b)(\w+)\s+(\w[^;=(){}]*\[[^;=]*)[=;]", re.MULTILINE
)
_ARRAY = re.compile(r"\w+\s*((?:\[[^\[\]]+\]\s*)+)")


def ask_wave(launch: Launch, source: str, device: DeviceInfo) -> Launch:
    """`launch` with a request for the waves that suit its registers, where the device's are known.

    A work-group of its own that does not fill full waves gets half ones.
    """
    if not device.register_bytes:
        return launch
    options = tuple((k, str(int(v) if isinstance(v, bool) else v)) for k, v in sorted(launch.defines.items()))
    nbytes = OTHERS + array_bytes(program_parts(launch.source or source, launch.prelude), options, launch.entry)
    wave = device.wave_for(nbytes)
    is_filled = launch.group is None or math.prod(launch.group) % device.full_wave == 0
    word = "full" if wave == device.full_wave and is_filled else "half"
    return replace(launch, prelude=_REQUEST.format(word) + launch.prelude)


def asked_wave(launch: Launch) -> str:
    """The waves that `launch` asks for: 'full', 'half', or '' for none."""
    found = re.search(r'qcom_reqd_sub_group_size\("(\w+)"\)', launch.prelude)
    return found[1] if found else ""


@lru_cache(maxsize=1024)
def array_bytes(parts: tuple[str, ...], options: tuple[tuple[str, str], ...], entry: str) -> int:
    """Bytes of the private arrays that kernel `entry` declares, its sums and operands, without those of functions."""
    program = Preprocessed(parts, dict(options))
    found = program.find(declaration(entry))
    if found is None:
        return 0
    piece, begin = found[1]
    end = begin + program.rest(found[1]).find("\n}")
    inside = ((m, at) for m, at in program.find_all(_ARRAYS) if at[0] == piece and begin < at[1] < end)
    return sum(_bytes_of(program, m, at) for m, at in inside)


def _bytes_of(program: Preprocessed, m: re.Match[str], at: Position) -> int:
    """Bytes of the arrays of one declaration; 0 for sizes that are no numbers."""
    sizes = [re.findall(r"\[([^\[\]]+)\]", program.expand(a[1], at)) for a in _ARRAY.finditer(m[2])]
    try:
        counts = [math.prod(evaluate(size.strip()) for size in axes) for axes in sizes]
    except (SyntaxError, NameError):
        return 0
    element = program.expand(program.expand(m[1], at), at)  # twice: VEC_T(float, 4) names a macro that it does not call
    return _type_bytes(element.strip()) * sum(counts)


def _type_bytes(name: str) -> int:
    """Bytes of an element of an OpenCL type; those of a pointer for others."""
    word = re.fullmatch(r"(\D+?)(\d*)", name)
    scalar = SCALARS.get(word[1]) if word else None
    if word is None or scalar is None:
        return {"bool": 4}.get(name, 8)
    lanes = int(word[2] or 1)
    return scalar.itemsize * (4 if lanes == 3 else lanes)
