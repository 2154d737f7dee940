"""Predictor without Ray: columns in, columns out, whatever number of rows the model takes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.ray import Predictor
from opalite.ray.serve_deployment import BatchedRows

from ...helpers.onnx_text import by_onnxruntime
from ...helpers.small_models import classifier, make_model, noise, port

OPEN = classifier().SerializeToString()
X = noise(11, 3, 8, 8)
EXPECTED = by_onnxruntime(classifier(), {"x": X})[0]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def scaled(rows: int | str = "N") -> bytes:
    """y = x * scale, and the sum over all rows."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    inputs = [port("x", [rows, 4]), port("scale", [1])]
    model = make_model(nodes, inputs, [port("y", [rows, 4]), port("total", [])])
    found: bytes = model.SerializeToString()
    return found


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(OPEN, inputs={"x": "picture"}, outputs={"y": "scores"}, keep=["id"])


@pytest.mark.parametrize("rows", [11, 1, 0])
def test_columns_are_mapped_and_kept(predictor: Predictor, rows: int) -> None:
    ids = np.arange(rows)
    found = predictor({"picture": X[:rows], "id": ids, "unused": ids})
    assert list(found) == ["id", "scores"]
    assert found["id"] is ids
    assert found["scores"].shape == (rows, 10)
    close(found["scores"], EXPECTED[:rows])


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_models_of_a_fixed_number_of_rows_run_as_often_as_needed(rows: int) -> None:
    fixed = classifier((rows, 3, 8, 8)).SerializeToString()
    predictor = Predictor(fixed)
    assert predictor.session.stats().runs == 1  # it is warm
    close(predictor({"x": X})["y"], EXPECTED)
    assert predictor.session.stats().runs == 1 + -(-11 // rows)
    assert predictor({"x": X[:0]})["y"].shape == (0, 10)


def test_it_is_warm_before_the_first_batch() -> None:
    sized = Predictor(OPEN, warm_rows=11, shapes={"x": (3, 8, 8)})
    assert sized.session.stats().runs == 1
    builds = sized.session.runtime.counters.programs_built
    close(sized({"x": X})["y"], EXPECTED)
    assert sized.session.runtime.counters.programs_built == builds
    assert Predictor(OPEN).session.stats().runs == 0  # of a size that nobody has said
    assert Predictor(OPEN, warm_rows=0, shapes={"x": (3, 8, 8)}).session.stats().runs == 0


def test_a_failed_warm_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "opalite.ray"):
        close(Predictor(OPEN, shapes={"x": (5, 8, 8)})({"x": X})["y"], EXPECTED)
    assert "before the first batch failed" in caplog.text


def test_constants_are_no_columns() -> None:
    predictor = Predictor(scaled(), constants={"scale": np.array([2], np.float32)}, outputs=["y"])
    x = noise(5, 4)
    close(predictor({"x": x})["y"], 2 * x)
    with pytest.raises(opalite.InputError, match="name only outputs with a row"):
        Predictor(scaled(), constants={"scale": np.array([2], np.float32)})({"x": x})


def test_numbers_are_cast_and_rows_stacked(predictor: Predictor) -> None:
    ids = np.arange(11)
    close(predictor({"picture": X.astype(np.float64), "id": ids})["scores"], EXPECTED)
    listed = np.empty(11, object)
    listed[:] = list(X)
    close(predictor({"picture": listed, "id": ids})["scores"], EXPECTED)
    listed[3] = X[3, :, :4]
    with pytest.raises(opalite.InputError, match=r"rows of shapes \(3, 4, 8\) and \(3, 8, 8\)"):
        predictor({"picture": listed, "id": ids})
    with pytest.raises(opalite.InputError, match="float"):
        predictor({"picture": X.astype("U8"), "id": ids})


def test_zero_copy_batches_are_only_read(predictor: Predictor) -> None:
    x = X.copy()
    x.flags.writeable = False
    close(predictor({"picture": x, "id": np.arange(11)})["scores"], EXPECTED)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"inputs": {"z": "picture"}}, r"no input \['z'\]; its inputs are x"),
        ({"constants": {"z": 1}}, r"no input \['z'\]"),
        ({"outputs": ["z"]}, r"no output \['z'\]; its outputs are y"),
        ({"keep": ["y"]}, r"columns \['y'\] are kept and are outputs"),
    ],
)
def test_errors_of_wrong_names_list_the_valid_ones(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(opalite.InputError, match=message):
        Predictor(OPEN, **arguments)


def test_wrong_batches_raise(predictor: Predictor) -> None:
    with pytest.raises(opalite.InputError, match=r"no column \['id', 'picture'\]; it has x"):
        predictor({"x": X})
    fixed = make_model(
        [helper.make_node("Add", ["a", "b"], ["y"])], [port("a", [2, 4]), port("b", [1, 4])], [port("y", [2, 4])]
    )
    with pytest.raises(opalite.InputError, match="different numbers of rows"):
        Predictor(fixed.SerializeToString())
    both = make_model(
        [helper.make_node("Add", ["a", "b"], ["y"])], [port("a", ["N", 4]), port("b", ["N", 4])], [port("y", ["N", 4])]
    )
    with pytest.raises(opalite.InputError, match="different lengths"):
        Predictor(both.SerializeToString())({"a": noise(3, 4), "b": noise(2, 4)})


def test_rows_of_a_service_are_computed_together_and_fail_alone() -> None:
    rows = BatchedRows(OPEN, {})
    before = rows._predictor.session.stats().runs
    given = [{"x": x} for x in X[:5]] + [{"x": X[5, :2]}, {"y": X[0]}, {"x": X[6].tolist()}, {"x": noise(3, 4, 4)}]
    found = rows.compute(given)
    for i in range(5):
        close(found[i]["y"], EXPECTED[i])  # type: ignore[index]
    assert isinstance(found[5], opalite.InputError)
    assert "no column ['x']" in str(found[6])
    close(found[7]["y"], EXPECTED[6])  # type: ignore[index]
    assert found[8]["y"].shape == (10,)  # type: ignore[index]
    assert rows._predictor.session.stats().runs == before + 3
