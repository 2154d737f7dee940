"""The module's functions, its C layer, the backend."""

from __future__ import annotations

import importlib
import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

import onnx

from . import models
from .idiom import differs, idiom, refused
from .models import X


@idiom
def versions_are_texts(ort: Any, tmp: Path) -> Any:
    return [
        type(v) for v in (ort.__version__, ort.get_version_string(), ort.version, ort.package_name, ort.cuda_version)
    ]


@differs("Opalite's own version")
def version(ort: Any, tmp: Path) -> Any:
    return ort.__version__


@idiom
def build_info(ort: Any, tmp: Path) -> Any:
    return "Build Info" in ort.get_build_info()


@idiom
def device(ort: Any, tmp: Path) -> Any:
    return ort.get_device() in ("CPU", "GPU")


@idiom
def cpu_provider_is_there(ort: Any, tmp: Path) -> Any:
    return "CPUExecutionProvider" in ort.get_available_providers(), ort.get_all_providers()[-1]


@differs("OpenCL's and the CPU's")
def providers(ort: Any, tmp: Path) -> Any:
    return ort.get_available_providers()


@idiom
def cuda_if_it_is_there(ort: Any, tmp: Path) -> Any:
    wanted = ["CUDAExecutionProvider"] if "CUDAExecutionProvider" in ort.get_available_providers() else []
    session = ort.InferenceSession(models.multiply(), providers=[*wanted, "CPUExecutionProvider"])
    return session.get_providers(), session.run(None, {"X": X})


@idiom
def devices_of_providers(ort: Any, tmp: Path) -> Any:
    found = ort.get_ep_devices()
    return len(found) > 0, type(found[0].ep_name), type(found[0].device.vendor), type(found[0].device.type).__name__


@idiom
def severity(ort: Any, tmp: Path) -> Any:
    ort.set_default_logger_severity(4)
    ort.set_default_logger_verbosity(0)


@idiom
def severity_out_of_range(ort: Any, tmp: Path) -> Any:
    ort.set_default_logger_severity(9)


@idiom
def severity_of_a_text(ort: Any, tmp: Path) -> Any:
    ort.set_default_logger_severity("warning")


@idiom
def messages_by_callback(ort: Any, tmp: Path) -> Any:
    """Those of a session that is made, with its own severity and its name."""
    told: list[Any] = []
    made = ort.set_default_logger_callback(lambda *message: told.append(message), severity=4)
    try:
        options = ort.SessionOptions()
        options.log_severity_level, options.logid = 1, "mine"
        ort.InferenceSession(models.multiply(), options, providers=["CPUExecutionProvider"])
    finally:
        ort.set_default_logger_callback(None)
        ort.set_default_logger_severity(4)
    of_session = [m for m in told if m[2] == "mine"]
    severity, category, logid, where, message = of_session[0]
    return made, severity, logid, category != "", ":" in where, message != "", {m[0] for m in of_session} <= {1, 2}


@idiom
def callback_that_is_a_text(ort: Any, tmp: Path) -> Any:
    ort.set_default_logger_callback("print")


@idiom
def callback_with_a_severity_out_of_range(ort: Any, tmp: Path) -> Any:
    ort.set_default_logger_callback(None, 9)


@idiom
def callback_with_a_severity_of_a_text(ort: Any, tmp: Path) -> Any:
    ort.set_default_logger_callback(print, "warning")


@idiom
def telemetry(ort: Any, tmp: Path) -> Any:
    ort.disable_telemetry_events()
    ort.enable_telemetry_events()
    ort.disable_telemetry_events()


@idiom
def seed(ort: Any, tmp: Path) -> Any:
    ort.set_seed(1234)


@idiom
def seed_of_a_text(ort: Any, tmp: Path) -> Any:
    ort.set_seed("a")


@idiom
def collective_operators(ort: Any, tmp: Path) -> Any:
    return ort.has_collective_ops()


@idiom
def preload(ort: Any, tmp: Path) -> Any:
    ort.preload_dlls()


@idiom
def debug_info(ort: Any, tmp: Path) -> Any:
    text = io.StringIO()
    with redirect_stdout(text):
        ort.print_debug_info()
    return text.getvalue() != ""


@idiom
def allocators(ort: Any, tmp: Path) -> Any:
    where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(where, None)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    return ort.InferenceSession(models.multiply(), options, providers=["CPUExecutionProvider"]).run(None, {"X": X})


