"""Kernel objects from the driver, and what pyopencl makes of them."""

from __future__ import annotations

from typing import Any

import pyopencl as cl
import pytest

from opalite.cl.queue import kernel_object
from opalite.cl.queue.kernel_object import KernelObject
from opalite.cl.runtime import Runtime

SOURCE = "kernel void first(global float *a, int n) { a[0] = n; } kernel void second(global float *a) { a[0] = 2; }"


@pytest.mark.parametrize("raw", [True, False])
def test_its_own_arguments_and_names(rt: Runtime, raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not raw:  # a loader whose functions cannot be had
        monkeypatch.setattr(kernel_object, "_calls", lambda: None)
    program: Any = cl.Program(rt.context, SOURCE).build()._get_prg()
    made = [KernelObject(program, name) for name in ("first", "second", "first")]
    assert [k.num_args for k in made] == [2, 1, 2]
    assert len({k.int_ptr for k in made}) == 3
    assert [k.wrapped.function_name for k in made] == ["first", "second", "first"]
    assert all(k.wrapped.int_ptr == k.int_ptr for k in made)
    with pytest.raises(cl.Error, match="INVALID_KERNEL_NAME"):
        KernelObject(program, "third")


def test_it_lasts_as_long_as_someone_has_it(rt: Runtime) -> None:
    program: Any = cl.Program(rt.context, SOURCE).build()._get_prg()
    made = KernelObject(program, "second")
    wrapped = made.wrapped
    assert wrapped.reference_count == 2
    del made
    assert wrapped.reference_count == 1
    assert wrapped.num_args == 1
