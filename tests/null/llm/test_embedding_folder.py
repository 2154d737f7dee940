"""What the files of an embedding model say of pooling, normalisation, prompts and lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opalite import InputError
from opalite.llm.embedding_folder import EmbeddingFolder, holds_embeddings, read_embedding_folder
from opalite.llm.model_folder import ModelFolder

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def write(folder: Path, **files: Any) -> Path:
    for name, told in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(told if isinstance(told, str) else json.dumps(told))
    return folder


def read(folder: Path, **files: Any) -> EmbeddingFolder:
    return read_embedding_folder(ModelFolder(write(folder, **files), folder / "model.onnx"))


def test_all_that_the_files_say(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        modules=MODULES,
        **{"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}},
        config_sentence_transformers={"prompts": {"query": "query: "}, "default_prompt_name": "query"},
        sentence_bert_config={"max_seq_length": 256, "do_lower_case": True},
    )
    assert found == EmbeddingFolder(("cls_token",), True, "query: ", 256, True)


@pytest.mark.parametrize(
    "pooling, kinds",
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ("max_tokens", "mean_tokens")),
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
        ({"pooling_mode": "mean"}, ("mean_tokens",)),
        ({"pooling_mode": "cls"}, ("cls_token",)),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, ("mean_sqrt_len_tokens",)),
    ],
)
def test_kinds_of_pooling(tmp_path: Path, pooling: Any, kinds: tuple[str, ...]) -> None:
    found = read(tmp_path, modules=MODULES[:2], **{"1_Pooling__config": pooling})
    assert found == EmbeddingFolder(kinds)


def test_a_folder_without_steps_is_pooled_by_the_mean(tmp_path: Path) -> None:
    folder = ModelFolder(
        tmp_path, tmp_path, config={"max_position_embeddings": 512}, tokenizer={"model_max_length": 1e30}
    )
    assert read_embedding_folder(folder) == EmbeddingFolder(longest=512)


@pytest.mark.parametrize(
    "files, words",
    [
        ({"modules": [*MODULES, {"type": "sentence_transformers.models.Dense"}]}, "has the step Dense"),
        ({"modules": {}}, "is no list of steps"),
        ({"modules": "["}, "cannot be read"),
        ({"modules": MODULES}, "has no pooling of cls_token"),
        ({"modules": MODULES, "1_Pooling__config": {"pooling_mode": "median"}}, "has no pooling of cls_token"),
        ({"modules": MODULES, "1_Pooling__config": {"pooling_mode": "cls", "include_prompt": False}}, "include_prompt"),
    ],
)
def test_what_is_not_offered_is_told(tmp_path: Path, files: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, **files)


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"modules": MODULES}, True),
        ({"config": {"architectures": ["Qwen3ForCausalLM"]}, "modules": MODULES}, True),
        ({"config": {"architectures": ["BertModel"]}}, True),
        ({"config": {"architectures": ["BertForMaskedLM"]}}, True),
        ({"config": {"architectures": ["LlamaForCausalLM"]}}, False),
        ({"config": {"architectures": ["GPT2LMHeadModel"]}}, False),
        ({"config": {"architectures": ["T5ForConditionalGeneration"]}}, False),
        ({"config": {"architectures": ["LlamaModel"]}, "genai_config": {}}, False),
        ({"config": {}}, False),
        ({}, False),
    ],
)
def test_folders_that_embed(tmp_path: Path, files: Any, expected: bool) -> None:
    assert holds_embeddings(write(tmp_path, **files)) is expected
