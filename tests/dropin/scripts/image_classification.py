"""Classify a picture: the usual preprocessing, a session with options, the five best classes."""

import sys

import numpy as np
import onnxruntime as ort
from PIL import Image


def preprocess(path):
    image = Image.open(path).convert("RGB").resize((36, 36)).crop((2, 2, 34, 34))
    x = np.asarray(image, dtype=np.float32) / 255.0
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    x = (x - mean) / std
    return np.expand_dims(x.transpose(2, 0, 1), 0).astype(np.float32)


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


def main(model_path, image_path):
    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" in ort.get_available_providers():
        providers.insert(0, "CUDAExecutionProvider")
    session = ort.InferenceSession(model_path, sess_options=options, providers=providers)

    input_name = session.get_inputs()[0].name
    batch, channels, height, width = session.get_inputs()[0].shape
    print("input:", input_name, [channels, height, width])
    assert isinstance(batch, str)

    labels = session.get_modelmeta().custom_metadata_map["labels"].split(",")
    scores = session.run(None, {input_name: preprocess(image_path)})[0]
    chances = softmax(scores[0])
    for i in np.argsort(chances)[::-1][:5]:
        print(f"{labels[i]}: {chances[i]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
