"""Folders of embedding models as sentence-transformers writes them, around a small encoder of random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnx import TensorProto

from .decoders import WIDTH, WORDS, Decoder
from .words import make_folder

STEPS = ("Transformer", "Pooling", "Normalize")


def encoder(seed: int = 11) -> bytes:
    """Hidden states [B,T,WIDTH] of tokens, mask and types, by one layer of attention without positions."""
    net = Decoder(seed=seed)
    sizes = ("batch_size", "sequence_length")
    ids, mask, types = (
        net.input(n, TensorProto.INT64, sizes) for n in ("input_ids", "attention_mask", "token_type_ids")
    )
    tables = [net.const(net.rng.standard_normal((rows, WIDTH))) for rows in (WORDS, 2)]
    x = net.op("Add", *(net.op("Gather", table, index) for table, index in zip(tables, (ids, types), strict=True)))
    hidden = net.op("Equal", net.op("Unsqueeze", mask, net.ints(1)), net.const(0, "int64"))
    scores = net.op("MatMul", net.linear(x, WIDTH, WIDTH), net.op("Transpose", x, perm=[0, 2, 1]))
    bias = net.op("Where", hidden, net.const(-3.4e38), net.const(0.0))
    weights = net.op("Softmax", net.op("Add", net.op("Mul", scores, net.const(0.1)), bias), axis=-1)
    x = net.feed_forward(net.op("Add", x, net.op("MatMul", weights, x)))
    net.output(x, "last_hidden_state", (*sizes, WIDTH))
    return net.model("encoder")


def make_embedder(path: Path, steps: tuple[str, ...] = STEPS, pooling: dict[str, Any] | None = None) -> Path:
    """Write a folder with `steps`. pooling: of 1_Pooling/config.json."""
    made = make_folder(path, {"onnx/model.onnx": encoder()}, sentence_bert_config={"max_seq_length": 24})
    listed = [
        {"idx": n, "path": "" if n == 0 else f"{n}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(steps)
    ]
    (made / "modules.json").write_text(json.dumps(listed))
    (made / "1_Pooling").mkdir(exist_ok=True)
    told = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True} if pooling is None else pooling
    (made / "1_Pooling" / "config.json").write_text(json.dumps(told))
    return made
