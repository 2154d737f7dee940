"""What the tests of control flow and sequences share: a model run segment by segment, compared with another engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime

RNG = np.random.default_rng(5)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def check(model: Any, feeds: Mapping[str, Any], oracle: Any = by_onnxruntime) -> NumpySession:
    session = NumpySession(model)
    assert_same(session.run(feeds), oracle(model, feeds))
    return session


def task_names(session: NumpySession) -> list[str]:
    return [type(t).__name__ for t in session.tasks]
