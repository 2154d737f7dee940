"""Scores of wake words, by openwakeword with the models that pyopen-wakeword brings."""

import sys
from importlib.util import find_spec
from pathlib import Path

import litert_as_tensorflow  # noqa: F401
import numpy as np
from openwakeword.model import Model

np.random.seed(0)  # the package begins with noise
folder = Path(find_spec("pyopen_wakeword").submodule_search_locations[0]) / "models"
words = ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")
model = Model(
    wakeword_models=[str(folder / f"{word}.tflite") for word in words],
    melspec_model_path=str(folder / "melspectrogram.tflite"),
    embedding_model_path=str(folder / "embedding_model.tflite"),
    inference_framework="tflite",
)
sound = (np.random.default_rng(0).standard_normal(16000 * 2) * 3000).astype(np.int16)
scores = [model.predict(sound[at : at + 1280]) for at in range(0, len(sound), 1280)]
np.savez(sys.argv[1], **{word: np.array([s[word] for s in scores], np.float32) for word in words})
