"""Installation advice for OpenCL devices, by operating system. Needs no OpenCL."""

from __future__ import annotations

import platform
import sys

from ... import knobs


def system() -> str:
    """Kind of system: linux-x86_64, linux, wsl, android, macos, windows or other."""
    if hasattr(sys, "getandroidapilevel") or knobs.foreign("ANDROID_ROOT"):
        return "android"
    if sys.platform == "linux":
        if "microsoft" in platform.release().lower():
            return "wsl"
        return "linux-x86_64" if platform.machine() == "x86_64" else "linux"
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "other")


_DEVICE = {
    "linux-x86_64": "install your GPU's OpenCL driver, or `pip install pocl-binary-distribution` to run on the CPU",
    "linux": "install your GPU's OpenCL driver, or PoCL to run on the CPU (`apt install pocl-opencl-icd`, `dnf install "
    "pocl`, or `conda install -c conda-forge pocl`)",
    "wsl": "`pip install pocl-binary-distribution` to run on the CPU; a GPU is reached through Windows' driver by "
    "Intel's or Mesa's OpenCL (`apt install intel-opencl-icd` or `mesa-opencl-icd`)",
    "android": "in Termux `pkg install ocl-icd` and let LD_LIBRARY_PATH name the folder of the phone's libOpenCL.so "
    "(/vendor/lib64); or `pkg install pocl` to run on the CPU",
    "macos": "`conda install -c conda-forge ocl_icd_wrapper_apple` for Apple's driver, or `conda install "
    "-c conda-forge pocl` to run on the CPU",
    "windows": "install your GPU's driver, which brings OpenCL; for the CPU, Intel's runtime for OpenCL",
    "other": "install your GPU's OpenCL driver, or PoCL to run on the CPU (`conda install -c conda-forge pocl`)",
}


def device_advice(where: str | None = None) -> str:
    """Advice on getting an OpenCL device on this system, or on `where` (`system`)."""
    return _DEVICE[where or system()]


def loader_advice(error: ImportError) -> str | None:
    """Advice if `error` means that pyopencl or the OpenCL loader is missing; else None."""
    text = str(error)
    if "OpenCL" not in text and "pyopencl" not in text and (error.name or "").split(".")[0] != "pyopencl":
        return None
    return (
        f"pyopencl cannot be loaded ({text}). Its wheels contain the loader, libOpenCL: "
        "`pip install --force-reinstall pyopencl`. A pyopencl of your system or of conda also needs the "
        "loader's package (`apt install ocl-icd-libopencl1`, `dnf install ocl-icd`, `conda install ocl-icd`)"
    )
