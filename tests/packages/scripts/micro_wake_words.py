"""Probabilities of wake words, by ovos-ww-plugin-microwakeword with the streaming int8 models of pymicro-wakeword."""

import json
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

# The plugin's other modules need a voice assistant.
package = Path(find_spec("ovos_ww_plugin_microwakeword").submodule_search_locations[0])
spec = spec_from_file_location("inference", package / "inference.py")
inference = module_from_spec(spec)
spec.loader.exec_module(inference)

models = Path(find_spec("pymicro_wakeword").submodule_search_locations[0]) / "models"
sound = (np.random.default_rng(0).standard_normal(16000 * 3) * 3000).astype(np.int16)
found = {}
for config in sorted(models.glob("*.json")):
    word = json.loads(config.read_text())
    engine = inference.MicroWakeWordEngine(
        str(models / word["model"]), word["micro"]["probability_cutoff"], word["micro"]["sliding_window_size"]
    )
    found[config.stem] = np.array(engine.process_audio(sound.tobytes()), np.float32)
np.savez(sys.argv[1], **found)
