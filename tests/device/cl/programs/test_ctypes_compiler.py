"""What a process that only builds knows of OpenCL: the device that pyopencl knows, and binaries that it takes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from itertools import starmap

import pyopencl as cl
import pytest

from opalite.cl.programs.ctypes_compiler import CallError, CtypesDevice
from opalite.cl.runtime import Runtime

TWICE = "kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }"


@pytest.fixture
def bare(rt: Runtime) -> CtypesDevice:
    numbers = [(i, k) for i, p in enumerate(cl.get_platforms()) for k in range(len(p.get_devices()))]
    return next(bare for bare in starmap(CtypesDevice, numbers) if bare.pointer == rt.context.devices[0].int_ptr)


def test_it_is_the_same_device(rt: Runtime, bare: CtypesDevice) -> None:
    device = rt.context.devices[0]
    assert (bare.pointer, bare.version) == (device.int_ptr, device.version)
    assert bare.platform == device.platform.name


def test_there_is_no_other() -> None:
    with pytest.raises(IndexError):
        CtypesDevice(99, 0)
    with pytest.raises(IndexError):
        CtypesDevice(0, 99)


def test_what_it_builds_is_taken(rt: Runtime, bare: CtypesDevice) -> None:
    binary = bare.build(TWICE, "")
    program = cl.Program(rt.context, [rt.context.devices[0]], [binary]).build()
    assert program.get_info(cl.program_info.KERNEL_NAMES) == "twice"


def test_what_does_not_compile_is_told(bare: CtypesDevice) -> None:
    with pytest.raises(CallError, match="status -11"):
        bare.build("kernel void broken(", "")
    with ExitStack() as held, pytest.raises(CallError, match="status"):
        bare.compile(held, "kernel void broken(", "")


def test_parts_are_linked(rt: Runtime, bare: CtypesDevice) -> None:
    with ExitStack() as held:
        parts = [
            bare.compile(held, "float half_of(float x) { return x / 2; }", ""),
            bare.compile(held, "float half_of(float); kernel void f(global float *x) { *x = half_of(*x); }", ""),
        ]
        binary = bare.link(held, parts)
    program = cl.Program(rt.context, [rt.context.devices[0]], [binary]).build()
    assert program.get_info(cl.program_info.KERNEL_NAMES) == "f"


def test_a_process_that_builds_reads_neither_pyopencl_nor_numpy() -> None:
    code = "import sys, opalite.cl.programs.build_worker; print({'numpy', 'pyopencl'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
