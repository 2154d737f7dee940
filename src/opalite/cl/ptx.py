"""Programs as the PTX that NVIDIA's driver gives and takes for their binaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl

from ..errors import DeviceError
from .failures import cl_errors

if TYPE_CHECKING:
    from .runtime import Runtime


def ptx_of(program: cl._Program) -> str:
    """The text that a built program was compiled to; '' where the driver gives something else."""
    with cl_errors("Asking for a program's PTX", ""):
        binaries = program.get_info(cl.program_info.BINARIES)
    try:
        text = bytes(binaries[0]).rstrip(b"\0").decode("ascii")
    except (IndexError, UnicodeDecodeError):
        return ""
    return text if "\n.version " in text else ""


def assemble(rt: Runtime, text: str) -> cl._Program:
    """The program of a text of PTX. DeviceError if the driver does not take it."""
    try:
        return cl.Program(rt.context, [rt.device], [text.encode()]).build()
    except (cl.Error, RuntimeError) as e:
        raise DeviceError(f"the driver does not take the linked program: {str(e)[:500]}") from e
