"""Invalid requests are refused before they are queued, with a full message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.utils import np_to_triton_dtype

from opalite.serve.engine.model_config import ServerSettings
from opalite.serve.engine.validate_requests import RequestValidator
from opalite.serve.wire.infer_messages import InferRequest, RequestedOutput, Tensor, TensorMetadata
from opalite.serve.wire.serve_errors import Invalid, ServeError, TooLarge

SETTINGS = ServerSettings(max_elements=100, max_input_bytes=600)
INPUTS = [TensorMetadata("a", "FP32", (-1, 3)), TensorMetadata("b", "INT64", (-1, -1))]
CHECKER = RequestValidator(INPUTS, [TensorMetadata("y", "FP32", (-1,))], SETTINGS, True, 4)


def request(outputs: tuple[str, ...] = (), **arrays: Any) -> InferRequest:
    tensors = tuple(Tensor(n, np_to_triton_dtype(a.dtype), a) for n, a in arrays.items())
    return InferRequest("m", tensors, outputs=tuple(RequestedOutput(n) for n in outputs))


def test_rows_and_what_may_go_together() -> None:
    rows, key, nbytes = CHECKER.check(request(a=np.zeros((2, 3), "f4"), b=np.zeros((2, 5), "i8")))
    assert (rows, nbytes) == (2, 24 + 80)
    assert key == CHECKER.check(request(b=np.zeros((1, 5), "i8"), a=np.zeros((1, 3), "f4")))[1]
    assert key != CHECKER.check(request(a=np.zeros((1, 3), "f4"), b=np.zeros((1, 4), "i8")))[1]
    assert key != CHECKER.check(request(("y",), a=np.zeros((2, 3), "f4"), b=np.zeros((2, 5), "i8")))[1]
    assert CHECKER.check(request(a=np.zeros((0, 3), "f4"), b=np.zeros((0, 5), "i8")))[1] is None


@pytest.mark.parametrize(
    "given, kind, reason",
    [
        (
            {"a": np.zeros((1, 3), "f4")},
            Invalid,
            r"input 'b' of model 'm' is missing; its inputs are 'a' \(FP32\[-1, 3",
        ),
        ({"a": np.zeros((1, 3), "f4"), "c": np.zeros(1)}, Invalid, "no input named 'c'"),
        ({"a": np.zeros((1, 3)), "b": np.zeros((1, 1), "i8")}, Invalid, "input 'a' is FP32, got FP64"),
        ({"a": np.zeros((1, 4), "f4"), "b": np.zeros((1, 1), "i8")}, Invalid, r"\[-1, 3\].*got \[1, 4\]"),
        ({"a": np.zeros(3, "f4"), "b": np.zeros((1, 1), "i8")}, Invalid, r"got \[3\]"),
        ({"a": np.zeros((1, 3), "f4"), "b": np.zeros((2, 1), "i8")}, Invalid, "'b' has 2 rows, and the inputs before"),
        ({"a": np.zeros((5, 3), "f4"), "b": np.zeros((5, 1), "i8")}, Invalid, "a batch of 5, and model 'm' takes 4"),
        (
            {"a": np.zeros((1, 3), "f4"), "b": np.zeros((1, 101), "i8")},
            TooLarge,
            "101 elements, and the server takes 100",
        ),
        ({"a": np.zeros((1, 3), "f4"), "b": np.zeros((1, 80), "i8")}, TooLarge, "652 bytes, and the server takes 600"),
    ],
)
def test_what_does_not_fit(given: dict[str, Any], kind: type[ServeError], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        CHECKER.check(request(**given))


def test_names_that_are_wrong_or_twice() -> None:
    a, b = np.zeros((1, 3), "f4"), np.zeros((1, 1), "i8")
    with pytest.raises(Invalid, match="no output named 'z'; its outputs are y"):
        CHECKER.check(request(("z",), a=a, b=b))
    twice = InferRequest("m", tuple(Tensor("a", "FP32", a) for _ in range(2)))
    with pytest.raises(Invalid, match="input 'a' is given twice"):
        CHECKER.check(twice)
