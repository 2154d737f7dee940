"""PTX of OpenCL programs: NVIDIA's driver returns and accepts PTX text as program binary."""

from __future__ import annotations

import pyopencl as cl

from ...errors import DeviceError
from ..device.driver_errors import cl_errors


def ptx_of(program: cl._Program) -> str:
    """PTX text of a built program; '' if the driver's binary is not PTX."""
    with cl_errors("Asking for a program's PTX", ""):
        binaries = program.get_info(cl.program_info.BINARIES)
    try:
        text = bytes(binaries[0]).rstrip(b"\0").decode("ascii")
    except (IndexError, UnicodeDecodeError):
        return ""
    return text if "\n.version " in text else ""


def assemble(context: cl.Context, device: cl.Device, text: str) -> cl._Program:
    """Build a program from PTX text. Raises DeviceError if the driver refuses it."""
    try:
        program = cl._Program(context, [device], [text.encode()])
        program._build(b"", [device])
        return program
    except (cl.Error, RuntimeError) as e:
        raise DeviceError(f"the driver refuses the changed PTX: {str(e)[:500]}") from e
