"""ModelConfig: how a model is served, in the names of Triton's model configuration; ServerSettings: the server's own.

https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto says
what each field means there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...errors import OptionError


@dataclass(frozen=True)
class TensorConfig:
    """An input or output as config.pbtxt declares it: checked against the model's, or what the model has if absent.

    dims: -1 for open; without the batch's dimension where max_batch_size is above 0.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class QueuePolicy:
    """How requests wait. timeout_action: what happens to one whose time is over: it fails, or waits behind the others.

    max_queue_size: requests that wait at most, 0 for the server's setting. default_timeout_microseconds: 0 for none.
    """

    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = True
    max_queue_size: int = 0

    def __post_init__(self) -> None:
        if self.timeout_action not in ("REJECT", "DELAY"):
            raise OptionError(f"timeout_action is REJECT or DELAY, got {self.timeout_action!r}")
        _check("default_timeout_microseconds", self.default_timeout_microseconds, 0)
        _check("max_queue_size", self.max_queue_size, 0)


@dataclass(frozen=True)
class DynamicBatching:
    """Requests are joined as long as the oldest waits less than max_queue_delay_microseconds, and at once when a
    preferred size is reached, or max_batch_size.

    priority_levels: 0 for a single one; 1 is the first. priority_queue_policy: by level, where it is not the default.
    """

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = field(default_factory=QueuePolicy)
    priority_queue_policy: Mapping[int, QueuePolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for size in self.preferred_batch_size:
            _check("preferred_batch_size", size, 1)
        _check("max_queue_delay_microseconds", self.max_queue_delay_microseconds, 0)
        _check("priority_levels", self.priority_levels, 0)
        _check("default_priority_level", self.default_priority_level, 0)
        if self.priority_levels and not 1 <= self.default_priority_level <= self.priority_levels:
            raise OptionError(
                f"default_priority_level is from 1 to priority_levels, {self.priority_levels}, "
                f"got {self.default_priority_level}"
            )


@dataclass(frozen=True)
class VersionPolicy:
    """Which versions are served: the `latest` newest, all, or those listed in `specific`."""

    kind: Literal["latest", "all", "specific"] = "latest"
    latest: int = 1
    specific: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("latest", "all", "specific"):
            raise OptionError(f"a version policy is latest, all or specific, got {self.kind!r}")
        _check("num_versions of the version policy", self.latest, 1)
        if self.kind == "specific" and not self.specific:
            raise OptionError("a version policy of specific versions lists some")


@dataclass(frozen=True)
class ModelConfig:
    """How a model is served. None, () and {} leave it to the server's settings or to the model.

    name: '' for the folder's. max_batch_size: 0 for a model that takes no batches, or that takes whatever a request
        brings; None: a model whose inputs and outputs all begin with an open dimension takes batches of up to the
        server's --max-batch-size. dynamic_batching: None joins no requests of several clients.
    instances: worker processes on each device. devices: as InferenceSession's `device`. precision, memory, tune: as
        InferenceSession's. warm_sizes: sizes of a batch that are run before a worker counts as ready; () leaves it to
        the server. default_model_filename: '' for model.onnx or model.opal.
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
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_batch_size is not None:
            _check("max_batch_size", self.max_batch_size, 0)
        if self.instances is not None:
            _check("count of instance_group", self.instances, 1)
        for size in self.warm_sizes:
            _check("warm_sizes", size, 1)
        if self.default_model_filename and Path(self.default_model_filename).name != self.default_model_filename:
            raise OptionError(f"default_model_filename is a name in the folder, got {self.default_model_filename!r}")
        batching = self.dynamic_batching
        most = self.max_batch_size or 1 << 63
        for size in () if batching is None else batching.preferred_batch_size:
            if size > most:
                raise OptionError(f"preferred_batch_size {size} is above max_batch_size, {most}")


@dataclass(frozen=True)
class ServerSettings:
    """What `opalite serve` was told. Times in seconds, sizes in bytes.

    models: files (.onnx, .opal) and folders of text models, by the name that they are served under. repository: a
        folder of NAME/VERSION/model.onnx or model.opal.
    devices: as InferenceSession's `device`; () for all OpenCL devices. precision, memory, tune: as InferenceSession's,
        where a model's configuration says nothing.
    model_control: 'none' refuses to load and unload, 'explicit' does what clients ask, 'poll' follows the folder each
        poll_s. Whatever it is, all models are loaded at the start.
    instances: workers on each device; several on one that computes with the machine's cores divide those.
    max_batch_size: of models that take batches and have no configuration; 0 or 1 joins no requests; None: 4, and
        they are joined on GPUs only, because a batch takes a CPU as long as its rows one by one.
    max_queue_size: requests of a model that wait.
    max_elements: of an input. max_input_bytes, max_output_bytes: of a request in all.
    session_factory: 'package.module:function' that workers open models by in place of Opalite's sessions, for
        benchmarks; never from a request.
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
    session_factory: str = ""

    def __post_init__(self) -> None:
        if self.model_control not in ("none", "explicit", "poll"):
            raise OptionError(f"model_control is none, explicit or poll, got {self.model_control!r}")
        if self.max_batch_size is not None:
            _check("max_batch_size", self.max_batch_size, 0)
        for name in ("instances", "max_queue_size", "max_elements", "max_input_bytes", "max_output_bytes"):
            _check(name, getattr(self, name), 1)


def _check(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"{name} is a whole number from {least} on, got {value!r}")
