"""Speech probabilities of each chunk, by silero-vad with its ONNX model."""

import sys

import numpy as np
import torch
from silero_vad import load_silero_vad

rng = np.random.default_rng(0)
seconds = np.arange(3 * 16000) / 16000
tone = np.sin(2 * np.pi * 180 * seconds) * (np.sin(2 * np.pi * 3 * seconds) > 0)
audio = torch.from_numpy((0.3 * tone + 0.01 * rng.standard_normal(tone.shape)).astype(np.float32))
found = {}
for rate in (16000, 8000):
    model = load_silero_vad(onnx=True)
    found[f"p{rate}"] = model.audio_forward(audio[:: 16000 // rate], sr=rate).numpy()
np.savez(sys.argv[1], **found)
