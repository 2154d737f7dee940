"""`python -m opalite.lite` gives packages of TensorFlow Lite's Interpreter Opalite's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .test_interpreter import dense_file

SCRIPT = """
import sys
import tflite_runtime.interpreter as tflite
from ai_edge_litert.interpreter import Interpreter
assert tflite.Interpreter is Interpreter and Interpreter.__module__.startswith("opalite"), Interpreter
assert sys.argv[1:] == ["--device", "given"], sys.argv
import ai_edge_litert.schema_py_generated  # still the installed package's
i = Interpreter(sys.path[0] + "/model.tflite")
i.allocate_tensors()
i.invoke()
print(i.get_tensor(i.get_output_details()[0]["index"]).tolist())
"""


def test_a_script_gets_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(dense_file())
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "opalite.lite", str(script), "--device", "given"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[[1.0,", "1.0]]"]
    command[3:] = [str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "there is no file" in done.stderr
