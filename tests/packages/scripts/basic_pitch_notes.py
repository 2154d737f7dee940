"""Notes of a melody by basic-pitch's .tflite model."""

import sys

import litert_as_tensorflow  # noqa: F401
import numpy as np
from basic_pitch import FilenameSuffix, build_icassp_2022_model_path
from basic_pitch.inference import Model, run_inference
from scipy.io import wavfile

rate = 22050
at = np.arange(rate) / rate
melody = np.concatenate([np.sin(2 * np.pi * f * at) * np.exp(-2 * at) for f in (220, 330, 440)])
wavfile.write("melody.wav", rate, (melody * 20000).astype(np.int16))
model = Model(build_icassp_2022_model_path(FilenameSuffix.tflite))
np.savez(sys.argv[1], **run_inference("melody.wav", model))
