"""IOBinding: inputs and outputs bound to memory, which runs use without copies, in onnxruntime's API."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.memory.device_tensor import DeviceTensor, wrap_handle
from ....cl.runtime import Runtime
from ....errors import BindingError, DeviceLostError, InputError, OptionError
from ....ir.device.device_info import DeviceInfo
from ....ir.dtype import DType
from ....plan.program import Port
from ..options.ort_devices import OrtDevice
from .ort_value import (
    DEVICE,
    GPU_NAMES,
    HOST,
    OrtValue,
    OrtValueVector,
    device_dtype,
    exported_handles,
    find_device_memory,
    parse_element_type,
    parse_shape,
)

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]


class BoundOutput:
    """The destination of an output: a value of the caller, or memory of the binding that all runs reuse."""

    def __init__(self, name: str, onnx_type: str, rt: Runtime | None, given: OrtValue | None = None) -> None:
        """rt: None for host memory. given: the caller's value."""
        self.name = name
        self._type = onnx_type
        self.on_device = rt is not None
        self._rt = rt
        self._given = given
        self.is_given = given is not None
        self.result: OrtValue | None = given

    def target(self, port: Port) -> DeviceTensor:
        """The tensor for an output of the shape of `port`. Raises BindingError if the caller's tensor does not fit."""
        assert self._rt is not None
        held = self.result.value if self.result is not None else None
        if isinstance(held, DeviceTensor) and held.shape == port.shape and held.dtype == port.dtype.np:
            return held
        if self._given is not None:
            raise self._misfit(port.dtype.np, port.shape)
        made = DeviceTensor(self._rt, port.shape, device_dtype(port.dtype.np))
        self.result = OrtValue(made)
        return made

    def store(self, value: Any) -> None:
        """Store an output of a run in the destination."""
        if not self.on_device:
            array = value.numpy() if isinstance(value, DeviceTensor) else value
            if self._given is None:
                self.result = OrtValue(array, self._type)
            elif array.shape != self._given.value.shape or array.dtype != self._given.value.dtype:
                raise self._misfit(array.dtype, array.shape)
            else:
                np.copyto(self._given.numpy(), array)
            return
        if self.result is not None and value is self.result.value:
            return
        if not isinstance(value, DeviceTensor | np.ndarray):
            raise BindingError(f"output '{self.name}' is not a tensor and needs host memory: bind it to 'cpu'")
        tensor = self.target(Port(self.name, DType.of(value.dtype), tuple(value.shape), 0))
        if isinstance(value, DeviceTensor):
            tensor.copy_from(value)
            tensor.rt.finish()
        else:
            tensor.write(value)

    def _misfit(self, dtype: Any, shape: Sequence[int]) -> BindingError:
        assert self._given is not None
        return BindingError(
            f"output '{self.name}' is {dtype}{list(shape)}, but the value bound to it holds "
            f"{self._given.value.dtype}{self._given.shape()}; bind one that fits, or leave shape and memory open"
        )


