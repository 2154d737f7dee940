"""DecoderInputs: the roles of a decoder's inputs, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    from ..run.model.model_inputs_outputs import NodeArg

Array = np.ndarray[Any, Any]

_ROLES = {
    "tokens": ("input_ids", "decoder_input_ids", "tokens"),
    "embeds": ("inputs_embeds", "decoder_inputs_embeds"),
    "mask": ("attention_mask", "decoder_attention_mask"),
    "positions": ("position_ids", "positions", "cache_position"),
    "types": ("token_type_ids",),
    "kept_logits": ("num_logits_to_keep", "logits_to_keep"),
    "past_length": ("past_sequence_length", "past_seq_len", "write_indices"),
    "total_length": ("total_sequence_length", "total_seq_len"),
    "encoded": ("encoder_hidden_states",),
    "encoder_mask": ("encoder_attention_mask",),
}
BRANCH = "use_cache_branch"
"""Input of merged decoders that selects the branch with caches; the state feeds it."""
_CACHE = re.compile(r"past|cache|cross")
_LOGITS = ("logits", "lm_logits")


@dataclass(frozen=True)
class DecoderInputs:
    """Inputs of a decoder by role, its logits output, and its cache inputs.

    pairs: {past: present} of the caches as declared by a configuration; None: the session matches them by name. embed:
    gives the vectors of tokens [B,S], for a decoder that reads these.
    """

    roles: Mapping[str, NodeArg]
    logits: str
    pairs: Mapping[str, str] | None = None
    caches: Sequence[str] = field(default_factory=tuple)
    embed: Callable[[Array], Array] | None = None

    @property
    def sequence(self) -> NodeArg:
        """The input that takes tokens, or their vectors."""
        return self.roles["tokens"] if "tokens" in self.roles else self.roles["embeds"]

    def _embedded(self, tokens: Any) -> dict[str, Array]:
        if "embeds" not in self.roles or self.embed is None:
            return {}
        arg = self.roles["embeds"]
        return {arg.name: _as(arg, self.embed(np.asarray(tokens)))}

    def feeds(self, tokens: Sequence[int], past: int) -> dict[str, Array]:
        """Return the inputs of a run on `tokens` after `past` others."""
        count = len(tokens)
        values: dict[str, Any] = {
            "tokens": [tokens],
            "mask": np.ones((1, past + count)),
            "positions": [np.arange(past, past + count)],
            "types": np.zeros((1, count)),
            "kept_logits": 1,
            "past_length": past,
            "total_length": past + count,
        }
        found = {arg.name: _as(arg, values[role]) for role, arg in self.roles.items() if role in values}
        return found | self._embedded([tokens])

    def batch_feeds(
        self, tokens: Sequence[int], lengths: Sequence[int], end: int, *, ends_together: bool
    ) -> dict[str, Array]:
        """Return the inputs of a run on a token for each of several sequences.

        lengths: positions that each has read. end: positions of the caches, which hold the last ones of each sequence
        if ends_together (padding on the left), else the first ones (padding on the right).
        """
        held = np.asarray(lengths)[:, None]
        places = np.arange(end + 1)[None]
        values: dict[str, Any] = {
            "tokens": np.asarray(tokens)[:, None],
            "mask": places >= end - held if ends_together else places <= held,
            "positions": held,
            "types": np.zeros((len(tokens), 1)),
            "kept_logits": 1,
            "past_length": end,
            "total_length": end + 1,
        }
        found = {}
        for role, arg in self.roles.items():
            if role == "positions" and len(arg.shape) == 1:
                found[arg.name] = _as(arg, [end])
            elif role == "past_length" and arg.shape:
                found[arg.name] = _as(arg, np.asarray(lengths))
            elif role in values:
                found[arg.name] = _as(arg, values[role])
        return found | self._embedded(values["tokens"])


def find_decoder_inputs(
    inputs: Sequence[NodeArg], outputs: Sequence[NodeArg], config: Mapping[str, Any]
) -> DecoderInputs:
    """Assign roles to a decoder's inputs. config: the decoder's part of genai_config.json, or empty.

    InputError for an unknown input, or if no output can be the logits; the message lists the names.
    """
    names_by_role = {**config.get("inputs", {}), **config.get("outputs", {})}
    pairs = _pairs(inputs, outputs, names_by_role)
    roles: dict[str, NodeArg] = {}
    caches, unknown = [], []
    for arg in inputs:
        role = _role(arg.name, names_by_role)
        if role is not None and role not in roles:
            roles[role] = arg
        elif arg.name == BRANCH or arg.name in pairs or _CACHE.search(arg.name):
            caches.append(arg.name)
        elif not arg.is_optional:
            unknown.append(arg.name)
    if unknown or not {"tokens", "embeds"} & roles.keys():
        what = f"does not know the input '{unknown[0]}'" if unknown else "finds no input that takes tokens"
        raise InputError(
            f"generation {what}: the decoder's inputs are {', '.join(a.name for a in inputs)}; it knows "
            f"{', '.join(n for names in _ROLES.values() for n in names)}, {BRANCH}, caches named past..., and names in "
            "genai_config.json"
        )
    return DecoderInputs(roles, _logits(outputs, config), pairs or None, tuple(caches))


def _role(name: str, names_by_role: Mapping[str, Any]) -> str | None:
    for role, names in _ROLES.items():
        if name in names or any(names_by_role.get(n) == name for n in names):
            return role
    return None


def logits_names(config: Mapping[str, Any]) -> list[str]:
    """Return possible names of the logits output, the likeliest first. config: as in `find_decoder_inputs`."""
    return [str(n) for n in (config.get("outputs", {}).get("logits"), *_LOGITS) if n is not None]


def _logits(outputs: Sequence[NodeArg], config: Mapping[str, Any]) -> str:
    names = [a.name for a in outputs]
    for name in logits_names(config):
        if name in names:
            return name
    free = [a.name for a in outputs if not re.search(r"present|cache|past|hidden|attention", a.name)]
    if len(free) != 1:
        raise InputError(f"no output is named logits: the decoder's outputs are {', '.join(names)}")
    return free[0]


def _pairs(inputs: Sequence[NodeArg], outputs: Sequence[NodeArg], names_by_role: Mapping[str, Any]) -> dict[str, str]:
    """Return {input: output} of caches by genai_config.json's patterns such as past_key_values.%d.key."""
    takes, gives = {a.name for a in inputs}, {a.name for a in outputs}
    found = {}
    for past, pattern in names_by_role.items():
        if past.startswith("past") and "%d" in str(pattern):
            present = names_by_role.get(past.replace("past", "present", 1), "")
            for i in range(len(inputs)):
                if (a := pattern.replace("%d", str(i))) in takes and (b := present.replace("%d", str(i))) in gives:
                    found[a] = b
    return found


def _as(arg: NodeArg, value: Any) -> Array:
    """Convert a value to the input's dtype and rank; leading axes of size one are added or removed."""
    assert arg.dtype is not None
    array = np.asarray(value, arg.dtype.np)
    if arg.any_rank:
        return array
    if len(arg.shape) == 3 and array.ndim == 2:  # positions of several kinds (time, height, width), equal for text
        return np.broadcast_to(array, (arg.shape[0] if isinstance(arg.shape[0], int) else 3, *array.shape)).copy()
    return array.reshape((1,) * (len(arg.shape) - array.ndim) + array.shape[max(0, array.ndim - len(arg.shape)) :])
