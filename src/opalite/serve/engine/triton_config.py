"""Conversion of ModelConfig from and to Triton's model configuration (`config.pbtxt` and JSON)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from google.protobuf import json_format

from ...errors import OptionError
from ...knobs import PRECISIONS
from ..proto.config_text import ReadConfig, config_as_json, read_config_json, read_config_text
from ..proto.message_classes import ModelConfig as Message
from ..wire.datatypes import triton_name
from ..wire.infer_messages import ModelMetadata, TensorMetadata
from ..wire.serve_errors import NO_SEQUENCES, Invalid
from .model_config import DynamicBatching, ModelConfig, QueuePolicy, TensorConfig, VersionPolicy

PLATFORMS = ("", "onnxruntime_onnx", "opalite", "onnx_opalite", "opal_opalite", "text_opalite", "embedding_opalite")
BACKENDS = ("", "onnxruntime", "opalite")
_REFUSED_FIELDS = {
    "sequence_batching": NO_SEQUENCES,
    "ensemble_scheduling": "join the models into one ONNX file (onnx.compose.merge_models), or call them in turn",
}
"""Fields that change what a request means, so that ignoring them would give wrong answers; and the way without them."""
_OWN_PARAMETERS = ("device", "precision", "memory", "tune", "run_timeout_s")


def config_from_text(text: str, where: str) -> tuple[ModelConfig, tuple[str, ...]]:
    """The configuration in a config.pbtxt at `where`, and the names of fields without effect. Invalid."""
    return _config_from(read_config_text(text, where), where)


def config_from_json(config: Mapping[str, Any], where: str) -> tuple[ModelConfig, tuple[str, ...]]:
    """As `config_from_text`, for the JSON of a load request. Invalid."""
    found = _config_from(read_config_json(config, where), where)
    precision = found[0].precision
    if precision is not None and precision not in PRECISIONS:
        raise Invalid(
            f"{where}: precision is one of {', '.join(PRECISIONS)}, got {precision!r}; a request names no file"
        )
    return found


def config_to_json(config: ModelConfig, metadata: ModelMetadata, decoupled: bool = False) -> dict[str, Any]:
    """The configuration as Triton's clients read it, with the model's inputs and outputs.

    decoupled: a request may have any number of answers.
    """
    skip = 1 if config.max_batch_size else 0
    own = {"device": ",".join(config.devices), **{n: getattr(config, n) for n in _OWN_PARAMETERS[1:]}}
    parameters = {**config.parameters, **{name: str(value) for name, value in own.items() if value not in ("", None)}}
    made: dict[str, Any] = {
        "name": metadata.name,
        "platform": config.platform or metadata.platform,
        "backend": config.backend or "opalite",
        "max_batch_size": config.max_batch_size or 0,
        "version_policy": _policy_fields(config.version_policy),
        "input": [_tensor_fields(t, skip) for t in metadata.inputs],
        "output": [_tensor_fields(t, skip) for t in metadata.outputs],
        "instance_group": [{"count": config.instances or 1, "kind": "KIND_AUTO"}],
        "default_model_filename": config.default_model_filename,
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
        "model_warmup": [{"name": f"batch of {size}", "batch_size": size} for size in config.warm_sizes],
    }
    if config.dynamic_batching is not None:
        sizes = list(config.dynamic_batching.preferred_batch_size)
        made["dynamic_batching"] = {**asdict(config.dynamic_batching), "preferred_batch_size": sizes}
    if decoupled:
        made["model_transaction_policy"] = {"decoupled": True}
    return config_as_json(json_format.ParseDict(made, Message()))


def _tensor_fields(tensor: TensorMetadata, skip: int) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": triton_name(tensor.datatype), "dims": list(tensor.shape[skip:])}


def _policy_fields(policy: VersionPolicy) -> dict[str, Any]:
    choices = {"all": {}, "latest": {"num_versions": policy.latest}, "specific": {"versions": list(policy.specific)}}
    return {policy.kind: choices[policy.kind]}


def check_tensors(config: ModelConfig, metadata: ModelMetadata) -> None:
    """Raise Invalid if a declared input or output differs from the model's."""
    skip = 1 if config.max_batch_size else 0
    for what, declared, real in (
        ("input", config.inputs, metadata.inputs),
        ("output", config.outputs, metadata.outputs),
    ):
        there = {t.name: t for t in real}
        for t in declared:
            if t.name not in there:
                raise Invalid(
                    f"model '{metadata.name}': the configuration declares {what} '{t.name}', the model has "
                    f"{', '.join(map(repr, there)) or 'none'}"
                )
            if not _fits(t, there[t.name], skip):
                has = there[t.name]
                batch = " after the batch's dimension" if skip else ""
                raise Invalid(
                    f"model '{metadata.name}', {what} '{t.name}': the configuration declares {t.datatype} "
                    f"{list(t.dims)}, the model has {has.datatype} {list(has.shape[skip:])}{batch} (-1: open)"
                )


