"""Writes the folder model/ of trained weights: model.onnx and the files that tell how to write with it.

python export.py weights.npz            # as train.py --weights wrote them
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import graph
import numpy as np

import onnx

HERE = Path(__file__).parent


def export(weights: graph.Weights, shape: graph.Shape, folder: Path) -> None:
    """Write model.onnx and the configurations next to tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    model = graph.build(weights, shape)
    onnx.save(model, folder / "model.onnx")
    names = {
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    decoder = {
        "filename": "model.onnx",
        "head_size": shape.head,
        "hidden_size": shape.width,
        **names,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
    }
    end = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    told = {"type": "llama", "context_length": shape.positions, "vocab_size": shape.vocabulary, **end}
    search = {"do_sample": False, "repetition_penalty": 1.3, "max_length": shape.positions}
    _write(folder / "genai_config.json", {"model": {**told, "decoder": decoder}, "search": search})
    tokenizer = {"bos_token": END, "eos_token": END, "pad_token": END, "clean_up_tokenization_spaces": False}
    _write(folder / "tokenizer_config.json", tokenizer)


END = "<|endoftext|>"


def _write(path: Path, told: dict[str, object]) -> None:
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "model")
    options = parser.parse_args()
    with np.load(options.weights) as stored:
        weights = {n: stored[n] if n == "shape" else stored[n].astype(np.float32) for n in stored.files}
    shape = graph.Shape(**json.loads(str(weights.pop("shape"))))
    export(weights, shape, options.out)


if __name__ == "__main__":
    main()
