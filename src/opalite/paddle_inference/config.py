"""Config: Paddle's settings of a predictor, with those that matter on an OpenCL device."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
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
        *("switch_ir_debug", "set_optimization_level", "enable_new_executor", "enable_memory_optim"),
        *("disable_mkldnn_fc_passes", "disable_onednn_fc_passes", "set_mkldnn_cache_capacity", "set_mkldnn_op"),
        *("set_onednn_cache_capacity", "set_onednn_op", "set_bfloat16_op"),
        *("delete_pass", "enable_profile", "set_optim_cache_dir", "enable_save_optim_model", "use_optimized_model"),
        *("enable_cinn", "disable_onnxruntime", "enable_ort_optimization", "mark_trt_engine_outputs"),
        *("enable_tuned_tensorrt_dynamic_shape", "set_trt_dynamic_shape_info", "enable_tensorrt_varseqlen"),
        *("enable_tensorrt_inspector", "enable_tensorrt_memory_optim", "set_tensorrt_optimization_level"),
        *("exp_disable_tensorrt_ops", "exp_disable_tensorrt_subgraph", "exp_disable_tensorrt_dynamic_shape_ops"),
        *("exp_specify_tensorrt_subgraph_precision", "exp_sparse_conv_using_buffer"),
        *("exp_disable_mixed_precision_ops", "exp_enable_mixed_precision_ops"),
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
    **dict.fromkeys(("set_xpu_config", "set_xpu_device_id"), "no OpenCL driver reaches a Kunlun XPU"),
    "enable_ipu": "no OpenCL driver reaches an IPU; call enable_use_gpu or disable_gpu",
    **dict.fromkeys(("set_ipu_config", "set_ipu_custom_info", "load_ipu_config"), "no OpenCL driver reaches an IPU"),
    "enable_custom_device": "a device is chosen by OPALITE_DEVICE, or by enable_use_gpu and its number",
    "enable_mkldnn_int8": "a program is quantised when it is saved; run a quantised one, or InferenceSession's int8",
    "enable_onednn_int8": "a program is quantised when it is saved; run a quantised one, or InferenceSession's int8",
    "enable_mkldnn_bfloat16": "bfloat16 is no format of results; enable_use_gpu takes PrecisionType.Half",
    "enable_onednn_bfloat16": "bfloat16 is no format of results; enable_use_gpu takes PrecisionType.Half",
    "enable_low_precision_io": "inputs and outputs have the program's types; convert them with NumPy",
}
"""Settings that promise what a device cannot keep, with what to do."""


_SHOWN: dict[str, tuple[str, bool]] = {
    "switch_ir_optim": ("ir_optim", True),
    "enable_mkldnn": ("mkldnn_enabled", True),
    "enable_onednn": ("mkldnn_enabled", True),
    "disable_mkldnn": ("mkldnn_enabled", False),
    "disable_onednn": ("mkldnn_enabled", False),
    "disable_glog_info": ("glog_info_disabled", True),
    "switch_specify_input_names": ("specify_input_name", True),
    "switch_use_feed_fetch_ops": ("use_feed_fetch_ops_enabled", True),
    "enable_new_ir": ("new_ir_enabled", True),
}
"""Settings without effect that a question shows: the question, and its answer after a call without an argument."""

_ANSWERS: dict[str, Any] = {
    **dict.fromkeys(("mkldnn_enabled", "onednn_enabled", "ir_optim"), True),
    **dict.fromkeys(
        ("glog_info_disabled", "specify_input_name", "new_ir_enabled", "use_feed_fetch_ops_enabled"), False
    ),
    **dict.fromkeys(("use_xpu", "tuned_tensorrt_dynamic_shape", "trt_allow_build_at_runtime"), False),
    **{"shape_range_info_collected": False, "shape_range_info_path": ""},
    **{"xpu_device_id": 0, "tensorrt_optimization_level": 3, "tensorrt_precision_mode": PrecisionType.Float32},
}
"""Answers of questions before any setting; others that end in _enabled are False."""


class PassBuilder:
    """Paddle's list of passes: programs delete some that were wrong in Paddle. Opalite has passes of its own."""

    def __init__(self) -> None:
        self._passes: list[str] = []

    def all_passes(self) -> list[str]:
        """Return the passes that were added."""
        return list(self._passes)

    def append_pass(self, name: str) -> None:
        """Add a name."""
        self._passes.append(name)

    def insert_pass(self, index: int, name: str) -> None:
        """Add a name before others."""
        self._passes.insert(index, name)

    def delete_pass(self, which: str | int) -> None:
        """Remove a name, if it is there."""
        self._passes = [n for i, n in enumerate(self._passes) if which not in (i, n)]

    def set_passes(self, names: Sequence[str]) -> None:
        """Set all names."""
        self._passes = list(names)

    def turn_on_debug(self) -> None:
        """Accept the call."""

    def debug_string(self) -> str:
        """Return the names, one a line."""
        return "".join(f"{name}\n" for name in self._passes)


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
        self._answers: dict[str, Any] = dict(_ANSWERS)
        self._memory_mb = 100
        self._threads = 1
        if len(model) == 1 and isinstance(model[0], Config):
            vars(self).update({**vars(model[0]), "_answers": dict(model[0]._answers)})
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
        self._gpu, self._memory_mb = (int(device_id), kind), int(memory_mb)

    def disable_gpu(self) -> None:
        """Run on the CPU."""
        self._gpu = None

    def use_gpu(self) -> bool:
        """Whether a GPU was asked for."""
        return self._gpu is not None

    def gpu_device_id(self) -> int:
        """Return the number of the GPU; 0 if none was asked for."""
        return 0 if self._gpu is None else self._gpu[0]

    def memory_pool_init_size_mb(self) -> int:
        """Return what enable_use_gpu was told; memory is allocated as it is needed."""
        return self._memory_mb

    def fraction_of_gpu_memory_for_pool(self) -> float:
        """Return 0: there is no pool."""
        return 0.0

    def set_cpu_math_library_num_threads(self, count: int) -> None:
        """Set what cpu_math_library_num_threads returns; the OpenCL driver decides on threads."""
        self._threads = int(count)

    def cpu_math_library_num_threads(self) -> int:
        """Return the number that was set."""
        return self._threads

    # Others

    def collect_shape_range_info(self, path: str) -> None:
        """Accept the call; programs take all sizes, so that nothing is written."""
        self._answers.update(shape_range_info_path=path, shape_range_info_collected=True)

    def pass_builder(self) -> PassBuilder:
        """Return a list of passes that may be edited, without effect."""
        return PassBuilder()

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
        if name in _SHOWN:
            question, value = _SHOWN[name]

            def show(given: Any = value) -> None:
                self._answers[question] = bool(given)
                if question == "mkldnn_enabled":
                    self._answers["onednn_enabled"] = bool(given)

            return show
        if name in _WITHOUT_EFFECT:
            return lambda *args, **settings: _log.debug("Config.%s has no effect on OpenCL devices", name)
        if name.endswith("_enabled") or name in _ANSWERS:
            return lambda: self._answers.get(name, False)
        raise AttributeError(f"Config has no setting '{name}'")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_REFUSED, *_WITHOUT_EFFECT, *_SHOWN, *_ANSWERS})
