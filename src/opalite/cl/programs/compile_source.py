"""SourceCompiler: compiles OpenCL C in this process; its BuildError has the compiler output and the saved source."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pyopencl as cl

from ... import knobs
from ...cache.binary_store import BinaryStore
from ...errors import BuildError, DeviceError
from ...ir.device.device_family import UNLINKED_FMA
from ...ir.device.device_info import DeviceInfo
from ...pocl import cpu_workarounds as pocl
from ...pocl.prune_header import build_with_pruned_header
from ...ptx.retarget_sm90a import RetargetError, is_marked, retarget
from ..device.driver_errors import translate
from .missing_builtins import DEFINITIONS
from .own_lines import own_lines
from .ptx_binary import assemble, ptx_of

_log = logging.getLogger(__name__)
_LOG_LINES = 40  # of compiler output in an error

NO_OPTIMIZATION = "-cl-opt-disable"


class SourceCompiler:
    """The driver's compiler for one device."""

    def __init__(self, context: cl.Context, device: cl.Device, info: DeviceInfo, store: BinaryStore | None) -> None:
        """store: sources that do not compile are saved in its folder."""
        self._context, self._device, self._info, self._store = context, device, info, store

    def compile(self, text: str, options: str, name: str, key: str, crash: str = "") -> cl._Program:
        """Build a program. Raises BuildError with options, compiler output and the path of the saved source.

        crash: how this program crashed its compiler in a worker process; raises BuildError at once.
        """
        if crash:
            raise BuildError(
                f"the compiler of {self._info.title} crashes ({crash}) on {name or 'a program'} with options "
                f"{options!r}, with {NO_OPTIMIZATION} too. The source is saved as "
                f"{_save_source(text, options, key, self._store)}. A newer driver may compile it; "
                "OPALITE_EXCLUDE_KERNELS excludes kernels by name"
            )
        program: cl._Program | None = None
        is_pocl = self._info.family == "pocl"
        if is_pocl:
            pocl.prepare_build()

        def make(text: str, options: str) -> cl._Program:
            nonlocal program
            program = cl._Program(self._context, text)
            program._build(options.encode(), [self._device])
            return program

        whole = DEFINITIONS + text if UNLINKED_FMA in self._info.quirks else text
        try:
            full_options = self.full_options(options)
            program = (
                build_with_pruned_header(make, text, full_options, cl.Error) if is_pocl else make(whole, full_options)
            )
            if self._info.family == "nvidia" and is_marked(text):
                program = self._retargeted(program, name)
        except cl.Error as e:
            assert program is not None
            log = own_lines(self._compiler_output(program), whole)
            if not log and e.code != cl.status_code.BUILD_PROGRAM_FAILURE:
                raise translate(e, f"Building {name or 'a program'}", self._info.title) from e
            shown = "\n".join(log.splitlines()[:_LOG_LINES]) or str(e)
            raise BuildError(
                f"{name or 'a program'} did not compile for {self._info.title} with options {options!r}.\n"
                f"The source is saved as {_save_source(text, options, key, self._store)}. The compiler says:\n{shown}"
            ) from e
        if knobs.get("OPALITE_DEBUG") >= 4 and (log := self._compiler_output(program)):
            _log.warning("the compiler says of %s with %s:\n%s", name, options, log)
        return program

    def _retargeted(self, program: cl._Program, name: str) -> cl._Program:
        """Activate a program's sm_90a instructions (ptx/retarget_sm90a.py). Raises BuildError if the driver refuses."""
        try:
            return assemble(self._context, self._device, retarget(ptx_of(program)))
        except (RetargetError, DeviceError) as e:
            raise BuildError(f"{name or 'a program'} is for NVIDIA's Hopper, not for {self._info.title}: {e}") from e

    def full_options(self, options: str) -> str:
        """`options` and the device's options. Below OPALITE_DEBUG=4 warnings, which PoCL prints, are disabled."""
        quiet = "" if knobs.get("OPALITE_DEBUG") >= 4 else "-w"
        return " ".join(part for part in (options, self._info.build_options, quiet) if part)

    def _compiler_output(self, program: cl._Program) -> str:
        try:
            return str(program.get_build_info(self._device, cl.program_build_info.LOG) or "").strip()
        except cl.Error:
            return ""


def _save_source(text: str, options: str, key: str, store: BinaryStore | None) -> Path:
    """Save a source that did not compile, with its options in the first line; returns its path."""
    folders = [Path(tempfile.gettempdir())]
    if store is not None:
        folders.insert(0, store.folder / "failed")
    for folder in folders:
        path = folder / f"{'opalite-' if store is None else ''}{key[:16]}.cl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(f"// options: {options}\n{text}", encoding="utf-8")
            return path
        except OSError:
            continue
    return Path("(nowhere: no folder can be written)")