@idiom
def enumerations(ort: Any, tmp: Path) -> Any:
    names = "GraphOptimizationLevel ExecutionMode ExecutionOrder OrtAllocatorType OrtMemType OrtSparseFormat "
    names += "OrtDeviceMemoryType OrtMemoryInfoDeviceType OrtHardwareDeviceType OrtExecutionProviderDevicePolicy "
    names += "OrtCompileApiFlags ModelPackageWriteMode"
    return {n: {k: int(v) for k, v in getattr(ort, n).__members__.items()} for n in names.split()}


@idiom
def level_compared(ort: Any, tmp: Path) -> Any:
    level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    return (
        level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        level != ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        level.name,
    )


@idiom
def c_layer(ort: Any, tmp: Path) -> Any:
    c = importlib.import_module(f"{ort.__name__}.capi._pybind_state")
    options = c.get_default_session_options()
    return options.log_severity_level, c.get_device() in ("CPU", "GPU"), callable(c.OrtValue.ortvalue_from_numpy)


@idiom
def arguments_of_providers(ort: Any, tmp: Path) -> Any:
    layer = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_inference_collection")
    check = layer.check_and_normalize_provider_args
    known = ["a", "b", "c"]
    return [
        check(None, None, known),
        check(["a"], None, known),
        check([("a", {1: 2}), "b"], None, known),
        check(["a", "b", "a"], [{"x": 1}, {}, {"y": 2}], known),
        check(["d"], None, known),
    ]


@idiom
def argument_of_providers_that_is_a_number(ort: Any, tmp: Path) -> Any:
    layer = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_inference_collection")
    layer.check_and_normalize_provider_args(3, None, ["a"])


@differs("the default of the backend is the best device")
def backend_by_path(ort: Any, tmp: Path) -> Any:
    """The same numbers, in a named tuple."""
    backend = importlib.import_module(f"{ort.__name__}.backend")
    path = tmp / "m.onnx"
    path.write_bytes(models.multiply())
    return type(backend.prepare(str(path)).run(X)).__name__


@idiom
def backend_of_models(ort: Any, tmp: Path) -> Any:
    backend = importlib.import_module(f"{ort.__name__}.backend")
    path = tmp / "m.onnx"
    path.write_bytes(models.multiply())
    model = onnx.load_from_string(models.multiply())
    session = ort.InferenceSession(models.multiply(), providers=["CPUExecutionProvider"])
    found = [backend.prepare(m).run([X])[0] for m in (str(path), models.multiply(), model, session)]
    return found, backend.run(model, X, device="CPU")[0], backend.prepare(backend.prepare(model)).run(X)[0]


@idiom
def backend_of_a_number(ort: Any, tmp: Path) -> Any:
    rep = importlib.import_module(f"{ort.__name__}.backend").prepare(models.cast(1, 7, ()), device="CPU")
    return rep.run(np.float32(3))[0], rep.run([np.float32(4)])[0]


@idiom
def backend_options(ort: Any, tmp: Path) -> Any:
    backend = importlib.import_module(f"{ort.__name__}.backend")
    rep = backend.prepare(models.multiply(), device="CPU", intra_op_num_threads=1, some_other_backend=5)
    return rep.run([X], logid="mine")[0], backend.supports_device("CPU"), backend.supports_device("TPU")


@idiom
def backend_option_that_is_not_taken(ort: Any, tmp: Path) -> Any:
    importlib.import_module(f"{ort.__name__}.backend").prepare(models.multiply(), enable_profiling=True)


@idiom
def backend_run_option_that_is_not_taken(ort: Any, tmp: Path) -> Any:
    importlib.import_module(f"{ort.__name__}.backend").prepare(models.multiply()).run([X], terminate=True)


@idiom
def loaded_by_every_name(ort: Any, tmp: Path) -> Any:
    return [issubclass(ort.InferenceSession, object), ort.capi.onnxruntime_pybind11_state.Fail.__name__]


@refused("libraries of providers")
def provider_library(ort: Any, tmp: Path) -> Any:
    ort.register_execution_provider_library("mine", str(tmp / "libmine.so"))


@refused("LoRA adapters")
def adapters(ort: Any, tmp: Path) -> Any:
    ort.AdapterFormat().set_parameters({"a": ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))})


@refused("EPContext models")
def models_compiled_ahead(ort: Any, tmp: Path) -> Any:
    ort.ModelCompiler(ort.SessionOptions(), models.multiply()).compile_to_file(str(tmp / "m_ctx.onnx"))


@refused("model packages")
def packages(ort: Any, tmp: Path) -> Any:
    options = ort.ModelPackageOptions(ort.SessionOptions())
    ort.ModelPackageContext(str(tmp)).select_component("model", options).create_session()


@refused("model packages")
def package_written(ort: Any, tmp: Path) -> Any:
    ort.ModelPackage.open(str(tmp)).commit(str(tmp / "copy"), ort.ModelPackageWriteMode.DENSE)
