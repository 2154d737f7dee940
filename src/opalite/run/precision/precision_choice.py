"""PrecisionChoice: the policy that precision 'auto' chose for a model on a device, and its file in the cache folder.

The file is JSON at precision/AB/KEY.json. KEY is a digest of the model's bytes, the device with its driver, memory,
tolerance, and this package's files. A damaged file is removed with one log line, and the choice is made again.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...cache.cache_folder import discard, usable_folder, write_json
from ...cache.cache_keys import digest
from ...cl.runtime import Runtime
from ...errors import InputError
from ...ir.model_edits import ModelEdits
from ...ir.precision import Precision, PrecisionPolicy
from ...ir.tolerances import SAFETY, relative_difference
from ..execute.host_operators import on_host
from ..model.compile_options import CompileOptions
from ..model.model_inputs_outputs import NodeArg
from ..model.plans.plan_key import code_state, device_state, model_digest

_log = logging.getLogger(__name__)
_FORMAT = "opalite-choice"
_VERSION = 1
FP32 = PrecisionPolicy(Precision.FP32)
FP16 = PrecisionPolicy(Precision.FP16)


@dataclass(frozen=True)
class OutputError:
    """The output that differs most from float32's: by `error` of its largest magnitude, or as a share."""

    error: float = 0.0
    output: str = ""

    def __str__(self) -> str:
        where = f" at output '{self.output}'" if self.output else ""
        if math.isinf(self.error):
            return f"more than any number{where}: half overflows, or a shape is another"
        return f"{self.error:.2g}{where}"


@dataclass(frozen=True)
class PrecisionChoice:
    """A policy for all runs. Frozen, so that threads may share it."""

    policy: PrecisionPolicy
    why: str = ""  # the reason for float32
    checked: Mapping[str, OutputError] = field(default_factory=dict)  # by `types_of` the inputs
    plain: OutputError = OutputError()  # with every node in half
    nodes: int = 0  # of the model, with float32 values; 0: not counted
    trials: int = 0  # runs of the search for the policy
    fp16_s: float = 0.0  # of a run by the policy; 0: not measured
    fp32_s: float = 0.0  # of a run in fp32

    @property
    def is_fp32(self) -> bool:
        """Whether no node stores half."""
        return self.policy.precision is Precision.FP32

    @property
    def worst(self) -> OutputError:
        """The largest difference of all checks."""
        return max(self.checked.values(), key=lambda w: w.error, default=OutputError())

    def with_check(self, types: str, worst: OutputError) -> PrecisionChoice:
        """The same policy with one more check, on inputs of `types`."""
        known = self.checked.get(types, OutputError())
        kept = dict(list(self.checked.items())[-_MOST_TYPES:])
        return replace(self, checked=kept | {types: worst if worst.error >= known.error else known})

    def sentences(self) -> list[str]:
        """The choice and its reasons, in sentences."""
        if self.is_fp32:
            return [f"fp32 in all nodes: {self.why}"]
        kept = self.policy.fp32
        where = "wherever no rule keeps fp32" if not kept else f"but for {len(kept)} of {self.nodes} nodes"
        lines = [
            f"half storage {where}; outputs differ from fp32 by at most {self.worst}, "
            f"in checks on inputs of {len(self.checked)} size{'s' if len(self.checked) != 1 else ''}"
        ]
        if self.fp32_s:
            lines.append(f"a run takes {1e3 * self.fp16_s:.3g} ms, in fp32 {1e3 * self.fp32_s:.3g}")
        if kept:
            lines.append(f"with every node in half they differ by {self.plain}; nodes that keep fp32:")
            lines += [f"  {names}: {why}" for names, why in _by_reason(kept)]
        return lines

    def to_raw(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "policy": self.policy.to_json(),
            "why": self.why,
            "checked": {types: [w.error, w.output] for types, w in self.checked.items()},
            "plain": [self.plain.error, self.plain.output],
            "numbers": [self.nodes, self.trials, self.fp16_s, self.fp32_s],
        }

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> PrecisionChoice:
        """The choice of which `to_raw` made `raw`. Other values raise various exceptions."""
        nodes, trials, fp16_s, fp32_s = raw["numbers"]
        plain, *checked = (OutputError(float(e), str(o)) for e, o in (raw["plain"], *raw["checked"].values()))
        by_types = dict(zip(map(str, raw["checked"]), checked, strict=True))
        policy = PrecisionPolicy.from_json(raw["policy"])
        return cls(policy, str(raw["why"]), by_types, plain, int(nodes), int(trials), float(fp16_s), float(fp32_s))


_MOST_TYPES = 63  # input types that are remembered, besides the newest
_MOST_NAMES = 3  # of nodes with one reason


