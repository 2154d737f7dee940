"""The OpenCL implementations as data: where each comes from, what its processes need, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DebianSource:
    """Packages of a suite of Debian or Ubuntu with all they depend on, unpacked into a folder (a root) shared by suite.

    `library` is the driver inside the root, `folders` are searched for libraries before the usual ones. `moved` are
    absolute paths that libraries hold, to be replaced by links: (library, path it holds, file in the root). `links` are
    made inside the root: (name, target). `patched` are instructions of libraries, in hexadecimal: (library, bytes that
    it holds once, bytes to be there instead).
    """

    suite: str
    library: str
    folders: tuple[str, ...] = ()
    moved: tuple[tuple[str, str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    patched: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class WheelSource:
    """Packages of PyPI in a virtual environment; `library` is a pattern inside that environment."""

    packages: tuple[str, ...]
    library: str


@dataclass(frozen=True)
class RootSource:
    """A whole machine of a suite of Debian (roots.py): its packages, without a compiler or linker where they are not
    named, and Python `python` with wheels of PyPI. `emulator` is a package with qemu.
    """

    suite: str
    architecture: str
    packages: tuple[str, ...]
    python: str
    emulator: str | None = None


@dataclass(frozen=True)
class Implementation:
    """One column of the matrix. `platform` is part of the OpenCL platform's name, to see that the right one runs."""

    name: str
    title: str
    source: DebianSource | WheelSource | RootSource
    platform: str
    environment: dict[str, str] = field(default_factory=dict)
    test_s: float = 300.0  # the longest that one test may take
    models: bool = True  # False: a simulator, for which models are too large


@dataclass(frozen=True)
class Suite:
    """What is fetched of a suite, and where. `mirror` can be replaced by the setting that `setting` names."""

    packages: tuple[str, ...]
    mirror: str = "http://deb.debian.org/debian"
    setting: str = "PORTABILITY_DEBIAN"
    components: str = "main"
    keyring: str = "/usr/share/keyrings/debian-archive-keyring.gpg"


SUITES = {
    "bookworm": Suite(("pocl-opencl-icd", "mesa-opencl-icd", "oclgrind")),
    "trixie": Suite(("pocl-opencl-icd", "mesa-opencl-icd")),
    "sid": Suite(("pocl-opencl-icd", "mesa-opencl-icd")),
    "noble": Suite(
        ("pocl-opencl-icd",),
        "http://archive.ubuntu.com/ubuntu",
        "PORTABILITY_UBUNTU",
        "main universe",
        "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
    ),
}

_MACHINE = ("bash", "coreutils", "dash", "libc-bin", "python3", "python3-pip", "python3-venv", "ca-certificates")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_RUSTICL = f"{_LIBRARIES}/libRusticlOpenCL.so.1"
_CLC = tuple(
    (_RUSTICL, f"/usr/lib/clc/spirv{bits}-mesa3d-.spv", f"usr/lib/clc/spirv{bits}-mesa3d-.spv") for bits in ("", "64")
)

_SIMULATOR = f"{_LIBRARIES}/liboclgrind-21.10.so"
_OCLGRIND = DebianSource(
    "bookworm",
    "usr/lib/oclgrind/liboclgrind-rt-icd.so",
    # Of its search for uninitialised values: a shuffle's index is compared with 11 instead of -1, which is "undefined";
    # of an image more is looked at than the pointer that is known of it.
    patched=(
        (_SIMULATOR, "8b0c98488b4424184801c583f90b7586", "8b0c98488b4424184801c583f9ff7586"),
        (_SIMULATOR, "e82fcaf8ff84c0750b4883c40831c05b5dc3", "e82fcaf8ff84c090904883c40890905b5dc3"),
    ),
)

