"""Checks of `opalite doctor`: each returns findings, and each bad finding has its exact fix.

Checks of files take the folders as arguments, for tests. Checks of /etc, /dev and /sys apply to Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ... import knobs
from ...cache.cache_folder import cache_entries
from ...cache.temporary_folders import write_fault
from ...errors import BuildError, DeviceError, OpaliteError
from ...pocl import cpu_workarounds as pocl
from ...pocl import process_limits, provide_linker
from .install_advice import device_advice, loader_advice

if TYPE_CHECKING:
    from ..runtime import Runtime

GOOD, NOTE, BAD = "good", "note", "bad"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report. level: good, note or bad. fix: a command or an instruction.

    device: id of a device that computes.
    """

    level: str
    what: str
    fix: str = ""
    device: str = ""
    is_fatal: bool = False  # further checks would crash this process


@dataclass(frozen=True)
class _Driver:
    """A driver library and its registration."""

    vendor: str
    library: str
    icd: str
    folders: tuple[str, ...] = ()


_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64")
_DRIVERS = (
    _Driver("NVIDIA", "libnvidia-opencl.so.1", "nvidia.icd", ("/usr/local/nvidia/lib64",)),
    _Driver("AMD", "libamdocl64.so", "amdocl64.icd", ("/opt/rocm/lib", "/opt/amdgpu-pro/lib/x86_64-linux-gnu")),
    _Driver("Intel", "libigdrcl.so", "intel.icd", tuple(f"{f}/intel-opencl" for f in _LIBRARY_FOLDERS)),
    _Driver("Arm", "libmali.so", "mali.icd", ("/usr/lib/mali",)),
)
_PCI_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel", "0x13b5": "Arm", "0x5143": "Qualcomm"}
_INSTALL = {
    "NVIDIA": "install NVIDIA's driver (Debian, Ubuntu: `sudo apt install nvidia-opencl-icd`)",
    "AMD": "install ROCm's OpenCL (`sudo apt install rocm-opencl-runtime`), or Mesa's "
    "(`sudo apt install mesa-opencl-icd` and `export RUSTICL_ENABLE=radeonsi`)",
    "Intel": "`sudo apt install intel-opencl-icd`",
    "Arm": "install the board vendor's libmali, or `sudo apt install mesa-opencl-icd` and "
    "`export RUSTICL_ENABLE=panfrost`",
    "Qualcomm": "`sudo apt install mesa-opencl-icd` and `export RUSTICL_ENABLE=freedreno`",
}


def check_loader(maps: Path = Path("/proc/self/maps")) -> list[Finding]:
    """Check pyopencl and the OpenCL loader."""
    try:
        import pyopencl
    except ImportError as e:
        return [Finding(BAD, loader_advice(e) or f"pyopencl cannot be imported: {e}")]
    findings = [Finding(GOOD, f"pyopencl {pyopencl.VERSION_TEXT}")]
    try:
        loaded = {line.split()[-1] for line in maps.read_text().splitlines() if "libOpenCL" in line}
    except OSError:
        return findings
    return [*findings, *(Finding(GOOD, f"OpenCL loader {path}") for path in sorted(loaded))]


def icd_folders() -> list[Path]:
    """Folders with .icd files: those of the environment, else the system's and pyopencl's."""
    chosen = [Path(text) for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH") if (text := knobs.foreign(name))]
    if chosen:
        return chosen
    home = knobs.foreign("PYOPENCL_HOME")
    return [Path("/etc/OpenCL/vendors"), *([Path(home) / ".libs"] if home else [])]


def load_in_child(library: str) -> None:
    """Load `library` in a child process. Raises OSError if it fails to load, ProcessLookupError if it crashes."""
    code = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as e: sys.exit(str(e))"
    command = [sys.executable, "-c", code, library]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, errors="replace", check=False)
    except subprocess.TimeoutExpired:
        raise ProcessLookupError("it takes more than a minute") from None
    if done.returncode < 0:
        raise ProcessLookupError(f"it ends the process by signal {-done.returncode}")
    if done.returncode:
        raise OSError(done.stderr.strip().rpartition("\n")[2])


