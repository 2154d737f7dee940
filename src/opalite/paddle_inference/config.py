"""Config: Paddle's settings of a predictor, with those that matter on an OpenCL device."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

from ..errors import OptionError
from ..ir.model_paths import params_of, program_in

_log = logging.getLogger(__name__)


class PrecisionType(IntEnum):
    """Number formats, with Paddle's numbers."""

    Float32 = 0
    Int8 = 1
    Half = 2
    Bfloat16 = 3


_WITHOUT_EFFECT = frozenset(
    (
        *("switch_ir_optim", "switch_ir_debug", "set_optimization_level", "enable_new_ir", "enable_new_executor"),
        *("enable_memory_optim", "enable_mkldnn", "enable_onednn", "disable_mkldnn", "disable_onednn"),
        *("disable_mkldnn_fc_passes", "disable_onednn_fc_passes", "set_mkldnn_cache_capacity", "set_mkldnn_op"),
        *("set_onednn_cache_capacity", "set_onednn_op", "switch_use_feed_fetch_ops", "switch_specify_input_names"),
        *("delete_pass", "enable_profile", "set_optim_cache_dir", "enable_save_optim_model", "use_optimized_model"),
        *("enable_cinn", "disable_onnxruntime", "enable_ort_optimization", "collect_shape_range_info"),
        *("enable_tuned_tensorrt_dynamic_shape", "set_trt_dynamic_shape_info", "enable_tensorrt_varseqlen"),
        *("enable_tensorrt_inspector", "enable_tensorrt_memory_optim", "set_tensorrt_optimization_level"),
        *("exp_disable_tensorrt_ops", "exp_disable_mixed_precision_ops", "exp_enable_mixed_precision_ops"),
        *("exp_enable_use_cutlass", "enable_custom_passes", "set_exec_stream"),
    )
)
"""Settings of Paddle's own passes and kernels, which have no counterpart."""

_REFUSED = {
    "enable_tensorrt_engine": "TensorRT is another engine. Leave the call out: kernels are generated for the device",
    "enable_openvino_engine": "OpenVINO is another engine. Leave the call out: kernels are generated for the device",
    "enable_onnxruntime": "onnxruntime is another engine. Leave the call out",
    "enable_tensorrt_dla": "no OpenCL driver reaches a DLA. Leave the call out",
    "enable_tensorrt_explicit_quantization": "TensorRT is another engine. Leave the call out",
    "enable_xpu": "no OpenCL driver reaches a Kunlun XPU; call enable_use_gpu or disable_gpu",
    "enable_ipu": "no OpenCL driver reaches an IPU; call enable_use_gpu or disable_gpu",
    "enable_custom_device": "a device is chosen by OPALITE_DEVICE, or by enable_use_gpu and its number",
    "enable_mkldnn_int8": "a program is quantised when it is saved; run a quantised one, or InferenceSession's int8",
    "enable_onednn_int8": "a program is quantised when it is saved; run a quantised one, or InferenceSession's int8",
    "enable_mkldnn_bfloat16": "bfloat16 is no format of results; enable_use_gpu takes PrecisionType.Half",
    "enable_onednn_bfloat16": "bfloat16 is no format of results; enable_use_gpu takes PrecisionType.Half",
    "enable_low_precision_io": "inputs and outputs have the program's types; convert them with NumPy",
}
"""Settings that promise what a device cannot keep, with what to do."""


