"""SessionOptions: the options of a session in onnxruntime's API."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import InputTypeError, OptionError, UnsupportedApiError
from ....ir.model_edits import ModelEdits
from ....ir.model_edits import argmax_name as argmax_name
from ..diagnostics.ort_logging import SessionLog, warn_once
from ..values.ort_value import OrtValue
from .option_descriptor import Option, Options
from .ort_enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
from .run_options import warn_no_effect

if TYPE_CHECKING:
    from .ort_devices import OrtEpDevice

Array = np.ndarray[Any, Any]

_THREADS = "the OpenCL driver decides; POCL_MAX_PTHREAD_COUNT in the environment limits PoCL's threads"
_MEMORY = "the planner allocates all memory before the first run"

NO_FALLBACK = "session.disable_cpu_ep_fallback"
RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
DATA_FILE = "session.optimized_model_external_initializers_file_name"
DATA_FILE_FROM = "session.optimized_model_external_initializers_min_size_in_bytes"
FORMAT = "session.load_model_format"
LAST_POSITION = "opalite.last_position"
"""Config entry: comma-separated outputs [batch, positions, ...], of which the model keeps the last position."""
ARGMAX = "opalite.argmax"
"""Config entry: names of outputs [batch, positions, n], comma-separated, replaced by the argmax of the last position
(NAME/argmax, int64 [batch, 1]) and its value (NAME/max, [batch, 1])."""
CACHE_VIEWS = "opalite.cache_views"
"""Config entry: '0' has plain runs copy growing KV caches, instead of returning views of caches that stay in place."""
SUBGRAPH = "opalite.subgraph"
"""Config entry: the subgraph of a .tflite file to run, by number or a signature's name; by default the first."""
OPEN_SIZES = "opalite.open_sizes"
"""Config entry: '1' has a .tflite file take inputs of other sizes than those it was made for, 'ranks' of any number of
dimensions, too."""
PARAMS_FILE = "opalite.params_file"
"""Config entry: the file with the parameters of a Paddle program, if it has another name than the program."""
_KNOWN_ENTRIES = (
    NO_FALLBACK,
    RECORD_ASSIGNMENT,
    DATA_FOLDER,
    DATA_FILE,
    DATA_FILE_FROM,
    FORMAT,
    LAST_POSITION,
    ARGMAX,
    CACHE_VIEWS,
    SUBGRAPH,
    OPEN_SIZES,
    PARAMS_FILE,
)


