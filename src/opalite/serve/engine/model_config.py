"""ModelConfig: settings of a model, in Triton's names. ServerSettings: settings of the server.

Fields: https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...errors import OptionError


@dataclass(frozen=True)
class TensorConfig:
    """An input or output declared in config.pbtxt, checked against the model.

    dims: -1 for an open dimension; without the batch dimension if max_batch_size is above 0.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class QueuePolicy:
    """Limits of waiting requests. timeout_action: a timed-out request fails, or waits after all others.

    max_queue_size: 0 for the server's setting. default_timeout_microseconds: 0 for none.
    """

    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = True
    max_queue_size: int = 0

    def __post_init__(self) -> None:
        if self.timeout_action not in ("REJECT", "DELAY"):
            raise OptionError(f"timeout_action is REJECT or DELAY, got {self.timeout_action!r}")
        _check(self, 0, "default_timeout_microseconds", "max_queue_size")


@dataclass(frozen=True)
class DynamicBatching:
    """Batches of queued requests, run at a preferred size, at max_batch_size, or after the maximal queue delay.

    priority_levels: 0 for a single level; level 1 is served first. priority_queue_policy: policies other than the
    default, by level.
    """

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = field(default_factory=QueuePolicy)
    priority_queue_policy: Mapping[int, QueuePolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self, 1, "preferred_batch_size")
        _check(self, 0, "max_queue_delay_microseconds", "priority_levels", "default_priority_level")
        if self.priority_levels and not 1 <= self.default_priority_level <= self.priority_levels:
            raise OptionError(
                f"default_priority_level is from 1 to priority_levels, {self.priority_levels}, "
                f"got {self.default_priority_level}"
            )


@dataclass(frozen=True)
class VersionPolicy:
    """The served versions: the `latest` newest, all, or those in `specific`."""

    kind: Literal["latest", "all", "specific"] = "latest"
    latest: int = 1
    specific: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("latest", "all", "specific"):
            raise OptionError(f"a version policy is latest, all or specific, got {self.kind!r}")
        _check_number("num_versions of the version policy", self.latest, 1)
        if self.kind == "specific" and not self.specific:
            raise OptionError("a version policy of specific versions lists some")


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of a model. None, () and {} select the server's settings or the model's.

    name: '' for the folder's. max_batch_size: 0 disables batches and accepts any first dimension; None: a model whose
        inputs and outputs all begin with an open dimension takes batches of up to --max-batch-size.
    dynamic_batching: None makes no batches of several requests. instances: worker processes on each device.
    devices, precision, memory, tune: as InferenceSession's. run_timeout_s: seconds that a run may take. warm_sizes:
        batch sizes run before a worker is ready; () for the server's. default_model_filename: '' for
        model.onnx or model.opal.
    """

    name: str = ""
    platform: str = ""
    backend: str = ""
    max_batch_size: int | None = None
    inputs: tuple[TensorConfig, ...] = ()
    outputs: tuple[TensorConfig, ...] = ()
    dynamic_batching: DynamicBatching | None = None
    version_policy: VersionPolicy = field(default_factory=VersionPolicy)
    default_model_filename: str = ""
    instances: int | None = None
    devices: tuple[str, ...] = ()
    precision: str | None = None
    memory: str | None = None
    tune: str | None = None
    warm_sizes: tuple[int, ...] = ()
    run_timeout_s: float | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self, 0, "max_batch_size")
        _check_number("count of instance_group", 1 if self.instances is None else self.instances, 1)
        _check(self, 1, "warm_sizes")
        if self.default_model_filename and Path(self.default_model_filename).name != self.default_model_filename:
            raise OptionError(f"default_model_filename is a name in the folder, got {self.default_model_filename!r}")
        batching = self.dynamic_batching
        most = self.max_batch_size or 1 << 63
        for size in () if batching is None else batching.preferred_batch_size:
            if size > most:
                raise OptionError(f"preferred_batch_size {size} is above max_batch_size, {most}")


@dataclass(frozen=True)
class ServerSettings:
    """The settings of `opalite serve`. Times in seconds, sizes in bytes.

    models: files (.onnx, .opal) and folders of text models, by their served names. repository: a folder of
        NAME/VERSION/model.onnx or model.opal.
    devices: as InferenceSession's `device`; () for all OpenCL devices. precision, memory, tune: defaults of models.
    model_control: 'none' refuses loading and unloading, 'explicit' allows it to clients, 'poll' scans the folder each
        poll_s. All models are loaded at the start.
    instances: workers on each device; on a CPU they divide the cores.
    max_batch_size: of models without a configuration; 0 or 1 disables batches; None: 4, on GPUs only, because a batch
        takes a CPU as long as its rows.
    max_queue_size: waiting requests of a model.
    max_elements: of an input. max_input_bytes, max_output_bytes: totals of a request.
    start_timeout_s: for a worker's start. run_timeout_s: for a run, and between the parts of a text; 0 for no limit.
    spare_worker: a process waits to replace a lost worker.
    request_memory_bytes: that requests and their answers may take, over all protocols; None for `default_limit`.
    strict_readiness: the server is ready while all models are, else while it has loaded those of its start.
    shared_memory: clients of this machine may register regions of system shared memory.
    session_factory: 'package.module:function' that opens models in place of InferenceSession, for benchmarks; never
        from a request.
    """

    models: Mapping[str, Path] = field(default_factory=dict)
    repository: Path | None = None
    devices: tuple[str, ...] = ()
    instances: int = 1
    precision: str | None = None
    memory: str | None = None
    tune: str | None = None
    model_control: Literal["none", "explicit", "poll"] = "explicit"
    poll_s: float = 15.0
    max_batch_size: int | None = None
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    max_queue_size: int = 128
    default_timeout_microseconds: int = 0
    max_elements: int = 1 << 28
    max_input_bytes: int = 256 << 20
    max_output_bytes: int = 256 << 20
    start_timeout_s: float = 600.0
    run_timeout_s: float = 120.0
    spare_worker: bool = False
    request_memory_bytes: int | None = None
    strict_readiness: bool = False
    shared_memory: bool = True
    session_factory: str = ""

    def __post_init__(self) -> None:
        if self.model_control not in ("none", "explicit", "poll"):
            raise OptionError(f"model_control is none, explicit or poll, got {self.model_control!r}")
        _check(self, 0, "max_batch_size")
        _check(self, 1, "instances", "max_queue_size", "max_elements", "max_input_bytes", "max_output_bytes")

    def batching(self, most: int) -> DynamicBatching:
        """The batching of models without a configuration, of up to `most` rows."""
        policy = QueuePolicy(default_timeout_microseconds=self.default_timeout_microseconds)
        preferred = tuple(s for s in self.preferred_batch_size if s <= most)
        return DynamicBatching(preferred, self.max_queue_delay_microseconds, default_queue_policy=policy)


def _check(config: object, least: int, *names: str) -> None:
    """Check fields of numbers, of tuples of numbers, or of None."""
    for name in names:
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else () if value is None else (value,):
            _check_number(name, number, least)


def _check_number(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"{name} is a whole number from {least} on, got {value!r}")