def _by_reason(kept: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names of nodes, and why all of them are in float32."""
    names: dict[str, list[str]] = {}
    for name, why in kept.items():
        names.setdefault(why or "the policy names it", []).append(name)
    for why, group in names.items():
        more = f" and {len(group) - _MOST_NAMES} more" if len(group) > _MOST_NAMES else ""
        yield ", ".join(group[:_MOST_NAMES]) + more, why


def policy_sentence(policy: PrecisionPolicy) -> str:
    """A sentence that describes a requested policy."""
    rounds = ", rows of products with weights of few bits in 8 bits" if policy.rounds else ""
    if not policy.fp32 or (policy.precision is Precision.FP32 and not policy.rounds):
        return f"precision: {policy.word}{rounds}"
    return f"precision: {policy.word}{rounds}, but for {len(policy.fp32)} nodes that the policy keeps in fp32"


def first_limit(tolerance: float) -> float:
    """The limit of half's error on the first inputs. It is smaller, because other inputs have larger errors."""
    return SAFETY * tolerance


def types_of(feeds: Mapping[str, Any]) -> str:
    """Names, element types and shapes of the inputs."""
    return ", ".join(f"{name} {_type_of(value)}" for name, value in sorted(feeds.items()))


def _type_of(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"({', '.join(map(_type_of, value))})"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None:
        return type(value).__name__
    return f"{dtype}[{','.join(map(str, shape))}]"


def copy_of(value: Any) -> Any:
    """A copy in host memory."""
    if isinstance(value, list | tuple):
        return [copy_of(v) for v in value]
    value = on_host(value)
    return value.copy() if isinstance(value, np.ndarray) else value


def compare_outputs(outputs: Sequence[NodeArg], got: Sequence[Any], want: Sequence[Any]) -> OutputError:
    """The output of `got` that differs most from `want`."""
    found = [OutputError(_difference(g, w), o.name) for o, g, w in zip(outputs, got, want, strict=True)]
    return max(found, key=lambda w: w.error, default=OutputError())


def _difference(got: Any, want: Any) -> float:
    got, want = on_host(got), on_host(want)
    if isinstance(want, np.ndarray) and want.dtype.kind not in "OUS":
        return relative_difference(got, want) if isinstance(got, np.ndarray) else np.inf
    pairs = list(_leaves(got, want))
    if pairs:
        return max(_difference(g, w) for g, w in pairs)
    return 0.0 if np.array_equal(got, want) else np.inf


def _leaves(got: Any, want: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of the elements of two sequences or maps of equal structure; nothing for other values."""
    if isinstance(want, list | tuple) and isinstance(got, list | tuple) and len(got) == len(want):
        yield from zip(got, want, strict=True)
    elif isinstance(want, dict) and isinstance(got, dict) and list(got) == list(want):
        yield from zip(got.values(), want.values(), strict=True)


class PrecisionChoiceCache:
    """The stored choice of one model for one device and tolerance."""

    def __init__(self, folder: Path, key: str) -> None:
        self.path = folder / "precision" / key[:2] / f"{key}.json"
        self._key = key

    def load(self) -> PrecisionChoice | None:
        """The choice; None if none is stored or it cannot be used."""
        try:
            raw = json.loads(self.path.read_text())
            if raw["format"] != _FORMAT or raw["version"] != _VERSION or raw["key"] != self._key:
                raise ValueError("it is of another format, or belongs to another key")
            if raw["sum"] != _sum(raw["choice"]):
                raise ValueError("its contents are damaged")
            choice = PrecisionChoice.from_raw(raw["choice"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, InputError) as e:
            _log.warning("removed choice %s… of precision from the cache: %s", self._key[:12], e)
            discard(self.path)
            return None
        with suppress(OSError):  # its last use, for eviction; a read-only cache serves all the same
            os.utime(self.path)
        return choice

    def save(self, choice: PrecisionChoice) -> None:
        """Store `choice` in place of any other. A failure is logged."""
        raw = choice.to_raw()
        contents = {"format": _FORMAT, "version": _VERSION, "key": self._key, "sum": _sum(raw), "choice": raw}
        if fault := write_json(self.path, contents):
            _log.info("the choice of precision is not stored: %s", fault)


def _sum(raw: Any) -> str:
    return digest(json.dumps(raw, sort_keys=True))


def open_precision_choices(
    model: str | os.PathLike[str] | bytes, rt: Runtime, options: CompileOptions, edits: ModelEdits | None = None
) -> PrecisionChoiceCache | None:
    """The cache of the choice for `model`; None without a cache folder, or for a model that cannot be read twice."""
    kept = usable_folder()
    if kept is None:
        return None
    if not isinstance(model, bytes) and not (isinstance(model, str | os.PathLike) and Path(model).is_file()):
        return None
    try:
        contents = model_digest(model)
    except OSError:
        return None
    edited = edits.digest() if edits else ""
    parts = [contents, edited, *device_state(rt), options.memory, repr(options.tolerance), *code_state()]
    return PrecisionChoiceCache(kept, digest(*parts))
