"""Speech probabilities and segments, by faster-whisper's voice activity detection."""

import sys

import numpy as np
from faster_whisper.vad import VadOptions, get_speech_timestamps, get_vad_model

rng = np.random.default_rng(1)
seconds = np.arange(4 * 16000) / 16000
voice = sum(np.sin(2 * np.pi * 120 * k * seconds) / k for k in range(1, 8)) * (np.sin(2 * np.pi * 2 * seconds) > 0)
audio = (0.2 * voice + 0.01 * rng.standard_normal(voice.shape)).astype(np.float32)
padded = np.pad(audio, (0, -len(audio) % 512))
times = get_speech_timestamps(audio, VadOptions(threshold=0.3))
np.savez(sys.argv[1], p=get_vad_model()(padded), times=np.array([[t["start"], t["end"]] for t in times]))
