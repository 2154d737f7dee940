"""Opalite that copies in every Concat and Slice, as an engine beside the one that nests tensors:

python -m benchmarks.compare densenet121 --engines opalite,benchmarks.without_aliasing,onnxruntime
"""

from __future__ import annotations

import os

from opalite.bench.engines import Engine, EngineOptions
from opalite.bench.engines import opalite as nesting


def make_engine(options: EngineOptions) -> Engine:
    """A session under OPALITE_BUFFER_ALIASING=0. The worker's process has no other engine."""
    os.environ["OPALITE_BUFFER_ALIASING"] = "0"
    return nesting.make_engine(options)
