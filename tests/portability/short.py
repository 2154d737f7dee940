"""Runs shared models beside what onnxruntime stored for them: a line of JSON each. For any Python that has Opalite.

    python short.py FOLDER NAME...

It imports nothing of this package, so that another machine's Python can run it.
"""

import json
import sys
import time

import numpy as np

import opalite
from opalite.ir.dtype import DType
from opalite.ir.tolerances import relative_difference, tolerance


def run(folder: str, name: str) -> dict[str, object]:
    """Outcome and seconds of one model."""
    started = time.monotonic()
    session = opalite.InferenceSession(f"{folder}/{name}.onnx", precision="fp32")
    arrays = np.load(f"{folder}/{name}.npz")
    outputs = session.run(None, {i.name: arrays[f"in:{i.name}"] for i in session.get_inputs()})
    allowed = tolerance("quantised model" if "int8" in name else "model", DType.FLOAT32)
    said = ""
    for described, got in zip(session.get_outputs(), outputs, strict=True):
        want = arrays[f"out:{described.name}"]
        worst = relative_difference(got, want)
        if worst > (0 if want.dtype.kind in "iub" else allowed):
            said += f"E AssertionError: {described.name} differs by {worst:.3g}, {allowed:.3g} are allowed\n"
    return {"outcome": "failed" if said else "passed", "text": said, "seconds": round(time.monotonic() - started, 2)}


if __name__ == "__main__":
    for model in sys.argv[2:]:
        try:
            told = run(sys.argv[1], model)
        except Exception as e:  # of whatever kind, it is the model's result
            told = {"outcome": "failed", "text": f"E {type(e).__name__}Error: {e}", "seconds": 0.0}
        print(json.dumps({"model": model, **told}), flush=True)
