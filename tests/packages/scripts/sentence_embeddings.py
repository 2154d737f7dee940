"""Sentence embeddings, by sentence-transformers with backend="onnx"."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import tiny_bert
from sentence_transformers import SentenceTransformer, models

with tempfile.TemporaryDirectory() as folder:
    tiny_bert.save(Path(folder, "bert"))
    word = models.Transformer(str(Path(folder, "bert")))
    whole = SentenceTransformer(modules=[word, models.Pooling(word.get_word_embedding_dimension())], device="cpu")
    whole.save(str(Path(folder, "sentences")))
    options = {"provider": "CPUExecutionProvider", "export": True}
    model = SentenceTransformer(str(Path(folder, "sentences")), backend="onnx", device="cpu", model_kwargs=options)
    np.savez(
        sys.argv[1], embeddings=model.encode(tiny_bert.TEXTS, batch_size=2), by_torch=whole.encode(tiny_bert.TEXTS)
    )