IMPLEMENTATIONS = (
    Implementation(
        "pocl-3.0",
        "PoCL 3.0 (PyPI)",
        WheelSource(("pocl-binary-distribution==3.0",), "lib/python3*/site-packages/pyopencl/.libs/libpocl-*.so"),
        "Portable Computing Language",
    ),
    Implementation(
        "pocl-3.1",
        "PoCL 3.1 (Debian 12)",
        DebianSource("bookworm", f"{_LIBRARIES}/libpocl.so.2"),
        "Portable Computing Language",
    ),
    Implementation(
        "pocl-5.0",
        "PoCL 5.0 (Ubuntu 24.04)",
        DebianSource("noble", f"{_LIBRARIES}/libpocl.so.2"),
        "Portable Computing Language",
    ),
    Implementation(
        "pocl-6.0",
        "PoCL 6.0 (Debian 13)",
        DebianSource("trixie", f"{_LIBRARIES}/libpocl.so.2"),
        "Portable Computing Language",
    ),
    Implementation(
        "pocl-7.1",
        "PoCL 7.1 (Debian unstable)",
        DebianSource("sid", f"{_LIBRARIES}/libpocl.so.2"),
        "Portable Computing Language",
    ),
    Implementation(
        "intel",
        "Intel CPU runtime (PyPI)",
        WheelSource(("intel-opencl-rt", "intel-cmplr-lib-rt"), "lib/libintelocl.so"),
        "Intel(R) OpenCL",
    ),
    Implementation(
        "rusticl-22.3",
        "Mesa 22.3 rusticl (Debian 12)",
        DebianSource(
            "bookworm",
            _RUSTICL,
            moved=(
                *_CLC,
                (_RUSTICL, "/usr/lib/llvm-15/lib/clang/15.0.6/include", "usr/lib/llvm-15/lib/clang/15.0.6/include"),
            ),
        ),
        "rusticl",
        {"RUSTICL_ENABLE": "llvmpipe"},
        test_s=900.0,
    ),
    Implementation(
        "rusticl-25.0",
        "Mesa 25.0 rusticl (Debian 13)",
        DebianSource("trixie", _RUSTICL, moved=_CLC, links=(("usr/lib/lib", "llvm-19/lib"),)),
        "rusticl",
        {"RUSTICL_ENABLE": "llvmpipe"},
        test_s=900.0,
    ),
    Implementation(
        "rusticl-26",
        "Mesa 26 rusticl (Debian unstable)",
        DebianSource("sid", _RUSTICL, moved=_CLC, links=(("usr/lib/lib", "llvm-22/lib"),)),
        "rusticl",
        {"RUSTICL_ENABLE": "llvmpipe"},
        test_s=900.0,
    ),
    Implementation(
        "debian-13",
        "A Debian 13 machine without ld (PoCL of PyPI)",
        RootSource("trixie", "amd64", (*_MACHINE, "passwd", "libstdc++6", "libgcc-s1"), "3.13"),
        "Portable Computing Language",
    ),
    Implementation(
        "debian-12-arm64",
        "A Debian 12 arm64 machine under qemu (its PoCL 3.1)",
        RootSource(
            "bookworm",
            "arm64",
            (*_MACHINE, "pocl-opencl-icd", "ocl-icd-libopencl1", "binutils", "gcc", "libc6-dev"),
            "3.11",
            emulator="qemu-user-static",
        ),
        "Portable Computing Language",
    ),
    Implementation(
        "oclgrind",
        "Oclgrind 21.10: accesses, races",
        _OCLGRIND,
        "Oclgrind",
        {
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_MAX_ERRORS": "50",
            "OCLGRIND_NUM_THREADS": "1",
            "OCLGRIND_LOCAL_MEM_SIZE": "65536",  # kernels for matrix units want 48 KB, their stand-ins 4
        },
        test_s=900.0,
        models=False,
    ),
    Implementation(
        "oclgrind-uninitialised",
        "Oclgrind 21.10: uninitialised values",
        _OCLGRIND,
        "Oclgrind",
        {
            "OCLGRIND_UNINITIALIZED": "1",
            "OCLGRIND_MAX_ERRORS": "50",
            "OCLGRIND_NUM_THREADS": "1",
            "OCLGRIND_LOCAL_MEM_SIZE": "65536",  # kernels for matrix units want 48 KB, their stand-ins 4
        },
        test_s=900.0,
        models=False,
    ),
)

NOT_OF_DRIVERS = (
    "test_cache_kills.py",
    "test_damaged_cache.py",
    "test_fork.py",
    "test_machines.py",
    "test_plan_store.py",
    "test_pocl_code.py",
    "test_pocl_header.py",
)
"""Files of tests/device that test the cache folder, processes, machines, or what is PoCL's wheel's own."""

NOT_OF_SIMULATORS = ("test_runs_beside.py", "test_threads.py")
"""Files that test what threads do at one time: under a simulator they take turns (`turns.py`), and for minutes."""
