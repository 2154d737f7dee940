"""One operator of a .tflite file by the importer and the operators' references, compared with LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....helpers.numpy_session import NumpySession
from ....helpers.tflite_files import litert, one_op
from ..oracles import assert_same

Array = np.ndarray[Any, Any]


def ran(model: bytes, feeds: Sequence[Array]) -> list[Array]:
    """Return the outputs by the importer; no task may be left to the host."""
    session = NumpySession(model)
    names = [v.name for v in session.model.inputs]
    return list(session.run(dict(zip(names, feeds, strict=True))))


def check_op(*args: Any, tol: float = 1e-5, **kwargs: Any) -> list[Array]:
    """Compare an operator (arguments of `one_op`) with LiteRT; return the outputs."""
    model, feeds = one_op(*args, **kwargs)
    return check_file(model, feeds, tol)


def check_file(model: bytes, feeds: Sequence[Array], tol: float = 1e-5) -> list[Array]:
    """Compare a file with LiteRT; return the outputs."""
    found = ran(model, feeds)
    assert_same(found, litert(model, feeds), tol)
    return found
