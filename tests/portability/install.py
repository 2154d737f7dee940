"""Fetches an implementation into the suite's folder and makes a Python that sees it alone. Nothing is installed."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

from .fetch import debian_packages, run_command
from .implementations import SUITES, DebianSource, Implementation, RootSource, WheelSource

_PROBE = "import pyopencl as cl; print(*(p.name for p in cl.get_platforms() if p.get_devices()), sep='|')"


class Unavailable(Exception):  # noqa: N818 - a reason to skip, not an error
    """Why an implementation cannot be had here."""


def install(implementation: Implementation, folder: Path) -> Path:
    """The Python that sees `implementation` alone, made below `folder` if it is not there yet.

    Unavailable says what is missing.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Unavailable("fetched for Linux on x86-64 only")
    if isinstance(implementation.source, RootSource):
        raise Unavailable("a whole machine, which runs the short form only")
    python = folder / implementation.name / "bin" / "python"
    if not python.exists():
        try:
            _make(implementation, folder, python)
        except (subprocess.CalledProcessError, OSError) as e:
            shutil.rmtree(python.parents[1], ignore_errors=True)  # whose Python would see nothing
            said = (getattr(e, "stderr", "") or str(e)).strip().splitlines()
            raise Unavailable(f"cannot be fetched: {said[-1] if said else e}") from None
    if isinstance(implementation.source, DebianSource):
        root = folder / f"root-{implementation.source.suite}"
        _move_paths(implementation.source, root)
        _patch(implementation.source, root)
    found = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, env=_clean_environment())
    if implementation.platform not in found.stdout:
        said = (found.stderr.strip() or found.stdout.strip() or f"exit status {found.returncode}").splitlines()
        raise Unavailable(f"does not start: {said[-1]}")
    return python


def _clean_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("OCL_ICD", "OPENCL_", "LD_LIBRARY"))}


def _make(implementation: Implementation, folder: Path, python: Path) -> None:
    source = implementation.source
    assert not isinstance(source, RootSource)
    home = python.parents[1]
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=isinstance(source, WheelSource), symlinks=True)
    if isinstance(source, WheelSource):
        run_command(home / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *source.packages)
        libraries = [*home.glob(source.library)]
        if not libraries:
            raise OSError(f"no {source.library} in {', '.join(source.packages)}")
        library, loader = libraries[0], ""
        search = f'export LD_LIBRARY_PATH="{home / "lib"}"\n'
    else:
        root = _debian_root(source.suite, folder)
        for name, target in source.links:
            if not (root / name).is_symlink():
                (root / name).symlink_to(target)
        library = root / source.library
        search, loader = _loader(source, root)
    _lend_packages(home)
    vendors = home / "vendors"
    vendors.mkdir()
    (vendors / "driver.icd").write_text(f"{library}\n")
    settings = "".join(f'export {k}="${{{k}-{v}}}"\n' for k, v in implementation.environment.items())
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    start = f'exec {loader} "{base}" "$@"\n' if loader else f'exec -a "$0" "{base}" "$@"\n'
    python.unlink(missing_ok=True)
    # A script in the place of the environment's Python, so that processes started by sys.executable see the same.
    python.write_text(f'#!/bin/bash\nexport OCL_ICD_VENDORS="{vendors}"\n{settings}{search}{start}')
    python.chmod(0o755)


def _lend_packages(home: Path) -> None:
    """Let the environment at `home` import this one's packages, but with a pyopencl that brings no driver."""
    packages = next((home / "lib").glob("python3*/site-packages"))
    (packages / "lent.pth").write_text("".join(f"{p}\n" for p in _package_folders()))
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or spec.origin is None:
        raise OSError("pyopencl is not installed")
    own = Path(spec.origin).parent
    ignored = shutil.ignore_patterns("libpocl*", "*.icd", "__pycache__")
    for name in ("pyopencl", "pyopencl.libs"):  # the second, where there is one, holds the OpenCL loader
        if (own.parent / name).is_dir():
            shutil.copytree(own.parent / name, packages / name, ignore=ignored, dirs_exist_ok=True)
    for icd in packages.glob("pyopencl*/**/*.icd"):  # drivers are named by OCL_ICD_VENDORS
        icd.unlink()


def _package_folders() -> list[str]:
    """Where this Python finds packages, folders of PYTHONPATH among them, but for this project's own."""
    named = [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    root = Path(__file__).resolve().parents[2]
    usual = [p for p in sys.path if p.endswith("-packages")] or site.getsitepackages()
    return [*dict.fromkeys([*(p for p in named if not Path(p).is_relative_to(root)), *usual])]


def _debian_root(suite: str, folder: Path) -> Path:
    """A folder with the suite's packages and all they depend on, libc included, unpacked."""
    root = folder / f"root-{suite}"
    stamp = root / ".complete"
    if stamp.exists():
        return root
    packages = debian_packages(suite, "amd64", SUITES[suite].packages, folder)
    shutil.rmtree(root, ignore_errors=True)
    for package in packages:
        run_command("dpkg", "-x", package, root)
    stamp.touch()
    return root


def _loader(source: DebianSource, root: Path) -> tuple[str, str]:
    """A line of shell and what starts Python, for the root's libraries to be found.

    They may need a newer libc than the machine has, so that the root's own dynamic loader starts Python. Where the root
    was brought from elsewhere without its libc, the machine's is used.
    """
    libraries = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
    search = ":".join(str(root / f) for f in (*source.folders, *libraries))
    found = [p for p in (root / folder / "ld-linux-x86-64.so.2" for folder in libraries) if p.exists()]
    if not found:
        return f'export LD_LIBRARY_PATH="{search}"\n', ""
    return "", f'"{found[0]}" --argv0 "$0" --library-path "{search}:{Path(sys.base_prefix) / "lib"}"'


def _move_paths(source: DebianSource, root: Path) -> None:
    """Have libraries of the root look for their files there, by links short enough to take the paths' places."""
    for number, (library, held, target) in enumerate(source.moved):
        short = Path("/tmp") / f".port-{os.getuid()}-{source.suite[0]}{number}"
        name = str(short).encode()
        if len(name) > len(held):
            raise OSError(f"{short} is longer than {held}")
        if short.is_symlink():
            short.unlink()
        short.symlink_to(root / target)
        path = (root / library).resolve()
        # Slashes in front keep the length, which compiled code may know, and lead to files as well as to folders.
        text = path.read_bytes().replace(held.encode(), name.rjust(len(held), b"/"))
        if text != path.read_bytes():
            path.write_bytes(text)


def _patch(source: DebianSource, root: Path) -> None:
    """Replace instructions of libraries that are known to be wrong; another build of a library stays as it is."""
    for library, before, after in source.patched:
        path = (root / library).resolve()
        text = path.read_bytes()
        if text.count(bytes.fromhex(before)) == 1:
            # A new file: processes that run have the old one mapped.
            mended = path.with_suffix(".mended")
            mended.write_bytes(text.replace(bytes.fromhex(before), bytes.fromhex(after)))
            mended.replace(path)
