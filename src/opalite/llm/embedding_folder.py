"""EmbeddingFolder: how a sentence-transformers folder makes one vector of a text: pooling, normalisation, prompts.

Files: modules.json lists the steps, each with a folder of its own (1_Pooling/config.json);
config_sentence_transformers.json has prompts, sentence_bert_config.json the longest input. A folder without
modules.json is pooled by the mean of its tokens, which is also sentence-transformers' default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from .model_folder import ModelFolder, read_config

_MODULES = "modules.json"
_STEPS = ("Transformer", "Pooling", "Normalize")
POOLING = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
"""Kinds of pooling; the vectors of several are joined in this order. Config names have the prefix pooling_mode_."""
_GENERATORS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_LONGEST = 1 << 20
"""Larger lengths in tokenizer_config.json mean that there is no limit."""


@dataclass(frozen=True)
class EmbeddingFolder:
    """pooling: kinds of POOLING. normalize: vectors have length 1. prompt: text before each input. longest: tokens of
    an input, None if no file says. lower: input in lower case."""

    pooling: tuple[str, ...] = ("mean_tokens",)
    normalize: bool = False
    prompt: str = ""
    longest: int | None = None
    lower: bool = False


def holds_embeddings(path: Path) -> bool:
    """Whether a folder is of a model that embeds texts, rather than one that writes them."""
    if (path / _MODULES).is_file():
        return True
    if (path / "genai_config.json").is_file() or (path / "generation_config.json").is_file():
        return False
    architectures = read_config(path / "config.json").get("architectures")
    names = architectures if isinstance(architectures, list) else []
    return bool(names) and not any(str(name).endswith(_GENERATORS) for name in names)


def read_embedding_folder(folder: ModelFolder) -> EmbeddingFolder:
    """Read the configuration. InputError for steps and poolings that are not offered."""
    path = folder.path
    steps = _steps(path / _MODULES)
    kinds = [kind for kind, _ in steps]
    if strange := next((kind for kind in kinds if kind not in _STEPS), None):
        raise InputError(
            f"{path / _MODULES} has the step {strange}, and only {', '.join(_STEPS)} are offered: export the model "
            "with all its steps, by optimum-cli export onnx --library sentence_transformers"
        )
    pooling = next((_pooling(path / place / "config.json") for kind, place in steps if kind == "Pooling"), None)
    told, bert = (read_config(path / f"{n}.json") for n in ("config_sentence_transformers", "sentence_bert_config"))
    prompts, default = told.get("prompts") or {}, told.get("default_prompt_name")
    lengths = [bert.get("max_seq_length"), folder.tokenizer.get("model_max_length"), folder.context_length]
    longest = next((int(n) for n in lengths if isinstance(n, int | float) and 0 < n < _LONGEST), None)
    return EmbeddingFolder(
        pooling=pooling or ("mean_tokens",),
        normalize="Normalize" in kinds,
        prompt=str(prompts.get(default, "")) if default else "",
        longest=longest,
        lower=bool(bert.get("do_lower_case")),
    )


def _steps(path: Path) -> list[tuple[str, str]]:
    """Kind and folder of each step; [] without the file."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}") from e
    if not isinstance(listed, list) or not all(isinstance(m, dict) and isinstance(m.get("type"), str) for m in listed):
        raise InputError(f"{path} is no list of steps with 'type' and 'path'")
    return [(m["type"].rpartition(".")[2], str(m.get("path", ""))) for m in listed]


def _pooling(path: Path) -> tuple[str, ...]:
    config: Mapping[str, Any] = read_config(path)
    mode = config.get("pooling_mode")
    found = [k for k in POOLING if mode in (k, k.removesuffix("s").removesuffix("_token"))]
    found += [kind for kind in POOLING if config.get(f"pooling_mode_{kind}")]
    if not found or not set(found) <= set(POOLING):
        raise InputError(f"{path} has no pooling of {', '.join(POOLING)}; it says {dict(config)}")
    if config.get("include_prompt") is False:
        raise InputError(f"{path} leaves prompts out of the pooling (include_prompt), which is not offered")
    return tuple(found)
