"""`python -m opalite.onnxruntime`: run a script or module in which `import onnxruntime` imports Opalite."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from .. import knobs
from . import install

SITE = Path(__file__).parent / "site"
"""Folder of a sitecustomize.py that installs Opalite as onnxruntime."""


def _arguments() -> argparse.Namespace:
    """The command line. Ends the process on errors, --help and --site-path."""
    parser = argparse.ArgumentParser(
        prog="python -m opalite.onnxruntime",
        description="Run a script. Its `import onnxruntime`, and that of processes that it starts, give Opalite.",
    )
    parser.add_argument("--device", help="device of all sessions, also where a package asks for the CPU")
    parser.add_argument(
        "--site-path", action="store_true", help="print a folder for PYTHONPATH: processes with it get Opalite too"
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("script", nargs="?", help="a file, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    found = parser.parse_args()
    if found.site_path:
        print(SITE)
        parser.exit()
    if found.script is None:
        parser.error("name a script, or -m and a module")
    if not found.is_module and not Path(found.script).exists():
        parser.error(f"there is no file '{found.script}'")
    return found


def main() -> None:
    """Run what the command line names."""
    given = _arguments()
    install(given.device)
    knobs.set_foreign("PYTHONPATH", os.pathsep.join(filter(None, [str(SITE), knobs.foreign("PYTHONPATH")])))
    sys.argv = [given.script, *given.arguments]
    if given.is_module:
        runpy.run_module(given.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(given.script).resolve().parent)
        runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    main()