def check_icds(folders: Sequence[Path], load: Callable[[str], object] = load_in_child) -> list[Finding]:
    """Check that there are .icd files and that their libraries load."""
    findings: list[Finding] = []
    for file in sorted(f for folder in folders if folder.is_dir() for f in folder.glob("*.icd")):
        try:
            library = file.read_text().strip()
        except OSError as e:
            findings.append(Finding(BAD, f"{file} cannot be read: {e.strerror}", f"sudo chmod a+r {file}"))
            continue
        relative = file.parent / library
        try:
            load(str(relative) if relative.is_file() else library)
        except ProcessLookupError as e:
            what = f"{file} names {library}, which crashes every program that uses OpenCL: {e}"
            findings.append(Finding(BAD, what, f"install that driver again, or `sudo rm {file}`", is_fatal=True))
        except OSError as e:
            fix = f"install the driver again, or `sudo rm {file}` if it is gone"
            findings.append(Finding(BAD, f"{file} names {library}, which does not load: {e}", fix))
        else:
            findings.append(Finding(GOOD, f"{file} names {library}, which loads"))
    if not findings and sys.platform == "linux":
        looked = ", ".join(map(str, folders))
        findings.append(Finding(BAD, f"no .icd file in {looked}: no driver is registered", device_advice()))
    return findings


def check_unregistered(
    folders: Sequence[Path], drivers: Sequence[_Driver] = _DRIVERS, library_folders: Sequence[str] = _LIBRARY_FOLDERS
) -> list[Finding]:
    """Check for driver libraries without an .icd file, which is common in containers."""
    named = " ".join(f.read_text() for folder in folders if folder.is_dir() for f in folder.glob("*.icd"))
    findings = []
    for driver in drivers:
        paths = [Path(f) / driver.library for f in (*library_folders, *driver.folders)]
        there = next((p for p in paths if p.exists()), None)
        if there is not None and driver.library.split(".so")[0] not in named:
            line = driver.library if str(there.parent) in library_folders else str(there)
            target = folders[0] / driver.icd if folders else Path("/etc/OpenCL/vendors") / driver.icd
            what = f"{driver.vendor}'s driver {there} is installed, but no .icd file names it"
            findings.append(Finding(BAD, what, f"sudo mkdir -p {target.parent} && echo {line} | sudo tee {target}"))
    return findings


def check_gpus(sys_folder: Path = Path("/sys/class/drm"), platforms: Iterable[str] = ()) -> list[Finding]:
    """Check for GPUs without an OpenCL platform."""
    vendors = set()
    for file in sys_folder.glob("card*/device/vendor"):
        try:
            vendors.add(_PCI_VENDORS.get(file.read_text().strip(), ""))
        except OSError:
            continue
    shown = " ".join(platforms).lower()
    findings = []
    for vendor in sorted(vendors - {""}):
        if vendor.lower() in shown or "rusticl" in shown:
            findings.append(Finding(GOOD, f"{vendor} GPU with an OpenCL platform"))
        else:
            findings.append(Finding(NOTE, f"a GPU of {vendor} has no OpenCL platform", _INSTALL[vendor]))
    return findings


def check_permissions(folder: Path = Path("/dev/dri")) -> list[Finding]:
    """Check that this user may open the GPU's render nodes; otherwise drivers report neither device nor error."""
    findings = []
    for node in sorted(folder.glob("renderD*")):
        if os.access(node, os.R_OK | os.W_OK):
            findings.append(Finding(GOOD, f"{node} can be opened"))
        else:
            group = _group_of(node)
            fix = f"sudo usermod -aG {group} $USER, then log in again"
            findings.append(Finding(BAD, f"{node} cannot be opened by this user (group {group})", fix))
    return findings


def _group_of(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError, NotImplementedError):
        return "render"


def check_pocl(platforms: Iterable[str] = ()) -> list[Finding]:
    """Check that PoCL is installed: its wheel, or an installation among `platforms`."""
    version = _wheel()
    if version is None:
        if any(pocl.PLATFORM in p for p in platforms):
            return [Finding(GOOD, "PoCL of the system")]
        fix = "pip install pocl-binary-distribution (Linux x86-64), or PoCL from your system or conda-forge"
        return [Finding(NOTE, "PoCL, which runs kernels on the CPU, is not installed", fix)]
    return [Finding(GOOD, f"PoCL wheel {version}")]


def check_open_files() -> list[Finding]:
    """Check that PoCL may open enough files for a build; no finding without a limit."""
    found, needed = process_limits.free_files(), process_limits.BUILD_FILES
    if found is None:
        return []
    what = f"this process may open {found[0]} more files of {found[1]}"
    if found[0] >= needed:
        return [Finding(GOOD, what)]
    what += f", and a build by PoCL, which runs kernels on the CPU, takes {needed}"
    return [Finding(BAD, what, f"`ulimit -n {found[1] - found[0] + 64}` or more, before the program starts")]


