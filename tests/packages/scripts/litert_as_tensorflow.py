"""Gives packages written for tensorflow.lite the Interpreter of LiteRT, where neither tensorflow nor Opalite is it."""

import math
import sys
from importlib.util import find_spec
from types import ModuleType

import numpy as np

np.math = math  # which older packages call so, and NumPy 2 has no more
if "tensorflow" not in sys.modules and find_spec("tensorflow") is None:
    from ai_edge_litert import interpreter

    made = ModuleType("tensorflow")
    made.lite = interpreter
    sys.modules.update({"tensorflow": made, "tflite_runtime": ModuleType("tflite_runtime")})
    sys.modules["tflite_runtime.interpreter"] = sys.modules["tflite_runtime"].interpreter = interpreter
