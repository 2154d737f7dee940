"""Runtime on every device: launches, recordings, memory, transfers, and that a steady state only enqueues."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import opalite.cl.runtime as runtime_module
from opalite.cl.device.enumerate_devices import devices, find_device
from opalite.cl.memory.buffer_pool import BufferPool
from opalite.cl.queue import kernel_object, launch_sequence
from opalite.cl.queue.launch_sequence import LaunchSequence
from opalite.cl.queue.prepared_launch import LocalBytes
from opalite.cl.runtime import Runtime, find_runtime
from opalite.cl.runtime_counters import Counters
from opalite.errors import BuildError, DeviceError, DeviceMemoryError, InputError, NoDeviceError
from opalite.ir.device.device_family import SOFTWARE
from opalite.ir.dtype import DType

SOURCE = """
kernel void add(global float *x, float v, int n) {
    const int i = get_global_id(0);
    if (i < n) x[i] += v;
}
kernel void times2(global float *x, int n) {
    const int i = get_global_id(0);
    if (i < n) x[i] *= 2;
}
kernel void sum_group(global const float *x, global float *y, local float *part) {
    const int l = get_local_id(0);
    part[l] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l == 0) {
        float s = 0;
        for (int i = 0; i < get_local_size(0); ++i) s += part[i];
        y[get_group_id(0)] = s;
    }
}
"""
N = 101


@pytest.fixture
def program(rt: Runtime) -> Any:
    return rt.build(SOURCE, "", "test")


def make_buffer(rt: Runtime, array: np.ndarray[Any, Any]) -> Any:
    buffer = rt.allocate(array.nbytes)
    rt.write(buffer, array)
    return buffer


def read(rt: Runtime, buffer: Any, n: int = N) -> np.ndarray[Any, Any]:
    out = np.empty(n, np.float32)
    rt.read(buffer, out)
    return out


def test_a_recording_runs_its_launches_in_order(rt: Runtime, program: Any) -> None:
    buffer = make_buffer(rt, np.ones(N, np.float32))
    add = rt.prepare(program, "add", [buffer, np.float32(3), np.int32(N)], (N,))
    twice = rt.prepare(program, "times2", [buffer, np.int32(N)], (N,), (1,))
    recording = rt.record([add, twice, add])
    recording.run()
    rt.finish()
    assert np.all(read(rt, buffer) == 11)


def test_steady_state_only_enqueues(rt: Runtime, program: Any) -> None:
    buffer = make_buffer(rt, np.zeros(N, np.float32))
    recording = rt.record([rt.prepare(program, "add", [buffer, np.float32(1), np.int32(N)], (N,))] * 7)
    recording.run()
    before = rt.counters.snapshot()
    for _ in range(5):
        recording.run()
    rt.finish()
    assert rt.counters - before == Counters(enqueues=35)
    assert np.all(read(rt, buffer) == 42)


def test_flushing_in_chunks_changes_nothing(rt: Runtime, program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_FLUSH", "2")
    buffer = make_buffer(rt, np.zeros(N, np.float32))
    recording = rt.record([rt.prepare(program, "add", [buffer, np.float32(1), np.int32(N)], (N,))] * 5)
    recording.run()
    assert np.all(read(rt, buffer) == 5)


@pytest.mark.parametrize(("every", "want"), [(0, "lllll"), (2, "llfllflf"), (5, "lllllf"), (24, "lllllf")])
def test_the_queue_is_flushed_after_so_many_launches(
    rt: Runtime, program: Any, monkeypatch: pytest.MonkeyPatch, every: int, want: str
) -> None:
    buffer, done = make_buffer(rt, np.zeros(N, np.float32)), []
    launches = [rt.prepare(program, "add", [buffer, np.float32(1), np.int32(N)], (N,))] * 5
    monkeypatch.setattr(launch_sequence, "find_enqueue", lambda **_: lambda *args: done.append("l"))
    queue: Any = SimpleNamespace(flush=lambda: done.append("f"), int_ptr=0)
    LaunchSequence(queue, launches, flush_every=every, holds_gil=False, device="", counters=Counters()).run()
    assert "".join(done) == want


def test_how_often_is_the_devices_affair_unless_it_is_set(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPALITE_FLUSH", raising=False)
    for family, every in (("mali", 24), ("powervr", 16), ("adreno", 0)):
        monkeypatch.setattr(rt, "info", dataclasses.replace(rt.info, family=family))
        assert rt.flush_every == every
    monkeypatch.setenv("OPALITE_FLUSH", "3")
    assert rt.flush_every == 3


@pytest.mark.parametrize("way", ["holds", "lets go", "pyopencl"])
def test_all_ways_to_enqueue(rt: Runtime, program: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "pyopencl":  # where the loader's functions cannot be had
        monkeypatch.setattr(launch_sequence, "find_enqueue", lambda **_: None)
        monkeypatch.setattr(kernel_object, "_calls", lambda: None)
    buffer = make_buffer(rt, np.zeros(N, np.float32))
    add = rt.prepare(program, "add", [buffer, np.float32(1), np.int32(N)], (N,), label="sum")
    grouped = rt.prepare(program, "add", [buffer, np.float32(1), np.int32(N)], (104,), (8,))
    wrong = rt.prepare(program, "add", [buffer, np.float32(1), np.int32(N)], (N,), (2,), label="wrong")

    def record(launches: list[Any]) -> LaunchSequence:
        return LaunchSequence(
            rt.queue, launches, flush_every=3, holds_gil=way == "holds", device=rt.info.name, counters=rt.counters
        )

    record([add, grouped] * 4).run()
    assert np.all(read(rt, buffer) == 8)
    with pytest.raises(DeviceError, match=r"Launching wrong with global size \(101,\)"):
        record([add, add, add, add, wrong, add]).run()
    assert np.all(read(rt, buffer) == 12)


def test_local_memory(rt: Runtime, program: Any) -> None:
    x = np.arange(64, dtype=np.float32)
    source, target = make_buffer(rt, x), rt.allocate(64)
    rt.prepare(program, "sum_group", [source, target, LocalBytes(16 * 4)], (64,), (16,)).enqueue(rt.queue)
    assert np.array_equal(read(rt, target, 4), x.reshape(4, 16).sum(1))


def test_empty_launches_are_left_out(rt: Runtime, program: Any) -> None:
    buffer = rt.allocate(4)
    empty = rt.prepare(program, "times2", [buffer, np.int32(0)], (0,))
    assert empty.enqueue(rt.queue) is None
    rt.record([empty, empty]).run()
    rt.record([]).run()


def test_an_argument_can_be_set_again(rt: Runtime, program: Any) -> None:
    first, second = (make_buffer(rt, np.zeros(N, np.float32)) for _ in range(2))
    add = rt.prepare(program, "add", [first, np.float32(1), np.int32(N)], (N,))
    add.set_arg(0, second)
    add.enqueue(rt.queue)
    assert np.all(read(rt, first) == 0)
    assert np.all(read(rt, second) == 1)


def test_work_group_limit(rt: Runtime, program: Any) -> None:
    launch = rt.prepare(program, "times2", [rt.allocate(4), np.int32(0)], (1,))
    assert 1 <= launch.work_group_limit(rt.device) <= rt.info.max_work_group_size


# Errors are sentences that name the launch


def test_errors_of_launches(rt: Runtime, program: Any) -> None:
    buffer = rt.allocate(400)
    with pytest.raises(DeviceError, match=r"'nothing'.*conv1"):
        rt.prepare(program, "nothing", [buffer], (1,), label="conv1")
    with pytest.raises(DeviceError, match="'times2' takes 2 arguments, conv1 gives 1"):
        rt.prepare(program, "times2", [buffer], (1,), label="conv1")
    with pytest.raises(DeviceError, match="argument 1 of conv1"):
        rt.prepare(program, "times2", [buffer, np.int64(1)], (1,), label="conv1")
    bad = rt.prepare(program, "times2", [buffer, np.int32(1)], (10,), (3,), label="conv1")
    with pytest.raises(DeviceError, match=r"Launching conv1 with global size \(10,\) and work-group \(3,\)"):
        bad.enqueue(rt.queue)
    with pytest.raises(DeviceError, match="Launching conv1"):
        rt.record([bad]).run()


def test_build_error_shows_options_source_and_log(rt: Runtime) -> None:
    with pytest.raises(BuildError) as e:
        rt.build("kernel void f(global int *x) { x[0] = undeclared_name; }", "-DTILE=4", "conv.cl")
    text = str(e.value)
    for part in ("conv.cl", rt.info.title, "-DTILE=4", "undeclared_name"):
        assert part in text
    path = text.split("saved as ")[1].split(" ")[0].rstrip(".")
    with open(path) as f:
        assert f.readline() == "// options: -DTILE=4\n"
        assert "undeclared_name" in f.read()
    with pytest.raises(BuildError):
        rt.build("kernel void f(global int *x) { x[0] = undeclared_name; }", "-DTILE=4", "conv.cl")


# Memory


def test_too_large_a_buffer_says_how_much_there_is(rt: Runtime) -> None:
    with pytest.raises(DeviceMemoryError) as e:
        rt.allocate(1 << 50)
    assert "1073741824.0 MiB" in str(e.value)
    assert f"{rt.info.max_alloc / 2**20:.0f} MiB" in str(e.value)


def test_arena_regions_overlap_where_the_plan_says(rt: Runtime, program: Any) -> None:
    align = rt.info.base_align
    arena = rt.make_arena([(0, 4 * align), (2 * align, 4 * align), (8 * align, align)])
    low, high = arena.region(0, 4 * align), arena.region(2 * align, 4 * align)
    assert arena.region(0, 4 * align) is low
    rt.fill(low, 1, 4 * align)
    rt.fill(high, 2, 4 * align)
    got = np.empty(4 * align, np.uint8)
    rt.read(low, got)
    assert np.all(got[: 2 * align] == 1)
    assert np.all(got[2 * align :] == 2)
    n = align // 4
    rt.fill(high, 0, 4 * align)
    rt.prepare(program, "add", [high, np.float32(5), np.int32(n)], (n,)).enqueue(rt.queue)
    assert np.all(read(rt, high, n) == 5)
    assert arena.nbytes == 9 * align
    with pytest.raises(DeviceError, match="is not in the arena"):
        arena.region(64 * align, 4)


def test_arenas_may_go_before_their_regions(rt: Runtime, program: Any) -> None:
    align = rt.info.base_align
    held: list[Any] = []
    for i in range(40):
        arena = rt.make_arena([(j * align, 2 * align) for j in range(6)])
        regions = [arena.region(j * align, 2 * align) for j in range(6)]
        for region in regions:
            rt.fill(region, 0, 2 * align)
            rt.prepare(program, "times2", [region, np.int32(8)], (8,)).enqueue(rt.queue)
        held.append(regions[i % 6])
        del arena, regions, region
        if i % 7 == 0:
            held.clear()
            gc.collect()
    rt.finish()
    rt.fill(held[-1], 0, 2 * align)
    rt.prepare(program, "add", [held[-1], np.float32(2), np.int32(8)], (8,)).enqueue(rt.queue)
    assert np.all(read(rt, held[-1], 8) == 2)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
def test_images(rt: Runtime, dtype: DType) -> None:
    if not rt.info.image_support:
        pytest.skip(f"{rt.info.name} has no images")
    texels = np.random.default_rng(1).standard_normal((5, 37, 4)).astype(dtype.np)
    image = rt.make_image(37, 5, dtype)
    rt.write_image(image, texels)
    got = np.empty_like(texels)
    rt.read_image(image, got)
    assert np.array_equal(got, texels)
    with pytest.raises(InputError, match=r"37×5 texels"):
        rt.write_image(image, texels[:4])


def test_image_limits_are_an_error(rt: Runtime) -> None:
    with pytest.raises(DeviceError, match="keep this tensor in a buffer"):
        rt.make_image(1 << 20, 1, DType.FLOAT32)
    with pytest.raises(DeviceError):
        rt.make_image(4, 4, DType.INT32)


def test_pools_hand_out_device_memory(rt: Runtime) -> None:
    pool = BufferPool(rt.allocate)
    pool.release(first := pool.acquire(1000))
    assert pool.acquire(500) is first


@pytest.mark.parametrize("name", ["float32", "float16", "int64", "uint8", "bool", "bfloat16"])
def test_transfers_of_every_type(rt: Runtime, name: str) -> None:
    dtype = {d.value[1]: d for d in DType}[name].np
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    buffer = rt.allocate(array.nbytes)
    rt.write(buffer, array)
    got = np.empty_like(array)
    rt.read(buffer, got)
    assert np.array_equal(got, array)


def test_transfers_at_an_offset_copies_and_empty_ones(rt: Runtime) -> None:
    buffer, other = rt.allocate(400), rt.allocate(400)
    rt.fill(buffer, 0, 400)
    rt.write(buffer, np.float32(7).reshape(1), offset=40)
    rt.copy(buffer, other, 400)
    assert read(rt, other, 100)[10] == 7
    rt.write(buffer, np.empty((0, 3), np.float32))
    rt.fill(buffer, 0, 0)
    rt.copy(buffer, other, 0)
    with pytest.raises(InputError, match="ascontiguousarray"):
        rt.write(buffer, np.zeros((4, 4), np.float32).T[1:])


def test_weights_are_shared_while_held(rt: Runtime) -> None:
    array = np.arange(1000, dtype=np.float32)
    before = rt.counters.memory_objects
    first, second = rt.share_weight(array), rt.share_weight(array.copy())
    assert first.memory is second.memory
    assert rt.counters.memory_objects == before + 1
    got = np.empty_like(array)
    rt.read(first.memory, got)
    assert np.array_equal(got, array)
    gc.collect()  # of earlier tests
    held = len(rt.weights)
    del first, second
    gc.collect()
    assert len(rt.weights) == held - 1


def test_aligned_host_memory_needs_no_copy_on_a_cpu(rt: Runtime, program: Any) -> None:
    raw = np.zeros(N * 4 + rt.info.base_align, np.uint8)
    offset = -raw.ctypes.data % rt.info.base_align
    array = raw[offset : offset + N * 4].view(np.float32)
    array[:] = 3
    before = rt.counters.bytes_allocated
    held = rt.share_weight(array)
    assert (rt.counters.bytes_allocated == before) == rt.info.on_host
    assert np.all(read(rt, held.memory) == 3)
    if rt.info.on_host:
        assert rt.allocator.wrapped(raw[offset + 4 : offset + 8]) is None


# Devices


def test_find_runtime_gives_one_runtime_for_a_device(rt: Runtime) -> None:
    assert find_runtime(rt.info.id) is rt
    assert find_runtime(rt.info.id.upper()) is rt


def test_every_device_is_described() -> None:
    found = devices()
    assert len({d.id for d in found}) == len(found) >= 1
    for d in found:
        assert d.name
        assert d.compute_units >= 1
        assert d.max_alloc > 0
        assert d.kind in ("cpu", "gpu", "accelerator")


def test_the_setting_picks_the_device(monkeypatch: pytest.MonkeyPatch, rt: Runtime) -> None:
    monkeypatch.setenv("OPALITE_DEVICE", "no such device")
    with pytest.raises(NoDeviceError, match="no such device"):
        find_device()
    monkeypatch.setenv("OPALITE_DEVICE", rt.info.id)
    assert find_device().info.id == rt.info.id


def test_programs_build_from_several_threads_once(rt: Runtime) -> None:
    text = SOURCE + "// once\n"
    before = rt.counters.snapshot()
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(rt.build(text, "-DX=1"))) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    done = rt.counters - before
    assert len({id(p) for p in got}) == 1
    assert done.programs_built + done.programs_loaded == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_is_told_to_spawn(rt: Runtime) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            find_runtime()
            os.write(writer, b"no error")
        except DeviceError as e:
            os.write(writer, str(e).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"spawn" in os.read(reader, 1000)


def test_a_software_gpu_is_warned_of(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mesa's llvmpipe computes for minutes: silence there would look like a hang."""
    found = find_device(rt.info.id)
    imitator = dataclasses.replace(
        found, info=dataclasses.replace(found.info, id="soft:cpu:0", quirks=(*found.info.quirks, SOFTWARE))
    )
    monkeypatch.setattr(runtime_module, "find_device", lambda request: imitator)
    monkeypatch.setattr(runtime_module, "_runtimes", {})
    for _ in range(2):
        find_runtime("soft:cpu:0")
    assert caplog.text.count("pip install pocl-binary-distribution") == 1