def check_linker() -> list[Finding]:
    """Check the linker of PoCL's wheel."""
    if not provide_linker.is_needed() or _wheel() is None:
        return []
    try:
        provide_linker.prepare_linker()
    except OpaliteError as e:
        return [Finding(BAD, str(e))]
    found = provide_linker.system_linker() if knobs.get("OPALITE_LINKER") != "own" else None
    what = f"PoCL links kernels with {found}" if found else "PoCL links kernels with Opalite's own linker"
    return [Finding(GOOD, what)]


def _wheel() -> str | None:
    """Version of PoCL's wheel; None if it is not installed."""
    try:
        return metadata.version("pocl-binary-distribution")
    except metadata.PackageNotFoundError:
        return None


def check_cache(folder: Path, enabled: bool, cap_mb: int) -> list[Finding]:
    """Check the cache folder: writability and size. Sessions run without one, so problems are notes."""
    if not enabled:
        return [Finding(NOTE, "OPALITE_CACHE=0: each process builds its programs again", "unset OPALITE_CACHE")]
    if (fault := write_fault(folder)) is not None:
        fix = "export OPALITE_CACHE_DIR=/a/folder/that/you/own"
        is_filled = folder.is_absolute() and any(cache_entries(folder))
        what = "what it holds is used, and nothing is added" if is_filled else "each process builds its programs again"
        return [Finding(NOTE, f"the cache folder {folder} cannot be written ({fault}): {what}", fix)]
    found = list(cache_entries(folder))
    size = sum(u.nbytes for u in found) / 2**20
    binaries = sum(u.kind == "program" for u in found)
    return [Finding(GOOD, f"cache folder {folder}: {binaries} program binaries, {size:.1f} of {cap_mb} MiB")]


def check_devices() -> tuple[list[Finding], list[str]]:
    """Check that every device computes a known sum; returns findings and platform names. Imports pyopencl."""
    from ..runtime import Runtime
    from .enumerate_devices import list_all

    listing = list_all()
    findings = [Finding(BAD, fault) for fault in listing.faults]
    findings += [
        Finding(BAD, f"platform {b.index} '{b.name}' fails with {b.reason}", "install its driver again or remove it")
        for b in listing.broken
    ]
    for found in listing.devices:
        info = found.info
        device = f"{info.title} ({info.id})"
        if not found.usable:
            what = f"{device}: the driver says that it is not available"
            findings.append(Finding(BAD, what, "install its driver again"))
            continue
        if pocl.has_wrong_cpu_name(info.platform, info.version):
            name = pocl.host_cpu_name()
            was = pocl.processor_name(info.version)
            what = f"PoCL takes this processor for '{was}' and would build slow code or none; Opalite calls it {name}"
            fix = "nothing to do; a PoCL with a newer LLVM (conda-forge) needs no repair"
            findings.append(Finding(NOTE, what, fix))
        try:
            _compute(Runtime(found))
        except OpaliteError as e:
            # Errors other than BuildError contain advice.
            fix = _fix_of(info.platform) if isinstance(e, BuildError) else ""
            findings.append(Finding(BAD, f"{device} does not compute: {e}", fix))
        else:
            findings.append(Finding(GOOD, f"{device} compiles and computes", device=info.id))
    if not listing.devices:
        findings.append(Finding(BAD, "no OpenCL device was found", device_advice()))
    return findings, listing.platforms


def _fix_of(platform: str) -> str:
    if platform == pocl.PLATFORM:
        return "use a newer PoCL: `conda install -c conda-forge pocl`, or your system's package `pocl-opencl-icd`"
    return "update the driver, or choose another device with OPALITE_DEVICE"


def _compute(runtime: Runtime) -> None:
    import numpy as np

    text = "kernel void probe(global int *x) { x[get_global_id(0)] += get_global_id(0); }"
    program = runtime.build(text, "", "probe")
    numbers = np.full(64, 3, np.int32)
    buffer = runtime.allocate(numbers.nbytes)
    runtime.write(buffer, numbers)
    runtime.prepare(program, "probe", [buffer], (64,)).enqueue(runtime.queue)
    runtime.read(buffer, numbers)
    if not np.array_equal(numbers, np.arange(64) + 3):
        raise DeviceError("a kernel that adds its index gave wrong numbers")
