"""Opalite without buffer aliasing as an engine: every Concat and Slice copies.


python -m benchmarks.compare densenet121 --engines opalite,benchmarks.without_aliasing,onnxruntime
"""

from __future__ import annotations

import os

from opalite.bench.engines import Engine, EngineOptions
from opalite.bench.engines import opalite as nesting


def make_engine(options: EngineOptions) -> Engine:
    """A session with OPALITE_BUFFER_ALIASING=0. The worker process has no other engine."""
    os.environ["OPALITE_BUFFER_ALIASING"] = "0"
    return nesting.make_engine(options)