class IOBinding:
    """The inputs and outputs of runs, bound to memory: `session.run_with_iobinding(binding)`.

    'opencl' is the memory of the session's device. Bindings remain for later runs. Raises BindingError for names,
    memory, shapes and types that do not fit; some mismatches are found by the run only.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.rt = session.runtime
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, BoundOutput] = {}
        self._uploaded: dict[str, DeviceTensor] = {}  # device copies of inputs bound to arrays
        self.shared: Any = None  # the caches bound as input and as output (bound_kv_cache.py)
        known = (*session.get_inputs(), *session.get_overridable_initializers())
        self._known_inputs = [a.name for a in known]
        self._known_outputs = {a.name: a.type for a in session.get_outputs()}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to an array. CPU devices read the array in each run; other devices get a copy now.

        Bind again after changing the array for a GPU.
        """
        self._check_name("input", name, self._known_inputs)
        if not isinstance(arr_on_cpu, np.ndarray | OrtValue):
            raise BindingError(f"input '{name}' is bound to an array, got {type(arr_on_cpu).__name__}: np.asarray it")
        array = np.asarray(arr_on_cpu)
        self.inputs[name] = array
        if self.session.device.on_host or array.dtype.hasobject:
            return
        try:
            device_dtype(array.dtype)
        except InputError:
            return
        tensor = self._uploaded.get(name)
        if tensor is None or tensor.shape != array.shape or tensor.dtype != array.dtype:
            tensor = self._uploaded[name] = DeviceTensor(self.session.runtime, array.shape, array.dtype)
        tensor.write(array)
        self.inputs[name] = tensor

    def bind_input(
        self,
        name: str,
        device_type: str | DeviceInfo,
        device_id: int | str,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to the caller's memory: an address for 'cpu', a cl_mem handle for 'opencl'.

        The handle must belong to the session's context, and is retained. Host memory is handled as by `bind_cpu_input`.
        """
        self._check_name("input", name, self._known_inputs)
        if self._is_device(device_type, device_id, f"input '{name}'"):
            self.inputs[name] = self._tensor_at(device_type, buffer_ptr, shape, element_type)
        else:
            self.bind_cpu_input(name, _array_at(buffer_ptr, shape, element_type))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value. Device memory is read in place; host memory is copied in each run."""
        self._check_name("input", name, self._known_inputs)
        self._check_value("input", name, ortvalue)
        self.inputs[name] = ortvalue.value

    def bind_output(
        self,
        name: str,
        device_type: str | DeviceInfo = HOST,
        device_id: int | str = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to host ('cpu') or device memory ('opencl').

        buffer_ptr: the caller's memory, as of `bind_input`; None uses the binding's memory, which each run overwrites.
        """
        self._check_name("output", name, self._known_outputs)
        on_device = self._is_device(device_type, device_id, f"output '{name}'")
        given = None
        if buffer_ptr is not None:
            if shape is None or element_type is None:
                raise OptionError(
                    f"output '{name}' is bound to memory at {buffer_ptr:#x}: give its element_type and shape"
                )
            given = OrtValue(
                self._tensor_at(device_type, buffer_ptr, shape, element_type)
                if on_device
                else _array_at(buffer_ptr, shape, element_type)
            )
        self.outputs[name] = BoundOutput(
            name, self._known_outputs[name], self.session.runtime if on_device else None, given
        )

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to a value of the same shape and type."""
        self._check_name("output", name, self._known_outputs)
        self._check_value("output", name, ortvalue)
        rt = self.session.runtime if isinstance(ortvalue.value, DeviceTensor) else None
        self.outputs[name] = BoundOutput(name, self._known_outputs[name], rt, ortvalue)

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs after a run, in the order of binding."""
        found = [(o.name, o.result) for o in self.outputs.values()]
        missing = [name for name, value in found if value is None]
        if missing:
            raise BindingError(f"output '{missing[0]}' has no value before session.run_with_iobinding(binding)")
        return [value for _, value in found if value is not None]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The values of `get_outputs` as an OrtValueVector."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies of the bound outputs as arrays, in the order of binding."""
        return [_copied(v) for v in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self.inputs.clear()
        self._uploaded.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs."""
        self.outputs.clear()

    def synchronize_inputs(self) -> None:
        """Wait until the device has finished all commands."""
        self.session.runtime.finish()

    synchronize_outputs = synchronize_inputs

    def _check_name(self, what: str, name: str, known: Collection[str]) -> None:
        if name not in known:
            raise BindingError(f"no {what} is named {name!r}; the model's {what}s are {', '.join(known) or '(none)'}")

    def _check_value(self, what: str, name: str, value: Any) -> None:
        if not isinstance(value, OrtValue):
            raise BindingError(
                f"{what} '{name}' is bound to an opalite.OrtValue, got {type(value).__name__}: make one with "
                "OrtValue.ortvalue_from_numpy(array, 'opencl')"
            )
        check_device(what, name, value.value, self.session.runtime)

    def _is_device(self, device_type: str | DeviceInfo, device_id: int | str, what: str) -> bool:
        """Whether the names mean the session's device (True) or the host. Raises BindingError for other devices."""
        rt = self.session.runtime
        if (device_type == DEVICE and device_id == 0) or (device_type in GPU_NAMES and not rt.info.on_host):
            return True
        found = find_device_memory(device_type, device_id)
        if found is not None and found is not rt:
            raise BindingError(f"{what} cannot be on {found.info.title}: the session runs on {rt.info.title}")
        return found is not None

    def _tensor_at(self, word: Any, handle: int, shape: Sequence[int], element_type: Any) -> DeviceTensor:
        if word in GPU_NAMES and handle not in exported_handles:
            raise BindingError(
                f"buffer_ptr {handle!r} is not from OrtValue.data_ptr(): memory of other libraries "
                "cannot be bound to an OpenCL device; copy it to an OrtValue, or bind a cl_mem handle as 'opencl'"
            )
        rt = self.session.runtime
        dtype, sizes = device_dtype(parse_element_type(element_type)), parse_shape(shape)
        _check_address(handle)
        return DeviceTensor(rt, sizes, dtype, wrap_handle(rt, handle, math.prod(sizes) * dtype.itemsize))


class SessionIOBinding(IOBinding):
    """An IOBinding whose methods take an OrtDevice: `SessionIOBinding(session._sess)`."""

    def bind_input(self, name: str, *where: Any) -> None:
        """Bind an input: `bind_input(name, array)` or `bind_input(name, OrtDevice, element_type, shape, pointer)`."""
        if len(where) == 1:
            self.bind_cpu_input(name, where[0])
            return
        device, element_type, shape, pointer = where
        super().bind_input(name, *_place(device), element_type, shape, pointer)

    def bind_output(  # type: ignore[override]
        self,
        name: str,
        device: OrtDevice,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to the device's memory."""
        super().bind_output(name, *_place(device), element_type, shape, buffer_ptr)

    def get_outputs(self) -> OrtValueVector:
        """The bound outputs after a run."""
        return OrtValueVector(super().get_outputs())


def _place(device: OrtDevice) -> tuple[str, int]:
    return device.name, device.device_id()


def _copied(value: OrtValue) -> Any:
    if not value.is_tensor():
        return value.value
    return np.array(value.numpy()) if value.device_name() == HOST else value.numpy()


def check_device(what: str, name: str, value: Any, rt: Runtime) -> None:
    """Raise BindingError for a tensor on another device than that of `rt`, DeviceLostError for a lost tensor."""
    if isinstance(value, DeviceTensor) and value.rt.lost:
        raise DeviceLostError(
            f"{what} '{name}' was on {rt.info.title}, where it was lost ({value.rt.lost}): make it anew"
        )
    if isinstance(value, DeviceTensor) and value.rt is not rt:
        if value.rt.info.id == rt.info.id and value.rt.hints != rt.hints:
            raise BindingError(
                f"{what} '{name}' is in a context of {rt.info.title} with other hints than the session's: bind values "
                "by the session's io_binding(), or set hints for all by OPALITE_PERFORMANCE and OPALITE_PRIORITY"
            )
        raise BindingError(
            f"{what} '{name}' is on {value.rt.info.title}, but the session runs on {rt.info.title}: "
            "pass value.numpy(), or open the session on the device of the value"
        )


def _array_at(address: int, shape: Sequence[int], element_type: Any) -> Array:
    """The caller's host memory as an array."""
    dtype, sizes = parse_element_type(element_type), parse_shape(shape)
    _check_address(address)
    nbytes = math.prod(sizes) * dtype.itemsize
    memory: Array = np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(address))
    return memory.view(dtype).reshape(sizes)


def _check_address(address: Any) -> None:
    if isinstance(address, bool) or not isinstance(address, int | np.integer) or address <= 0:
        raise BindingError(f"buffer_ptr is an address, such as array.ctypes.data, or a cl_mem handle; got {address!r}")
