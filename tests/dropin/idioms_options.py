"""SessionOptions, RunOptions, profiles, written models.

Longer than 400 lines: a list of idioms.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np

import onnx

from . import models
from .idiom import differs, idiom, refused
from .models import W, X

CPU = ["CPUExecutionProvider"]


@idiom
def defaults_of_session_options(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    names = (
        "enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse enable_profiling execution_mode execution_order "
        "graph_optimization_level inter_op_num_threads intra_op_num_threads log_severity_level log_verbosity_level "
        "logid optimized_model_filepath profile_file_prefix use_deterministic_compute use_per_session_threads"
    )
    return [(n, getattr(o, n)) for n in names.split()]


@idiom
def set_every_session_option(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.intra_op_num_threads = 2
    o.inter_op_num_threads = 1
    o.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    o.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    o.enable_mem_pattern = False
    o.enable_mem_reuse = False
    o.enable_cpu_mem_arena = False
    o.use_deterministic_compute = True
    o.use_per_session_threads = True
    o.log_severity_level = 3
    o.log_verbosity_level = 1
    o.logid = "mine"
    session = ort.InferenceSession(models.multiply(), o, providers=CPU)
    told = session.get_session_options()
    return told.intra_op_num_threads, told.graph_optimization_level, told.logid, session.run(None, {"X": X})


@idiom
def levels_of_optimisation(ort: Any, tmp: Path) -> Any:
    levels = ort.GraphOptimizationLevel
    found = []
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_EXTENDED, levels.ORT_ENABLE_ALL):
        o = ort.SessionOptions()
        o.graph_optimization_level = level
        found.append((int(level), str(level), repr(level)))
        found.append(ort.InferenceSession(models.chain(), o, providers=CPU).run(None, {"X": X}))
    return found


@idiom
def level_by_a_number(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().graph_optimization_level = 99


@idiom
def threads_by_a_text(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().intra_op_num_threads = "2"


@idiom
def file_name_by_a_number(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().profile_file_prefix = 5


@idiom
def switch_by_a_number(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.enable_mem_pattern = 0
    return o.enable_mem_pattern


@idiom
def unknown_session_option(ort: Any, tmp: Path) -> Any:
    try:
        ort.SessionOptions().no_such_option = 1
    except AttributeError:
        return "AttributeError"
    return ""


@idiom
def options_are_copied(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.logid = "before"
    session = ort.InferenceSession(models.multiply(), o, providers=CPU)
    o.logid = "after"
    return session.get_session_options().logid, session.get_session_options() is o


@idiom
def options_serve_several_sessions(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    return [ort.InferenceSession(models.multiply(), o, providers=CPU).run(None, {"X": X}) for _ in range(2)]


@idiom
def config_entries(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.add_session_config_entry("CONFIG_KEY", "CONFIG_VAL")
    o.add_session_config_entry("session.intra_op.allow_spinning", "0")
    ort.InferenceSession(models.multiply(), o, providers=CPU)
    return o.get_session_config_entry("CONFIG_KEY")


@idiom
def config_entry_that_is_not_there(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().get_session_config_entry("INVALID_KEY")


@idiom
def config_entry_of_a_number(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().add_session_config_entry("key", 1)


@idiom
def config_entry_without_a_key(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().add_session_config_entry("", "1")


# The model


@idiom
def sizes_by_name(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_name("rows", 3)
    o.add_free_dimension_override_by_name("inner", 2)
    session = ort.InferenceSession(models.product(), sess_options=o, providers=CPU)
    shapes = [a.shape for a in (*session.get_inputs(), *session.get_outputs())]
    return shapes, session.run(None, {"X": X, "Z": np.ones((2, 4), np.float32)})


@idiom
def sizes_by_denotation(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    o.add_free_dimension_override_by_denotation("DATA_CHANNEL", 5)
    return ort.InferenceSession(models.denoted(), o, providers=CPU).get_inputs()[0].shape


@idiom
def sizes_that_the_feed_lacks(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_name("rows", 7)
    session = ort.InferenceSession(models.product(), o, providers=CPU)
    session.run(None, {"X": X, "Z": np.ones((2, 4), np.float32)})


@idiom
def sizes_of_names_that_are_not_there(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_name("nothing", 7)
    return [a.shape for a in ort.InferenceSession(models.product(), o, providers=CPU).get_inputs()]


@idiom
def sizes_given_twice(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_name("rows", 3)
    o.add_free_dimension_override_by_name("rows", 5)
    return ort.InferenceSession(models.product(), o, providers=CPU).get_inputs()[0].shape


@differs("a negative size is refused")
def sizes_below_zero(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().add_free_dimension_override_by_name("rows", -1)


@idiom
def initializers_replaced(ort: Any, tmp: Path) -> Any:
    value = ort.OrtValue.ortvalue_from_numpy(np.full((3, 2), 9, np.float32))
    o = ort.SessionOptions()
    o.add_initializer("W", value)
    o.add_initializer("of another model", value)
    return ort.InferenceSession(models.multiply(), sess_options=o, providers=CPU).run(["Y"], {"X": X})


@idiom
def initializer_that_is_an_array(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().add_initializer("W", W)


@differs("refused when the model is loaded, not when it runs")
def initializer_of_another_shape(ort: Any, tmp: Path) -> Any:
    value = ort.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32))
    o = ort.SessionOptions()
    o.add_initializer("W", value)
    ort.InferenceSession(models.multiply(), o, providers=CPU).run(None, {"X": X})


@idiom
def external_initializers(ort: Any, tmp: Path) -> Any:
    value = ort.OrtValue.ortvalue_from_numpy(W)
    o = ort.SessionOptions()
    o.add_external_initializers(["W"], [value])
    return ort.InferenceSession(models.external("not_there.bin"), o, providers=CPU).run(None, {"X": X})


@idiom
def external_initializers_in_memory(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    data = W.tobytes()  # onnxruntime reads it where it lies
    o.add_external_initializers_from_files_in_memory(["data.bin"], [data], [len(data)])
    path = tmp / "m.onnx"
    path.write_bytes(models.external("data.bin"))
    return ort.InferenceSession(str(path), o, providers=CPU).run(None, {"X": X})


@idiom
def external_initializers_of_a_folder(ort: Any, tmp: Path) -> Any:
    (tmp / "data.bin").write_bytes(W.tobytes())
    o = ort.SessionOptions()
    o.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp))
    return ort.InferenceSession(models.external("data.bin"), o, providers=CPU).run(None, {"X": X})


@idiom
def model_written(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.optimized_model_filepath = str(tmp / "optimized.onnx")
    ort.InferenceSession(models.chain(), o, providers=CPU)
    onnx.checker.check_model(onnx.load(o.optimized_model_filepath))
    return ort.InferenceSession(o.optimized_model_filepath, providers=CPU).run(None, {"X": X})


@idiom
def model_written_with_a_data_file(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.optimized_model_filepath = str(tmp / "optimized.onnx")
    o.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    o.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "20")
    ort.InferenceSession(models.multiply(), o, providers=CPU)
    ran = ort.InferenceSession(o.optimized_model_filepath, providers=CPU).run(None, {"X": X})
    return (tmp / "weights.bin").exists(), ran


@idiom
def model_written_nowhere(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.optimized_model_filepath = str(tmp / "not" / "there" / "optimized.onnx")
    ort.InferenceSession(models.multiply(), o, providers=CPU)


@refused("compiled operators cannot run on OpenCL devices")
def custom_operators(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().register_custom_ops_library(str(tmp / "libcustom.so"))


@refused("there are no EPContext nodes")
def ep_context_read(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().set_ep_context_data_read_func(print, 100)


@refused("a device is named instead")
def delegate_that_picks_devices(ort: Any, tmp: Path) -> Any:
    ort.SessionOptions().set_provider_selection_policy_delegate(lambda *a: [])


@idiom
def providers_of_options(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    before = o.has_providers()
    o.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    return before, o.has_providers(), ort.InferenceSession(models.multiply(), o).run(None, {"X": X})


@idiom
def device_of_options(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.add_provider_for_devices([ort.get_ep_devices()[0]], {})
    return o.has_providers(), ort.InferenceSession(models.multiply(), o).run(None, {"X": X})


@idiom
def loading_called_off(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.set_load_cancellation_flag(True)
    try:
        ort.InferenceSession(models.multiply(), o, providers=CPU, enable_fallback=0)
    except Exception as e:
        return type(e).__name__
    return ""


# Profiles


@idiom
def profile(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.enable_profiling = True
    o.profile_file_prefix = str(tmp / "mine")
    session = ort.InferenceSession(models.multiply(), o, providers=CPU)
    for _ in range(3):
        session.run(None, {"X": X})
    path = session.end_profiling()
    lines = Path(path).read_text().splitlines()
    assert lines[0] == "["
    for line in lines[1:-1]:
        assert all(tag in line for tag in ("pid", "dur", "ts", "ph", "X", "name", "args") if line != "]")
    events = json.loads(Path(path).read_text())
    runs = [e for e in events if e["name"] == "model_run"]
    kernels = [e for e in events if e["cat"] == "Node" and e["name"].endswith("kernel_time")]
    return path.startswith(str(tmp / "mine")), path.endswith(".json"), len(runs), len(kernels)


@idiom
def profile_that_was_not_asked_for(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    return session.get_profiling_start_time_ns(), session.end_profiling()


@idiom
def profiles_begin_one_after_another(ort: Any, tmp: Path) -> Any:
    starts = []
    for i in range(3):
        o = ort.SessionOptions()
        o.enable_profiling = True
        o.profile_file_prefix = str(tmp / f"p{i}")
        session = ort.InferenceSession(models.multiply(), o, providers=CPU)
        starts.append(session.get_profiling_start_time_ns())
        session.end_profiling()
    return starts == sorted(starts), starts[0] > 0


@idiom
def profile_ended_twice(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.enable_profiling = True
    o.profile_file_prefix = str(tmp / "p")
    session = ort.InferenceSession(models.multiply(), o, providers=CPU)
    return session.end_profiling() != "", session.end_profiling(), session.run(None, {"X": X})


# Runs


@idiom
def defaults_of_run_options(ort: Any, tmp: Path) -> Any:
    o = ort.RunOptions()
    names = "log_severity_level log_verbosity_level logid only_execute_path_to_fetches terminate"
    return [(n, getattr(o, n)) for n in names.split()]


@idiom
def run_with_options(ort: Any, tmp: Path) -> Any:
    o = ort.RunOptions()
    o.logid = "tag"
    o.log_severity_level = 3
    o.only_execute_path_to_fetches = True
    a = np.arange(10, dtype=np.float32)
    session = ort.InferenceSession(models.two_outputs(), providers=CPU)
    return [session.run([n], {"A": a, "B": a * 3}, o) for n in ("sum", "difference")]


@idiom
def run_called_off(ort: Any, tmp: Path) -> Any:
    o = ort.RunOptions()
    o.terminate = True
    ort.InferenceSession(models.multiply(), providers=CPU).run(None, {"X": X}, o)


@idiom
def run_after_one_that_was_called_off(ort: Any, tmp: Path) -> Any:
    o = ort.RunOptions()
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    o.terminate = True
    try:
        session.run(None, {"X": X}, run_options=o)
    except Exception:
        o.terminate = False
    return session.run(None, {"X": X}, run_options=o)


@idiom
def run_config_entries(ort: Any, tmp: Path) -> Any:
    o = ort.RunOptions()
    o.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    told = o.get_run_config_entry("memory.enable_memory_arena_shrinkage")
    return told, ort.InferenceSession(models.multiply(), providers=CPU).run(None, {"X": X}, o)


@idiom
def run_config_entry_that_is_not_there(ort: Any, tmp: Path) -> Any:
    ort.RunOptions().get_run_config_entry("INVALID_KEY")


@idiom
def run_options_of_another_type(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), providers=CPU).run(None, {"X": X}, {"logid": "a"})


@differs("onnxruntime's objects cannot be copied")
def copy_of_options(ort: Any, tmp: Path) -> Any:
    o = ort.SessionOptions()
    o.logid = "mine"
    return copy.deepcopy(o).logid


@refused("LoRA adapters")
def run_with_an_adapter(ort: Any, tmp: Path) -> Any:
    ort.RunOptions().add_active_adapter(ort.LoraAdapter())
