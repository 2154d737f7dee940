"""Start-up hook: `import onnxruntime` imports Opalite in a Python process with this folder in PYTHONPATH.

Python imports one sitecustomize at its start; the one that this file hides is imported after it.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from opalite.onnxruntime import install

install()

_here = Path(__file__).parent
_hidden = PathFinder.find_spec("sitecustomize", [p for p in sys.path if Path(p) != _here])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(module_from_spec(_hidden))
