"""The decoders of llama.py as llama.cpp reads them: the same random weights in a GGUF file.

Needs the package gguf. Its rotations take neighbouring pairs, so rows of queries and keys are reordered. There are no
words: tokens are numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onnx import numpy_helper

from .llama import Shape, decoder

Array = np.ndarray[Any, Any]
PRODUCTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def save_gguf(shape: Shape, path: Path, kind: str = "F32", *, seed: int = 0) -> Path:
    """Writes the decoder of `shape`, without biases and ties, to `path`.

    kind: type of the products' weights in gguf's names: F32, F16, Q4_0, Q8_0. The embedding and the norms stay float32.
    """
    if shape.bias or shape.tied:
        raise ValueError("biases and tied embeddings are not written")
    import gguf

    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(shape.words)
    writer.add_tokenizer_model("no_vocab")
    for name, array in _tensors(shape, seed).items():
        to = kinds[kind] if array.ndim == 2 and name != "token_embd.weight" else kinds.F32
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(array), to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(shape: Shape, seed: int) -> dict[str, Array]:
    """The weights of the ONNX model by llama.cpp's names, each [out, in]."""
    graph = decoder(shape, seed=seed).graph
    held = {i.name: i for i in graph.initializer}
    products = [held[n.input[1]] for n in graph.node if n.op_type == "MatMul" and n.input[1] in held]
    scales = [i for i in graph.initializer if tuple(i.dims) == (shape.width,)]
    (words,) = (i for i in graph.initializer if tuple(i.dims) == (shape.words, shape.width))
    assert len(products) == len(PRODUCTS) * shape.layers + 1
    assert len(scales) == 2 * shape.layers + 1
    found: dict[str, Array] = {"token_embd.weight": numpy_helper.to_array(words)}
    for layer in range(shape.layers):
        for i, name in enumerate(PRODUCTS):
            array = numpy_helper.to_array(products[len(PRODUCTS) * layer + i]).T
            heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads}.get(name)
            if heads:
                array = array.reshape(heads, 2, shape.head // 2, -1).swapaxes(1, 2).reshape(array.shape)
            found[f"blk.{layer}.{name}.weight"] = array
        for i, name in enumerate(("attn_norm", "ffn_norm")):
            found[f"blk.{layer}.{name}.weight"] = numpy_helper.to_array(scales[2 * layer + i])
    found["output_norm.weight"] = numpy_helper.to_array(scales[-1])
    found["output.weight"] = numpy_helper.to_array(products[-1]).T
    return found