class SessionOptions(Options):
    """Options of a session: `InferenceSession(path, sess_options)`, which keeps a copy.

    Options without a meaning on OpenCL devices are accepted; opening a session logs a warning once for each.
    """

    __slots__ = ("_cancelled", "_edits", "_outputs", "_policy", "_providers")

    enable_cpu_mem_arena = Option(True, "No effect.", _MEMORY)
    enable_mem_pattern = Option(True, "No effect.", _MEMORY)
    enable_mem_reuse = Option(True, "No effect.", _MEMORY + "; OPALITE_PLANNER=naive shares none")
    enable_profiling = Option(False, "Whether runs are recorded; `session.end_profiling()` writes the file.")
    execution_mode = Option(ExecutionMode.ORT_SEQUENTIAL, "No effect.", "the device's queue decides what runs at once")
    execution_order = Option(ExecutionOrder.DEFAULT, "No effect.", "the memory planner chooses the order of nodes")
    graph_optimization_level = Option(
        GraphOptimizationLevel.ORT_ENABLE_ALL, "No effect.", "all passes run: they keep the model's results"
    )
    inter_op_num_threads = Option(0, "No effect.", _THREADS)
    intra_op_num_threads = Option(0, "No effect.", _THREADS)
    log_severity_level = Option(-1, "The least severity of messages about the session; -1 takes the default.")
    log_verbosity_level = Option(0, "No effect; OPALITE_DEBUG sets the detail.")
    logid = Option("", "The beginning of messages about the session.")
    optimized_model_filepath = Option("", "The file to write: .opal for a bundle, else ONNX with the overrides.")
    profile_file_prefix = Option("onnxruntime_profile_", "The beginning of the names of profiles.")
    use_deterministic_compute = Option(False, "No effect.", "kernels add in a fixed order in any case")
    use_per_session_threads = Option(True, "No effect.", _THREADS)

    def __init__(self) -> None:
        super().__init__()
        self._edits: dict[str, dict[str, Any]] = {}
        self._providers: dict[str, dict[str, str]] = {}
        self._policy = OrtExecutionProviderDevicePolicy.DEFAULT
        self._cancelled = False
        self._outputs: tuple[str, ...] = ()

    # Config entries

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store an entry. docs/dropin.md lists the entries with an effect."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry. Raises OptionError (a RuntimeError) if there is none."""
        return self._entry(key)

    # The model

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size of the open dimension `name`. Of several calls for one name, the first has effect."""
        self._edit("dims", _text("a dimension's name", name), _size(name, size))

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the size of every dimension with this denotation."""
        self._edit("dims_by_denotation", _text("a denotation", denotation), _size(denotation, size))

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replace the initializer `name`, if the model has it, by a value of the same type and shape."""
        self._edit("initializers", _text("an initializer's name", name), _array(name, value))

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Replace initializers that the model stores in external files; these files may then be missing."""
        if len(names) != len(values):
            raise OptionError(f"{len(names)} names of initializers, but {len(values)} values")
        for name, value in zip(names, values, strict=True):
            self._edit("external", _text("an initializer's name", name), _array(name, value))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Replace the external data files `names` by the first `lengths` bytes of `buffers`."""
        if not len(names) == len(buffers) == len(lengths):
            raise OptionError(f"{len(names)} file names, {len(buffers)} buffers and {len(lengths)} lengths")
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            self._edit("files", _text("a file's name", name), bytes(memoryview(buffer).cast("B")[: int(length)]))

    def _edit(self, group: str, name: str, value: Any) -> None:
        self._edits.setdefault(group, {}).setdefault(name, value)

    # Devices

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Append an execution provider to the session's providers."""
        self._providers[_text("a provider's name", name)] = {str(k): str(v) for k, v in options.items()}

    def add_provider_for_devices(self, devices: Sequence[OrtEpDevice], options: Mapping[str, str]) -> None:
        """Append the provider of the first of `devices`, which come from `get_ep_devices()`."""
        if not devices:
            raise OptionError("give at least one device of get_ep_devices()")
        first = devices[0]
        self.add_provider(first.ep_name, {**first.ep_options, **options})

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Prefer CPUs or GPUs if no provider is named."""
        if not isinstance(policy, OrtExecutionProviderDevicePolicy):
            raise InputTypeError(f"a policy is an OrtExecutionProviderDevicePolicy, got {policy!r}")
        self._policy = policy

    def has_providers(self) -> bool:
        """Whether the options have providers or a selection policy."""
        return bool(self._providers) or self._policy is not OrtExecutionProviderDevicePolicy.DEFAULT

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """Cancel loading: sessions with these options raise ModelLoadCanceled."""
        self._cancelled = bool(cancel)

    # Unsupported

    def register_custom_ops_library(self, path: str) -> None:
        """Raise UnsupportedApiError: compiled operators for onnxruntime cannot run on OpenCL devices."""
        raise UnsupportedApiError(
            f"'{path}' holds compiled operators for onnxruntime's CPU or CUDA memory, which OpenCL devices cannot run: "
            "give the operator as a model-local function of ONNX operators"
        )

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any]) -> None:
        """Raise UnsupportedApiError: name the device instead."""
        raise UnsupportedApiError("a delegate does not pick devices here: give device= or a provider's option 'device'")

    def set_ep_context_data_read_func(self, read_func: Callable[..., Any], max_data_size: int) -> None:
        """Raise UnsupportedApiError: EPContext nodes are not supported."""
        raise UnsupportedApiError("EPContext models are not offered: opalite.compile writes a bundle (.opal) instead")

    def clear_ep_context_data_read_func(self) -> None:
        """Do nothing: no function can be set."""

    def __deepcopy__(self, memo: Any) -> SessionOptions:
        return copy_options(self)


def copy_options(options: SessionOptions) -> SessionOptions:
    """A copy of the options that shares arrays."""
    made = SessionOptions()
    made._values = dict(options._values)
    made._config = dict(options._config)
    made._edits = {group: dict(values) for group, values in options._edits.items()}
    made._providers = copy.deepcopy(options._providers)
    made._policy, made._cancelled, made._outputs = options._policy, options._cancelled, options._outputs
    return made


def options_for_outputs(options: SessionOptions, names: Sequence[str]) -> SessionOptions:
    """A copy of the options for a session whose outputs are the values `names`; it writes no files."""
    made = copy_options(options)
    made._outputs = tuple(names)
    made.optimized_model_filepath, made.enable_profiling = "", False
    return made


def check_session_options(options: Any) -> SessionOptions:
    """A copy of `options`, or the defaults for None. Raises InputTypeError for other types."""
    if options is None:
        return SessionOptions()
    if not isinstance(options, SessionOptions):
        raise InputTypeError(f"sess_options are an opalite.SessionOptions, got {type(options).__name__}")
    return copy_options(options)


def log_no_effect(options: SessionOptions, log: SessionLog) -> None:
    """Warn once of options and entries without effect. Raises UnsupportedApiError for models in ORT format."""
    warn_no_effect(options, log)
    for key, value in options._config.items():
        if key == FORMAT and value.upper() == "ORT":
            raise UnsupportedApiError("models in ORT format are not read: give the ONNX file that it was made from")
        if key not in _KNOWN_ENTRIES:
            warn_once(f"config {key}", f"the session config entry '{key}' has no effect on OpenCL devices", log)


def parse_edits(options: SessionOptions) -> ModelEdits:
    """The edits of the model that the options request."""
    entries = options._config
    last, argmax = (
        tuple(n for name in entries.get(key, "").split(",") if (n := name.strip())) for key in (LAST_POSITION, ARGMAX)
    )
    return ModelEdits(
        **options._edits,
        folder=entries.get(DATA_FOLDER, ""),
        last=last,
        argmax=argmax,
        subgraph=entries.get(SUBGRAPH, ""),
        open_sizes=entries.get(OPEN_SIZES, "0") in ("1", "ranks"),
        open_ranks=entries.get(OPEN_SIZES) == "ranks",
        params=entries.get(PARAMS_FILE, ""),
        outputs=options._outputs,
    )


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputTypeError(f"{what} is a text, got {value!r}")
    return value


def _size(name: str, size: Any) -> int:
    try:
        number = operator.index(size)
    except TypeError:
        raise InputTypeError(f"the size of '{name}' is a whole number, got {size!r}") from None
    if number < 0:
        raise OptionError(f"the size of '{name}' must not be negative, got {number}")
    return number


def _array(name: str, value: Any) -> Array:
    if not isinstance(value, OrtValue):
        raise OptionError(f"initializer '{name}' is given as an OrtValue, got {type(value).__name__}")
    array: Array = value.numpy()
    return array
