"""Text embeddings, by fastembed with a model of one's own."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import tiny_bert
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from optimum.exporters.onnx import main_export

with tempfile.TemporaryDirectory() as folder:
    tiny_bert.save(Path(folder, "bert"))
    main_export(str(Path(folder, "bert")), folder, task="feature-extraction")
    TextEmbedding.add_custom_model(
        "own/bert", PoolingType.MEAN, True, ModelSource(hf="own/bert"), dim=48, model_file="model.onnx"
    )
    model = TextEmbedding("own/bert", specific_model_path=folder)
    np.savez(sys.argv[1], embeddings=np.stack(list(model.embed(tiny_bert.TEXTS))))
