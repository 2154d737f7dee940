"""`python -m opalite.lite`: run a script in which `import tflite_runtime` or `ai_edge_litert` gives Opalite."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from .install import install


def main() -> None:
    """Run the script or module that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m opalite.lite",
        description="Run a script. Its `import tflite_runtime`, `ai_edge_litert` or, where there is no tensorflow, "
        "`tensorflow` gives Opalite's Interpreter.",
    )
    parser.add_argument("--device", help="device of all interpreters")
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("script", help="a file, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    found = parser.parse_args()
    if not found.is_module and not Path(found.script).exists():
        parser.error(f"there is no file '{found.script}'")
    install(found.device)
    sys.argv = [found.script, *found.arguments]
    if found.is_module:
        sys.path.insert(0, "")
        runpy.run_module(found.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(found.script).resolve().parent))
        runpy.run_path(found.script, run_name="__main__")


if __name__ == "__main__":
    main()
