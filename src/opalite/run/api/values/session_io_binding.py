"""SessionIOBinding: onnxruntime's internal binding class, whose methods take an OrtDevice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..options.ort_devices import OrtDevice
from .io_binding import IOBinding
from .ort_value_vector import OrtValueVector

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession


class SessionIOBinding(IOBinding):
    """An IOBinding whose methods take an OrtDevice: `SessionIOBinding(session._sess)`."""

    def __init__(self, session: InferenceSession) -> None:
        super().__init__(session)

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
