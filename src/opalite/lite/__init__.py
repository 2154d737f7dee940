"""opalite.lite: TensorFlow Lite's Interpreter on OpenCL devices.

    from opalite.lite import Interpreter         # for: from ai_edge_litert.interpreter import Interpreter
    import opalite.lite as tflite                # for: import tflite_runtime.interpreter as tflite
    import opalite as tf; tf.lite.Interpreter    # for: import tensorflow as tf

Programs that import these packages themselves run unchanged: `python -m opalite.lite script.py`, or `install()`.

Details, tensors and signatures have LiteRT's names, numbers and types; docs/tflite.md lists the differences.
"""

from __future__ import annotations

from . import experimental
from .delegates import Delegate, load_delegate
from .install import install
from .interpreter import Interpreter
from .signature_runner import SignatureRunner

OpResolverType = experimental.OpResolverType

__all__ = ["Delegate", "Interpreter", "OpResolverType", "SignatureRunner", "experimental", "install", "load_delegate"]
