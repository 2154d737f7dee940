"""Inputs and outputs bound to device memory: a loop moves nothing, sessions feed each other, misfits are sentences.

Longer than 400 lines: cases that do not know each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper
from opalite import OrtValue
from opalite.cl.device.enumerate_devices import list_all
from opalite.cl.memory.device_tensor import DeviceTensor
from opalite.cl.memory.staging_buffer import StagingBuffer
from opalite.cl.runtime import Runtime
from opalite.cl.runtime_counters import Counters
from opalite.errors import DeviceError, DeviceMemoryError, InputError
from opalite.run.api.session.compile_bundle import compile_model
from opalite.run.execute.strategies import megakernel_builder

from ....helpers.counters import settled, spent
from ....helpers.small_models import adder, classifier, determinant, make_model, noise, port

Open = Callable[..., opalite.InferenceSession]


@pytest.fixture
def open_session(rt: Runtime) -> Open:
    def open_(model: Any, **options: Any) -> opalite.InferenceSession:
        source = model if isinstance(model, (str, Path)) else model.SerializeToString()
        return opalite.InferenceSession(source, **{"device": rt.info.id, "precision": "fp32", **options})

    return open_


def on_device(rt: Runtime, array: Any) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(array, rt.info)


def test_a_bound_loop_moves_nothing(rt: Runtime, open_session: Open) -> None:
    session, x = open_session(classifier()), noise(2, 3, 16, 16)
    want = session.run(None, {"x": x})[0]
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(rt, x))
    binding.bind_output("y", "opencl")
    session.run_with_iobinding(binding)
    settled(rt)
    session.run_with_iobinding(binding)  # sets the arguments of what replaced the generic programs
    launches = session.explain().launches
    done = spent(rt, lambda: [session.run_with_iobinding(binding) for _ in range(5)])
    replays = done.replays
    assert done == Counters(enqueues=5 * launches, replays=replays)
    (value,) = binding.get_outputs()
    assert (value.device_name(), value.shape(), value.data_type()) == ("opencl", [2, 10], "tensor(float)")
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)


def test_new_contents_take_one_transfer(rt: Runtime, open_session: Open) -> None:
    session = open_session(classifier())
    binding = session.io_binding()
    binding.bind_output("y", "opencl")
    for i in range(3):
        x = noise(1, 3, 8, 8, seed=i)
        done = spent(rt, lambda x=x: binding.bind_cpu_input("x", x))  # type: ignore[misc]
        on_gpu = not rt.info.on_host  # a CPU device reads the array itself at each run
        assert (done.transfers, done.memory_objects) == (int(on_gpu), int(on_gpu and i == 0))
        ran = spent(rt, lambda: session.run_with_iobinding(binding))
        assert ran.transfers == (0 if on_gpu else 1) or i == 0
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], session.run(None, {"x": x})[0])


def test_the_output_of_one_session_feeds_another(rt: Runtime, open_session: Open) -> None:
    first, second = open_session(classifier(classes=6)), open_session(scaler(6))
    x = noise(1, 3, 8, 8)
    want = second.run(None, {"x": first.run(None, {"x": x})[0]})[0]
    head, tail = first.io_binding(), second.io_binding()
    head.bind_ortvalue_input("x", on_device(rt, x))
    head.bind_output("y", "opencl")
    first.run_with_iobinding(head)
    tail.bind_ortvalue_input("x", head.get_outputs()[0])
    tail.bind_output("y", "opencl")
    second.run_with_iobinding(tail)

    def both() -> None:
        first.run_with_iobinding(head)
        second.run_with_iobinding(tail)

    both()
    settled(rt)
    both()
    done = spent(rt, lambda: [both() for _ in range(4)])
    assert (done.transfers, done.args_set, done.memory_objects) == (0, 0, 0)
    np.testing.assert_array_equal(tail.copy_outputs_to_cpu()[0], want)


def scaler(size: int) -> Any:
    """y = 2 x of [N, size]."""
    node = helper.make_node("Mul", ["x", "two"], ["y"])
    return make_model([node], [port("x", ["N", size])], [port("y", ["N", size])], {"two": np.float32(2)})


def test_a_state_may_be_input_and_output_at_once(rt: Runtime, open_session: Open) -> None:
    session = open_session(scaler(5))
    state = on_device(rt, np.ones((3, 5), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", state)
    binding.bind_ortvalue_output("y", state)
    for _ in range(6):
        session.run_with_iobinding(binding)
    assert np.all(state.numpy() == 64)


def test_two_bound_values_alternate(rt: Runtime, open_session: Open) -> None:
    session = open_session(scaler(5))
    values = [on_device(rt, np.full((3, 5), v, np.float32)) for v in (1, 0)]
    binding = session.io_binding()
    for i in range(6):
        binding.bind_ortvalue_input("x", values[i % 2])
        binding.bind_ortvalue_output("y", values[1 - i % 2])
        session.run_with_iobinding(binding)
    assert np.all(values[0].numpy() == 64)
    assert np.all(values[1].numpy() == 32)


def test_run_with_arrays_leaves_bound_values_alone(rt: Runtime, open_session: Open) -> None:
    session = open_session(scaler(5))
    x, y = on_device(rt, np.ones((3, 5), np.float32)), on_device(rt, np.zeros((3, 5), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    assert np.all(session.run(None, {"x": np.full((3, 5), 9, np.float32)})[0] == 18)
    assert np.all(x.numpy() == 1)
    assert np.all(y.numpy() == 2)
    assert np.all(session.run(None, {"x": y})[0] == 4)
    (found,) = session.run_with_ort_values(["y"], {"x": x})
    assert (found.device_name(), found.numpy()[0, 0]) == ("cpu", 2)


def test_outputs_bound_to_the_host(open_session: Open) -> None:
    session, x = open_session(scaler(4)), noise(2, 4)
    out = np.zeros((2, 4), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, (2, 4), x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, (2, 4), out.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, 2 * x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    first = binding.copy_outputs_to_cpu()[0]
    np.testing.assert_array_equal(first, 2 * x)
    given = OrtValue.ortvalue_from_shape_and_type((2, 4), TensorProto.FLOAT)
    binding.bind_ortvalue_output("y", given)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(given.numpy(), first)


def test_handles_of_opencl_memory(rt: Runtime, open_session: Open) -> None:
    session, x = open_session(scaler(4)), noise(2, 4)
    source, target = rt.allocate(32), rt.allocate(32)
    rt.write(source, x)
    binding = session.io_binding()
    binding.bind_input("x", "opencl", 0, np.float32, (2, 4), source.int_ptr)
    binding.bind_output("y", "opencl", 0, np.float32, (2, 4), target.int_ptr)
    session.run_with_iobinding(binding)
    got = np.empty((2, 4), np.float32)
    rt.read(target, got)
    np.testing.assert_array_equal(got, 2 * x)
    assert binding.get_outputs()[0].data_ptr() == target.int_ptr
    with pytest.raises(DeviceError, match="32 bytes, 36 are needed"):
        binding.bind_input("x", "opencl", 0, np.float32, (3, 3), source.int_ptr)


def test_outputs_that_no_launch_writes(rt: Runtime, open_session: Open) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Reshape", ["x", "flat"], ["view"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Reshape", ["n", "flat"], ["nview"]),
    ]
    names = ("same", "view", "shape", "n", "nview")
    outputs = [port(n, None, TensorProto.INT64 if n == "shape" else TensorProto.FLOAT) for n in names]
    model = make_model(nodes, [port("x", [2, 3])], outputs, {"flat": np.array([-1])})
    session, x = open_session(model), noise(2, 3)
    want = session.run(None, {"x": x})
    binding = session.io_binding()
    value = on_device(rt, x)
    binding.bind_ortvalue_input("x", value)
    for name in names:
        binding.bind_output(name, "opencl")
    for _ in range(2):
        session.run_with_iobinding(binding)
        for got, w in zip(binding.copy_outputs_to_cpu(), want, strict=True):
            np.testing.assert_array_equal(got, w)
    handles = {v.data_ptr() for v in binding.get_outputs()}
    assert len(handles | {value.data_ptr()}) == 6


def test_models_in_segments_and_with_host_operators(rt: Runtime, open_session: Open) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Cast", ["where"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["f"], ["y"]),
    ]
    for model, x in (
        (make_model(nodes, [port("x", ["n"])], [port("y", None)]), noise(7)),
        (determinant(), noise(3, 3)),
    ):
        session = open_session(model)
        want = session.run(None, {"x": x})[0]
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on_device(rt, x))
        binding.bind_output(session.get_outputs()[0].name, "opencl")
        for _ in range(2):
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)


def test_new_sizes_get_new_memory(rt: Runtime, open_session: Open) -> None:
    session = open_session(classifier())
    binding = session.io_binding()
    binding.bind_output("y", "opencl")
    for n in (1, 3, 1):
        x = noise(n, 3, 8, 8)
        binding.bind_cpu_input("x", x)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], session.run(None, {"x": x})[0])


def test_bundles_and_closed_sessions(rt: Runtime, open_session: Open, tmp_path: Path) -> None:
    options = {"shapes": {"x": (2, 4)}, "device": rt.info.id, "precision": "fp32"}
    compile_model(scaler(4).SerializeToString(), tmp_path / "m.opal", **options)
    session, x = open_session(tmp_path / "m.opal"), noise(2, 4)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(rt, x))
    binding.bind_output("y", "opencl")
    for _ in range(2):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 2 * x)
        session.close()
    for _ in range(2):  # the first run of a shape looks at the outputs
        session.run_with_iobinding(binding)
    assert spent(rt, lambda: session.run_with_iobinding(binding)).transfers == 0


def test_half_that_overflows_is_computed_in_float(rt: Runtime, open_session: Open) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = make_model([node], [port("x", [2, 8])], [port("y", [2, 4])], {"w": np.full((8, 4), 3e4, np.float32)})
    session, x = open_session(model, precision="fp16"), np.ones((2, 8), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "opencl")
    for _ in range(4):
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], np.full((2, 4), 2.4e5), rtol=1e-3)


def test_half_storage_inside_keeps_float_outside(rt: Runtime, open_session: Open) -> None:
    session, x = open_session(classifier(), precision="fp16"), noise(1, 3, 8, 8)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(rt, x))
    binding.bind_output("y", "opencl")
    for _ in range(2):
        session.run_with_iobinding(binding)
    assert spent(rt, lambda: session.run_with_iobinding(binding)).transfers == 0
    assert binding.get_outputs()[0].element_type() == TensorProto.FLOAT
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], session.run(None, {"x": x})[0])


# OrtValue


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_values_keep_shape_type_and_contents(rt: Runtime, dtype: str) -> None:
    array = (noise(3, 0 if dtype == "uint8" else 5) * 9).astype(dtype)
    value = on_device(rt, array)
    assert (value.shape(), value.is_tensor(), value.has_value()) == (list(array.shape), True, True)
    np.testing.assert_array_equal(value.numpy(), array)
    np.testing.assert_array_equal(np.asarray(value), array)
    value.update_inplace(array[::-1])
    np.testing.assert_array_equal(value.numpy(), array[::-1])
    assert OrtValue.ortvalue_from_numpy(array).numpy() is array


@pytest.mark.parametrize("shared", [True, False])
def test_both_ways_to_cross(rt: Runtime, shared: bool) -> None:
    if shared and not rt.shares_memory:
        pytest.skip(f"{rt.info.name} has memory of its own")
    stand_in = SimpleNamespace(
        shares_memory=shared,
        maps_memory=False,
        allocator=rt.allocator,
        allocate=rt.allocate,
        counters=rt.counters,
        write=rt.write,
        read=rt.read,
    )
    staging = StagingBuffer(stand_in, 60)  # type: ignore[arg-type]
    array = np.arange(30, dtype=np.float64).reshape(5, 6)[:, ::2]
    held = staging.write(array, np.dtype(np.float32))
    rt.finish()
    raw = np.empty(15, np.float32)
    rt.read(staging.buffer, raw)
    np.testing.assert_array_equal(raw, array.reshape(-1))
    rt.fill(staging.buffer, 0, 32)
    rt.finish()
    got = np.empty((5, 3), np.float32)
    held = staging.read(got)
    rt.finish()
    del held
    np.testing.assert_array_equal(got.reshape(-1), [0] * 8 + list(array.reshape(-1)[8:]))


# Misfits are sentences


def test_unfitting_values_raise(rt: Runtime, open_session: Open) -> None:
    session = open_session(adder())
    binding = session.io_binding()
    with pytest.raises(InputError, match=r"no input is named 'q'; the model's inputs are x"):
        binding.bind_cpu_input("q", noise(2, 3))
    with pytest.raises(InputError, match="no output is named 'q'"):
        binding.bind_output("q")
    with pytest.raises(InputError, match=r"is 'cpu' or .* got 'tpu'"):
        binding.bind_output(session.get_outputs()[0].name, "tpu")
    if all(found.info.kind != "gpu" for found in list_all().devices):
        with pytest.raises(InputError, match=r"'cuda' needs a GPU, and no OpenCL GPU was found"):
            OrtValue.ortvalue_from_numpy(noise(2), "cuda")
    else:
        why = r"is not from OrtValue.data_ptr\(\)" if rt.info.kind == "gpu" else "cannot be on"
        with pytest.raises(InputError, match=why):
            binding.bind_input("x", "cuda", 0, np.float32, (2, 3), 4096)
    with pytest.raises(InputError, match=r"device_id is 0 or a text"):
        OrtValue.ortvalue_from_numpy(noise(2), "opencl", 7)
    with pytest.raises(InputError, match=r"bound to an opalite.OrtValue, got ndarray"):
        binding.bind_ortvalue_input("x", noise(2, 3))
    with pytest.raises(InputError, match="give its element_type and shape"):
        binding.bind_output(session.get_outputs()[0].name, "cpu", buffer_ptr=4096)
    with pytest.raises(InputError, match="an OpenCL device cannot hold"):
        on_device(rt, np.array(["a"], object))
    with pytest.raises(InputError, match="not an element type"):
        OrtValue.ortvalue_from_shape_and_type((2,), "q8")
    for shape, said in (((2, -3), "negative size"), ("23", "whole numbers"), ((2.5,), "whole numbers")):
        for where in ("cpu", "opencl", "opencl_pinned"):
            with pytest.raises(InputError, match=said):
                OrtValue.ortvalue_from_shape_and_type(shape, np.float32, where)
        with pytest.raises(InputError, match=said):
            binding.bind_input("x", "cpu", 0, np.float32, shape, noise(2, 3).ctypes.data)
    for where in ("cpu", "opencl"):
        with pytest.raises(InputError, match=r"buffer_ptr is an address, .*got 0"):
            binding.bind_input("x", where, 0, np.float32, (2, 3), 0)
    with pytest.raises(DeviceMemoryError, match=r"allocating float32\[1099511627776, 64\]"):
        OrtValue.ortvalue_from_shape_and_type((2**40, 64), np.float32)
    with pytest.raises(InputError, match="no output is bound"):
        session.run_with_iobinding(binding)
    with pytest.raises(InputError, match=r"the session that created it: session.io_binding"):
        session.run_with_iobinding(open_session(adder()).io_binding())
    binding.bind_output(session.get_outputs()[0].name, "opencl")
    with pytest.raises(InputError, match="has no value before"):
        binding.get_outputs()
    with pytest.raises(InputError, match="'x'"):
        session.run_with_iobinding(binding)
    with pytest.raises(InputError, match=r"holds float32\[3\], got float64\[3\]"):
        on_device(rt, noise(3)).update_inplace(np.zeros(3))


def test_values_that_do_not_fit_the_model(rt: Runtime, open_session: Open) -> None:
    session = open_session(scaler(4))
    binding = session.io_binding()
    binding.bind_output("y", "opencl")
    binding.bind_ortvalue_input("x", on_device(rt, noise(2, 4).astype(np.float64)))
    with pytest.raises(InputError, match=r"input 'x' is float32, got float64"):
        session.run_with_iobinding(binding)
    binding.bind_ortvalue_input("x", on_device(rt, noise(2, 5)))
    with pytest.raises(InputError, match=r"input 'x' has size 4 along axis 1"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", noise(2, 4))
    for device in ("opencl", "cpu"):
        where: Any = rt.info if device == "opencl" else "cpu"
        binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_shape_and_type((3, 4), np.float32, where))
        with pytest.raises(InputError, match=r"output 'y' is float32\[2, 4\].*bound to it holds float32\[3, 4\]"):
            session.run_with_iobinding(binding)


def test_values_of_another_device(rt: Runtime, open_session: Open) -> None:
    session = open_session(scaler(4))
    other = Runtime.__new__(Runtime)
    other.__dict__.update(rt.__dict__)
    foreign = OrtValue(DeviceTensor(other, (2, 4), np.dtype(np.float32)))
    for call in (
        lambda: session.io_binding().bind_ortvalue_input("x", foreign),
        lambda: session.io_binding().bind_ortvalue_output("y", foreign),
        lambda: session.run(None, {"x": foreign}),
    ):
        with pytest.raises(InputError, match=r"put '[xy]' is on .*, but the session runs on"):
            call()


def test_bound_runs_and_megakernel_runs_alternate(
    rt: Runtime, open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(megakernel_builder, "WORTH_RUNS", 2)
    session = open_session(classifier())
    binding = session.io_binding()
    binding.bind_output("y", "opencl")
    value = on_device(rt, noise(1, 3, 8, 8))
    binding.bind_ortvalue_input("x", value)
    end = time.monotonic() + 120  # for a worker process that links on a busy machine
    rounds = 0
    while rounds < 4:
        x = noise(1, 3, 8, 8, seed=rounds)
        value.update_inplace(x)
        session.run_with_iobinding(binding)
        want = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], want, rtol=1e-5)
        (executable,) = session._dispatcher.run_record.executables
        rounds += executable.current.selector.builder.is_over or time.monotonic() > end


def test_pinned_memory_is_an_array_like_others(rt: Runtime, open_session: Open) -> None:
    session, x = open_session(classifier()), noise(2, 3, 16, 16)
    value = OrtValue.ortvalue_from_numpy(x, "opencl_pinned", rt.info.id)
    assert (value.device_name(), value.shape()) == ("cpu", [2, 3, 16, 16])
    np.testing.assert_array_equal(value.numpy(), x)
    want = session.run(None, {"x": x})[0]
    np.testing.assert_array_equal(session.run(None, {"x": value})[0], want)
    value.update_inplace(2 * x)
    np.testing.assert_array_equal(session.run(None, {"x": value.numpy()})[0], session.run(None, {"x": 2 * x})[0])
    empty = OrtValue.ortvalue_from_shape_and_type([0, 3], np.float32, "opencl_pinned", rt.info.id)
    assert empty.numpy().shape == (0, 3)
    with pytest.raises(InputError, match="an OpenCL device cannot hold"):
        OrtValue.ortvalue_from_shape_and_type([2], np.complex64, "opencl_pinned", rt.info.id)


def test_inputs_of_the_next_run_come_while_one_computes(rt: Runtime, open_session: Open) -> None:
    session = open_session(classifier())
    inputs = [noise(2, 3, 16, 16, seed=i) for i in range(6)]
    wants = [session.run(None, {"x": x})[0] for x in inputs]
    pinned = OrtValue.ortvalue_from_numpy(inputs[0], "opencl_pinned", rt.info.id)
    sides = [on_device(rt, inputs[0]), on_device(rt, inputs[0])]
    bindings = []
    for value in sides:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("y", "opencl")
        bindings.append(binding)
    with ThreadPoolExecutor(1) as pool:
        for i, want in enumerate(wants):
            following = inputs[(i + 1) % len(inputs)]
            pinned.update_inplace(following)
            coming = pool.submit(sides[(i + 1) % 2].update_inplace, pinned.numpy())
            session.run_with_iobinding(bindings[i % 2])
            np.testing.assert_array_equal(bindings[i % 2].copy_outputs_to_cpu()[0], want)
            coming.result()
