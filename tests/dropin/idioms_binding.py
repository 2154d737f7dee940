"""IOBinding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import models
from .idiom import differs, idiom
from .models import X

CPU = ["CPUExecutionProvider"]


def opened(ort: Any) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    return session, session.io_binding()


@idiom
def bind_an_array(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_cpu_input("X", X)
    binding.synchronize_inputs()
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    return binding.copy_outputs_to_cpu()


@idiom
def bind_an_array_that_changes(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    x = X.copy()
    binding.bind_cpu_input("X", x)
    binding.bind_output("Y", "cpu")
    session.run_with_iobinding(binding)
    first = binding.copy_outputs_to_cpu()
    x[:] = 7
    session.run_with_iobinding(binding)
    return first, binding.copy_outputs_to_cpu()


@idiom
def bind_again(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_output("Y")
    found = []
    for i in range(3):
        binding.bind_cpu_input("X", X * i)
        session.run_with_iobinding(binding, ort.RunOptions())
        found.append(binding.copy_outputs_to_cpu()[0])
    return found


@idiom
def bind_memory(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    x, y = X.copy(), np.zeros((3, 2), np.float32)
    binding.bind_input(
        name="X", device_type="cpu", device_id=0, element_type=np.float32, shape=[3, 2], buffer_ptr=x.ctypes.data
    )
    binding.bind_output("Y", "cpu", 0, np.float32, [3, 2], y.ctypes.data)
    session.run_with_iobinding(binding)
    return y


@idiom
def bind_memory_by_onnx_types(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    x, y = X.copy(), np.zeros((3, 2), np.float32)
    binding.bind_input("X", "cpu", 0, 1, x.shape, x.ctypes.data)
    binding.bind_output("Y", "cpu", 0, 1, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    return y


@idiom
def bind_memory_of_values(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    x = ort.OrtValue.ortvalue_from_numpy(X)
    y = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding.bind_input("X", x.device_name(), 0, np.float32, x.shape(), x.data_ptr())
    binding.bind_output("Y", y.device_name(), 0, np.float32, y.shape(), y.data_ptr())
    session.run_with_iobinding(binding)
    return y, binding.get_outputs()


@idiom
def bind_values(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    y = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding.bind_ortvalue_output("Y", y)
    found = []
    for i in (1, 2):
        binding.bind_ortvalue_input("X", ort.OrtValue.ortvalue_from_numpy(X * i))
        session.run_with_iobinding(binding)
        found.append(y.numpy().copy())
    return found, binding.get_outputs()


@idiom
def bind_a_value_that_is_updated(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    x = ort.OrtValue.ortvalue_from_numpy(X.copy())
    binding.bind_ortvalue_input("X", x)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    x.update_inplace(X * 5)
    session.run_with_iobinding(binding)
    return binding.get_outputs()


@idiom
def outputs_as_a_vector(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    vector = binding.get_outputs_as_ortvaluevector()
    return len(vector), vector[0].numpy(), [v.shape() for v in vector]


@idiom
def outputs_in_the_order_of_binding(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.two_outputs(), providers=CPU)
    binding = session.io_binding()
    a = np.arange(10, dtype=np.float32)
    binding.bind_cpu_input("A", a)
    binding.bind_cpu_input("B", a * 3)
    binding.bind_output("difference")
    binding.bind_output("sum")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


@idiom
def outputs_of_open_shape(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.product(), providers=CPU)
    binding = session.io_binding()
    binding.bind_output("Y")
    found = []
    for n in (2, 5):
        binding.bind_cpu_input("X", np.ones((n, 4), np.float32))
        binding.bind_cpu_input("Z", np.ones((4, 3), np.float32))
        session.run_with_iobinding(binding)
        found.append(binding.get_outputs()[0].shape())
        binding.clear_binding_outputs()
        binding.bind_output("Y")
    return found


@idiom
def clear_and_bind(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    empty = binding.get_outputs()
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    return empty, binding.copy_outputs_to_cpu()


@idiom
def bind_every_type(ort: Any, tmp: Path) -> Any:
    from onnx import TensorProto as T

    state = __import__(f"{ort.__name__}.capi.onnxruntime_pybind11_state", fromlist=["C"])
    device = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
    kinds = {T.FLOAT: "f4", T.DOUBLE: "f8", T.INT32: "i4", T.INT64: "i8", T.UINT8: "u1", T.BOOL: "?", T.FLOAT16: "f2"}
    found = []
    for kind, name in kinds.items():
        session = ort.InferenceSession(models.same(kind), providers=CPU)
        binding = state.SessionIOBinding(session._sess)
        x = ort.OrtValue.ortvalue_from_numpy(np.arange(4).reshape(2, 2).astype(name))
        binding.bind_ortvalue_input("X", x._ortvalue)
        binding.bind_output("Y", device)
        session._sess.run_with_iobinding(binding, None)
        found.append(binding.get_outputs()[0].numpy())
    return found


@idiom
def bind_an_input_that_is_none(ort: Any, tmp: Path) -> Any:
    opened(ort)[1].bind_cpu_input("Q", X)


@idiom
def bind_a_list(ort: Any, tmp: Path) -> Any:
    opened(ort)[1].bind_cpu_input("X", X.tolist())


@idiom
def bind_memory_without_a_shape(ort: Any, tmp: Path) -> Any:
    opened(ort)[1].bind_output("Y", "cpu", 0, None, None, X.ctypes.data)


@idiom
def run_without_outputs(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_cpu_input("X", X)
    session.run_with_iobinding(binding)


@idiom
def run_without_inputs(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)


@idiom
def run_with_another_type(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_cpu_input("X", X.astype(np.float64))
    binding.bind_output("Y")
    session.run_with_iobinding(binding)


@idiom
def run_with_another_shape(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_cpu_input("X", X[:2])
    binding.bind_output("Y")
    session.run_with_iobinding(binding)


@idiom
def run_into_a_value_of_another_shape(ort: Any, tmp: Path) -> Any:
    session, binding = opened(ort)
    binding.bind_cpu_input("X", X)
    binding.bind_ortvalue_output("Y", ort.OrtValue.ortvalue_from_shape_and_type([2, 2], np.float32))
    session.run_with_iobinding(binding)


@idiom
def run_with_the_binding_of_another_session(ort: Any, tmp: Path) -> Any:
    opened(ort)[0].run_with_iobinding(opened(ort)[1])


@differs("an output that the model lacks is told when it is bound, not when it runs")
def bind_an_output_that_is_none(ort: Any, tmp: Path) -> Any:
    opened(ort)[1].bind_output("Q")


@differs("values that are not there yet are an error, not empty values")
def outputs_before_a_run(ort: Any, tmp: Path) -> Any:
    _, binding = opened(ort)
    binding.bind_output("Y")
    return len(binding.get_outputs())
