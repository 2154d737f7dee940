"""The classification extension: the largest elements in place of tensors."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from opalite.serve.engine.inference_server import Server
from opalite.serve.wire.classification import Classification
from opalite.serve.wire.infer_messages import InferRequest, InferResponse, RequestedOutput, Tensor
from opalite.serve.wire.serve_errors import Invalid

Y = Tensor("y", "FP32", np.array([[1, 3, 2], [6, 4, 5]], "f4"))


class Batched:
    """A server whose models take batches of `most`."""

    def __init__(self, most: int) -> None:
        self.most = most

    def model_config(self, name: str, version: str) -> dict[str, int]:
        return {"max_batch_size": self.most}


def classified(most: int, count: Any) -> Tensor:
    request = InferRequest("m", (), outputs=(RequestedOutput("y", {"classification": count}),))
    found = Classification(cast(Server, Batched(most)), request).apply(InferResponse("m", "1", "", (Y,)))
    return found.outputs[0]


def test_the_largest_elements_in_place_of_all() -> None:
    rows = classified(4, 2)
    assert (rows.datatype, rows.array.shape) == ("BYTES", (2, 2))
    assert rows.array.tolist() == [[b"3.000000:1", b"2.000000:2"], [b"6.000000:0", b"5.000000:2"]]
    assert classified(0, 1).array.tolist() == [b"6.000000:3"], "without batches the output is one row"


def test_without_classes_the_tensor_stays() -> None:
    assert classified(4, 0) is Y


@pytest.mark.parametrize("count", [-1, True, "2", 1.5])
def test_a_wrong_count_is_an_error(count: Any) -> None:
    with pytest.raises(Invalid, match="'classification' is a number of classes"):
        classified(4, count)