class Config:
    """Settings of a predictor.

    Config("inference.json", "inference.pdiparams"), Config("folder"), or Config() and set_model. Settings without a
    meaning on OpenCL devices are accepted; those that cannot be kept raise OptionError.
    """

    Precision = PrecisionType

    def __init__(self, *model: str | os.PathLike[str] | Config) -> None:
        """Initialise with a folder, or with a program and its parameters."""
        self._program, self._params, self._folder = "", "", ""
        self._buffers: tuple[bytes, bytes] | None = None
        self._gpu: tuple[int, PrecisionType] | None = None
        self._flags = {"ir_optim": True, "glog_info_disabled": False, "mkldnn_enabled": True}
        self._threads = 1
        if len(model) == 1 and isinstance(model[0], Config):
            vars(self).update(vars(model[0]))
        elif model:
            self.set_model(*model)

    # Model

    def set_model(self, model: str | os.PathLike[str], params: str | os.PathLike[str] = "") -> None:
        """Set the folder, or program and parameters."""
        self._buffers = None
        if params:
            self._program, self._params, self._folder = os.fspath(model), os.fspath(params), ""
            return
        path = Path(model)
        program = path if path.is_file() else program_in(path)
        self._folder = os.fspath(model) if path.is_dir() else ""
        self._program = os.fspath(program or path)
        found = params_of(program) if program is not None else None
        self._params = "" if found is None else os.fspath(found)

    def set_prog_file(self, path: str) -> None:
        """Set the program."""
        self._program, self._folder = path, ""

    def set_params_file(self, path: str) -> None:
        """Set the parameters."""
        self._params = path

    def set_model_buffer(self, program: bytes | str, size: int, params: bytes | str, params_size: int) -> None:
        """Set the contents of program and parameters."""
        texts = [b if isinstance(b, bytes) else b.encode("latin-1") for b in (program, params)]
        self._buffers = (texts[0][:size], texts[1][:params_size])

    def model_dir(self) -> str:
        """Return the folder; '' if program and parameters were given."""
        return self._folder

    def prog_file(self) -> str:
        """Return the program's path."""
        return self._program

    def params_file(self) -> str:
        """Return the parameters' path."""
        return self._params

    def model_from_memory(self) -> bool:
        """Whether contents were given instead of paths."""
        return self._buffers is not None

    # Device

    def enable_use_gpu(self, memory_mb: int, device_id: int = 0, precision: Any = PrecisionType.Float32) -> None:
        """Run on GPU number `device_id`; with Half, in half precision. Memory is allocated as it is needed."""
        kind = PrecisionType(int(precision))
        if kind not in (PrecisionType.Float32, PrecisionType.Half):
            raise OptionError(f"enable_use_gpu takes PrecisionType.Float32 or Half here, got {kind.name}")
        self._gpu = (int(device_id), kind)

    def disable_gpu(self) -> None:
        """Run on the CPU."""
        self._gpu = None

    def use_gpu(self) -> bool:
        """Whether a GPU was asked for."""
        return self._gpu is not None

    def gpu_device_id(self) -> int:
        """Return the number of the GPU; 0 if none was asked for."""
        return 0 if self._gpu is None else self._gpu[0]

    def set_cpu_math_library_num_threads(self, count: int) -> None:
        """Set what cpu_math_library_num_threads returns; the OpenCL driver decides on threads."""
        self._threads = int(count)

    def cpu_math_library_num_threads(self) -> int:
        """Return the number that was set."""
        return self._threads

    # Others

    def disable_glog_info(self) -> None:
        """Accept the call; Opalite logs by Python's logging."""
        self._flags["glog_info_disabled"] = True

    def summary(self) -> str:
        """Return the settings as text."""
        rows = {
            "program": "given contents" if self._buffers else self._program,
            "parameters": "given contents" if self._buffers else self._params,
            "device": f"gpu:{self._gpu[0]}" if self._gpu else "cpu",
            "precision": self._gpu[1].name if self._gpu else "Float32",
        }
        return "".join(f"{name:12}{value}\n" for name, value in rows.items())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _REFUSED:

            def refuse(*args: Any, **settings: Any) -> None:
                raise OptionError(f"Config.{name} has no counterpart on OpenCL devices: {_REFUSED[name]}")

            return refuse
        if name in _WITHOUT_EFFECT:
            return lambda *args, **settings: _log.debug("Config.%s has no effect on OpenCL devices", name)
        if name.endswith("_enabled") or name in (
            "ir_optim",
            "glog_info_disabled",
            "use_xpu",
            "tuned_tensorrt_dynamic_shape",
        ):
            return lambda: self._flags.get(name, False)
        raise AttributeError(f"Config has no setting '{name}'")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_REFUSED, *_WITHOUT_EFFECT})
