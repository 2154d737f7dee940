"""Functions that open a session: check arguments, choose the device, open the model, write the optimized model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import knobs
from ....cl.device.enumerate_devices import list_all
from ....errors import InputTypeError, OptionError
from ....ir.device.device_info import DeviceInfo
from ....ir.model_edits import ModelEdits
from ....ir.model_paths import program_in
from ....plan.bundle.bundle import SUFFIX, is_bundle
from ....status import ModelLoadCanceled
from ...model.background.graph_compiler import Compiler
from ...model.compile_options import CompileOptions, parse_precision, parse_tolerance
from ...model.model_interface import Model
from ...model.onnx_model import OnnxModel
from ..options.execution_providers import OPENCL, DeviceChoice, ProviderRequest, choose, request_by_policy
from ..options.session_options import DATA_FILE, DATA_FILE_FROM, NO_FALLBACK, SessionOptions

if TYPE_CHECKING:
    from ...precision.auto_model import AutoModel
    from ..diagnostics.chrome_trace import Profiler

ModelSource = str | os.PathLike[str] | bytes


def check_model_source(model: Any) -> ModelSource:
    """The model's path or bytes. Raises InputTypeError for anything else."""
    if isinstance(model, bytearray | memoryview):
        return bytes(model)
    if isinstance(model, str) and not model:
        raise InputTypeError("a model is a path or bytes, got an empty text")
    if isinstance(model, str | os.PathLike):
        return program_in(model) or model
    if isinstance(model, bytes):
        return model
    hint = "; pass model.SerializeToString()" if hasattr(model, "SerializeToString") else ""
    raise InputTypeError(f"a model is a path or bytes, got {type(model).__name__}{hint}")


def describe_source(model: ModelSource) -> str:
    """The model's name in log messages."""
    return f"a model of {len(model)} bytes" if isinstance(model, bytes) else f"'{os.fspath(model)}'"


def choose_device(arguments: Mapping[str, Any], requested: ProviderRequest, options: SessionOptions) -> DeviceChoice:
    """Choose the device by the argument `device`, else by the providers, else by the options' providers."""
    if options._cancelled:
        raise ModelLoadCanceled("SessionOptions.set_load_cancellation_flag has cancelled loading")
    listed: list[DeviceInfo] = []

    def devices() -> Sequence[DeviceInfo]:
        if not listed:
            listed.extend(found.info for found in list_all().devices if found.usable)
        return listed

    names, provider_options = requested
    if not names and options._providers:
        names, provider_options = list(options._providers), list(options._providers.values())
    device, default = arguments["device"], knobs.get("OPALITE_DEVICE")
    if device is not None:
        own = [o for n, o in zip(names, provider_options, strict=True) if n == OPENCL]
        chosen = choose(([OPENCL], own[:1]), default, devices) if own else DeviceChoice()
        chosen.device = device
        return chosen
    chosen = choose((names, provider_options), default, devices)
    if chosen.device is None and default is None and not names:
        chosen.device = request_by_policy(options._policy, devices()) if options.has_providers() else None
    return chosen


def parse_strict(choice: DeviceChoice, options: SessionOptions) -> bool:
    """Whether the options forbid nodes on the host. Raises OptionError for values other than a boolean."""
    requested = choice.options.get("strict", options._config.get(NO_FALLBACK, "0"))
    if requested.lower() not in ("0", "1", "true", "false"):
        raise OptionError(f"'strict' and '{NO_FALLBACK}' are 0 or 1, got {requested!r}")
    return requested.lower() in ("1", "true")


def compile_options(given: Mapping[str, Any], choice: DeviceChoice, options: SessionOptions) -> CompileOptions:
    """The options from the session's arguments, else from the provider's options, else from the environment."""
    return CompileOptions(
        precision=parse_precision(given["precision"] or choice.options.get("precision")),
        memory=given["memory"] or choice.options.get("memory") or str(knobs.get("OPALITE_MEMORY")),
        tune=given["tune"] or choice.options.get("tune") or str(knobs.get("OPALITE_TUNE")),
        strict=given["strict"] or parse_strict(choice, options),
        tolerance=parse_tolerance(
            choice.options.get("tolerance") if given["tolerance"] is None else given["tolerance"]
        ),
        trust=bool(knobs.get("OPALITE_TRUST_BUNDLES") if given["trust"] is None else given["trust"]),
    )


def make_profiler(options: SessionOptions) -> Profiler | None:
    """A recorder of runs if the options enable profiling."""
    if not options.enable_profiling:
        return None
    from ..diagnostics.chrome_trace import Profiler

    return Profiler(options.profile_file_prefix)


def open_model(path_or_bytes: ModelSource, compiler: Compiler, edits: ModelEdits) -> tuple[Model, AutoModel | None]:
    """Open a bundle or an ONNX model; the second value is the same model if it decides its precision itself."""
    if not isinstance(path_or_bytes, bytes) and is_bundle(path_or_bytes):
        from ...model.bundle_model import BundleModel

        if edits:
            raise OptionError(
                f"{path_or_bytes} is compiled: sizes and initializers are given where the .onnx file is compiled"
            )
        return BundleModel(path_or_bytes, compiler), None
    if compiler.options.precision != "auto":
        return OnnxModel(path_or_bytes, compiler, edits), None
    from ...precision.auto_model import AutoModel, why_not_half

    if why_not_half(compiler.rt.info):
        return OnnxModel(path_or_bytes, compiler.by("fp32"), edits), None
    auto = AutoModel(path_or_bytes, compiler, edits)
    return auto, auto


def write_optimized_model(
    options: SessionOptions, model: ModelSource, edits: ModelEdits, shapes: Mapping[str, Sequence[Any]], device: str
) -> None:
    """Write the model to `optimized_model_filepath`, if set: a bundle (.opal), else ONNX with the edits.

    shapes: of the inputs; a bundle cannot have open dimensions. Raises OptionError if the file cannot be written.
    """
    target = options.optimized_model_filepath
    if not target:
        return
    if is_bundle(model):
        raise OptionError(f"{model!r} is compiled already; copy it to '{target}' instead")
    from ....importer.proto.apply_edits import edited_model, write_model

    if not Path(target).parent.is_dir():
        raise OptionError(f"the folder of optimized_model_filepath '{target}' does not exist; make it first")
    try:
        if Path(target).suffix == SUFFIX:
            from .compile_bundle import compile_model

            raw = edited_model(model, edits).SerializeToString() if edits or isinstance(model, bytes) else model
            whole = {n: tuple(s) for n, s in shapes.items() if all(isinstance(d, int) for d in s)}
            compile_model(raw, target, shapes=whole, device=device)
            return
        entries = options._config
        write_model(
            edited_model(model, edits), target, entries.get(DATA_FILE, ""), int(entries.get(DATA_FILE_FROM, "1024"))
        )
    except (OSError, ValueError) as e:
        raise OptionError(f"the model cannot be written to '{target}': {e}") from e
