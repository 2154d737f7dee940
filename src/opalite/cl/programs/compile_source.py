"""SourceCompiler: a program compiled in this process, and what is said where it does not compile."""

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
from .ptx_binary import assemble, ptx_of

_log = logging.getLogger(__name__)
_LOG_LINES = 40  # of the compiler's output that an error shows

PLAIN = "-cl-opt-disable"


class SourceCompiler:
    """The driver's compiler for one device."""

    def __init__(self, context: cl.Context, device: cl.Device, info: DeviceInfo, store: BinaryStore | None) -> None:
        """store: beside which sources that do not compile are saved."""
        self._context, self._device, self._info, self._store = context, device, info, store

    def compile(self, text: str, options: str, name: str, key: str, death: str = "") -> cl._Program:
        """The built program. BuildError shows options, compiler output and where the source was saved.

        death: how other processes ended in which it was compiled.
        """
        if death:
            raise BuildError(
                f"the compiler of {self._info.name} ends its process ({death}) on {name or 'a program'} with options "
                f"{options!r}, with {PLAIN} too. The source is saved as "
                f"{_keep_source(text, options, key, self._store)}. A newer driver may compile it; "
                "OPALITE_EXCLUDE_KERNELS leaves kernels out, by name"
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

        try:
            given = self.given(options)
            whole = DEFINITIONS + text if UNLINKED_FMA in self._info.quirks else text
            program = build_with_pruned_header(make, text, given, cl.Error) if is_pocl else make(whole, given)
            if self._info.family == "nvidia" and is_marked(text):
                program = self._retargeted(program, name)
        except cl.Error as e:
            assert program is not None
            log = self._compiler_output(program)
            if not log and e.code != cl.status_code.BUILD_PROGRAM_FAILURE:
                raise translate(e, f"Building {name or 'a program'}", self._info.name) from e
            shown = "\n".join(log.splitlines()[:_LOG_LINES]) or str(e)
            raise BuildError(
                f"{name or 'a program'} did not compile for {self._info.name} with options {options!r}.\n"
                f"The source is saved as {_keep_source(text, options, key, self._store)}. The compiler says:\n{shown}"
            ) from e
        if knobs.get("OPALITE_DEBUG") >= 4 and (log := self._compiler_output(program)):
            _log.warning("the compiler says of %s with %s:\n%s", name, options, log)
        return program

    def _retargeted(self, program: cl._Program, name: str) -> cl._Program:
        """A program that has parts for Hopper, with these in force. BuildError if the driver does not take it."""
        try:
            return assemble(self._context, self._device, retarget(ptx_of(program)))
        except (RetargetError, DeviceError) as e:
            raise BuildError(f"{name or 'a program'} is for NVIDIA's Hopper, not for {self._info.name}: {e}") from e

    def given(self, options: str) -> str:
        """`options` as the compiler gets them: with the device's, and no warnings, which PoCL prints, unless wanted."""
        quiet = "" if knobs.get("OPALITE_DEBUG") >= 4 else "-w"
        return " ".join(part for part in (options, self._info.build_options, quiet) if part)

    def _compiler_output(self, program: cl._Program) -> str:
        try:
            return str(program.get_build_info(self._device, cl.program_build_info.LOG) or "").strip()
        except cl.Error:
            return ""


def _keep_source(text: str, options: str, key: str, store: BinaryStore | None) -> Path:
    """Save a source that did not compile, with its options in the first line; returns where."""
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