def _fits(declared: TensorConfig, real: TensorMetadata, skip: int) -> bool:
    dims = real.shape[skip:]
    return (
        declared.datatype == real.datatype
        and len(declared.dims) == len(dims)
        and all(a == b or -1 in (a, b) for a, b in zip(declared.dims, dims, strict=True))
    )


def _config_from(read: ReadConfig, where: str) -> tuple[ModelConfig, tuple[str, ...]]:
    message = read.message
    for what, got, taken in (("platform", message.platform, PLATFORMS), ("backend", message.backend, BACKENDS)):
        if got not in taken:
            raise Invalid(f"{where}: {what} {got!r} is not served here; leave it out, or one of {', '.join(taken[1:])}")
    for field, instead in _REFUSED_FIELDS.items():
        if any(path.partition(".")[0].partition("[")[0] == field for path in read.ignored):
            raise Invalid(f"{where}: {field} is not offered; {instead}")
    parameters = {name: p.string_value for name, p in message.parameters.items()}
    own = {name: parameters.pop(name, "") or None for name in _OWN_PARAMETERS}
    count, devices = _instances(message.instance_group, where)
    if own["device"]:
        devices = tuple(d.strip() for d in own["device"].split(",") if d.strip())
    try:
        config = ModelConfig(
            name=message.name,
            platform=message.platform,
            backend=message.backend,
            max_batch_size=message.max_batch_size if read.gives_batch_size else None,
            inputs=_tensors(message.input, where),
            outputs=_tensors(message.output, where),
            dynamic_batching=_batching(message.dynamic_batching) if message.HasField("dynamic_batching") else None,
            version_policy=_policy(message.version_policy),
            default_model_filename=message.default_model_filename,
            instances=count,
            devices=devices,
            precision=own["precision"],
            memory=own["memory"],
            tune=own["tune"],
            run_timeout_s=_seconds(own["run_timeout_s"], where),
            warm_sizes=tuple(w.batch_size or 1 for w in message.model_warmup),
            parameters=parameters,
        )
    except OptionError as e:
        raise Invalid(f"{where}: {e}") from None
    return config, (*read.ignored, *(f"parameters[{name!r}]" for name in parameters))


def _seconds(text: str | None, where: str) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise Invalid(f"{where}: parameter run_timeout_s is a number of seconds, 0 for no limit, got {text!r}")
    return seconds


def _tensors(declared: Sequence[Any], where: str) -> tuple[TensorConfig, ...]:
    found = []
    for t in declared:
        kind = t.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number.get(t.data_type)
        if kind is None or kind.number == 0:
            raise Invalid(f"{where}: '{t.name}' has no data_type, such as TYPE_FP32")
        datatype = "BYTES" if kind.name == "TYPE_STRING" else kind.name.removeprefix("TYPE_")
        found.append(TensorConfig(t.name, datatype, tuple(t.dims)))
    return tuple(found)


def _instances(groups: Sequence[Any], where: str) -> tuple[int | None, tuple[str, ...]]:
    """The number of workers on each device, and the devices. Invalid if groups differ in count."""
    devices: list[str] = []
    for group in groups:
        kind = group.Kind.Name(group.kind)
        if group.gpus and kind in ("KIND_AUTO", "KIND_GPU"):
            devices += [f"gpu:{number}" for number in group.gpus]
        elif kind in ("KIND_GPU", "KIND_CPU"):
            devices.append(kind.removeprefix("KIND_").lower())
    counts = {group.count or 1 for group in groups}
    if len(counts) > 1:
        raise Invalid(
            f"{where}: groups of {' and '.join(map(str, sorted(counts)))} instances; "
            "every device of a model has as many workers: give all groups the same count"
        )
    return (counts.pop() if counts else None), tuple(dict.fromkeys(devices))


def _batching(message: Any) -> DynamicBatching:
    default = message.default_queue_policy if message.HasField("default_queue_policy") else None
    made: DynamicBatching = _from_message(
        DynamicBatching,
        message,
        preferred_batch_size=tuple(message.preferred_batch_size),
        default_priority_level=message.default_priority_level or (message.priority_levels + 1) // 2,
        default_queue_policy=QueuePolicy() if default is None else _queue_policy(default),
        priority_queue_policy={level: _queue_policy(p) for level, p in message.priority_queue_policy.items()},
    )
    return made


def _queue_policy(message: Any) -> QueuePolicy:
    made: QueuePolicy = _from_message(
        QueuePolicy, message, timeout_action="DELAY" if message.timeout_action else "REJECT"
    )
    return made


def _from_message(kind: Any, message: Any, **changed: Any) -> Any:
    """Make a dataclass of a message's fields of the same names, except those in `changed`."""
    return kind(**{f.name: getattr(message, f.name) for f in fields(kind)} | changed)


def _policy(message: Any) -> VersionPolicy:
    match message.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy("all")
        case "specific":
            return VersionPolicy("specific", specific=tuple(message.specific.versions))
        case _:
            return VersionPolicy(latest=message.latest.num_versions or 1)
