"""Programs as the PTX that NVIDIA's driver gives and takes for their binaries."""

from __future__ import annotations

import pyopencl as cl

from ...errors import DeviceError
from ..device.driver_errors import cl_errors


def ptx_of(program: cl._Program) -> str:
    """The text that a built program was compiled to; '' where the driver gives something else."""
    with cl_errors("Asking for a program's PTX", ""):
        binaries = program.get_info(cl.program_info.BINARIES)
    try:
        text = bytes(binaries[0]).rstrip(b"\0").decode("ascii")
    except (IndexError, UnicodeDecodeError):
        return ""
    return text if "\n.version " in text else ""


def assemble(context: cl.Context, device: cl.Device, text: str) -> cl._Program:
    """The program of a text of PTX. DeviceError if the driver does not take it."""
    try:
        program = cl._Program(context, [device], [text.encode()])
        program._build(b"", [device])
        return program
    except (cl.Error, RuntimeError) as e:
        raise DeviceError(f"the driver does not take the changed program: {str(e)[:500]}") from e
