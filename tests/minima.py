"""`make minima`: five shared models under the lowest versions that pyproject.toml declares.

`python -m tests.minima pins` prints those versions, one a line, as pip installs them; without an argument, the models
run and are compared with what onnxruntime stored for them. Neither pytest nor onnxruntime is needed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]

MODELS = ("mnist_cntk", "mobilenetv2_qdq_int8", "silero_vad_16k", "ppocr_cls", "nms_yolov8")
"""A small one, an int8 one, one with control flow, one whose convolutions are grouped, and one that selects boxes."""

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*>=\s*(?P<least>[\w.]+)\s*(?P<marker>;.*)?")


def find_pins(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """`NAME==VERSION` for each dependency, markers included. ValueError for one that declares no minimum."""
    pins = []
    for text in tomllib.loads(pyproject.read_text())["project"]["dependencies"]:
        found = _REQUIREMENT.fullmatch(text)
        if found is None:
            raise ValueError(f"dependency {text!r} has to be NAME>=VERSION, for `make minima` installs that version")
        pins.append(f"{found['name']}=={found['least']}{found['marker'] or ''}")
    return pins


def check_models() -> int:
    """How many of the models are wrong; a line for each is printed."""
    import opalite
    from opalite.ir.dtype import DType
    from opalite.ir.tolerances import relative_difference, tolerance

    from .models.shared import FOLDER, find_cases

    cases = {case.arrays.stem: case for case in find_cases()}
    if not cases:
        print(f"no models in {FOLDER}; nothing was tried")
        return 0
    wrong = 0
    for name in MODELS:
        feeds, wanted = cases[name].load()
        session = opalite.InferenceSession(cases[name].model, precision="fp32")
        got = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
        kind = "quantised model" if cases[name].tier.startswith("int8") else "model"
        worst = max(relative_difference(got[output], want) for output, want in wanted.items())
        is_right = worst <= tolerance(kind, DType.FLOAT32)
        wrong += not is_right
        print(f"{name}: {'right' if is_right else 'WRONG'}, the largest relative difference is {worst:.2g}")
    return wrong


def main() -> int:
    if sys.argv[1:] == ["pins"]:
        print("\n".join(find_pins()))
        return 0
    print(", ".join(f"{(name := pin.partition('==')[0])} {version(name)}" for pin in find_pins() if ";" not in pin))
    return min(check_models(), 1)


if __name__ == "__main__":
    sys.exit(main())
