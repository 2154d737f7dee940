"""What is wrong, and which class says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import onnx

from . import models
from .idiom import differs, idiom
from .models import X

CPU = ["CPUExecutionProvider"]


def session(ort: Any) -> Any:
    return ort.InferenceSession(models.multiply(), providers=CPU)


@idiom
def feed_without_an_input(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {})


@idiom
def feed_of_a_misspelt_input(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"x": X})


@idiom
def feed_with_one_too_many(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": X, "Z": X})


@idiom
def feed_of_another_rank(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": X[0]})


@idiom
def feed_of_another_size(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": X[:2]})


@idiom
def feed_of_doubles(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": X.astype(np.float64)})


@idiom
def feed_of_integers(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": X.astype(np.int64)})


@idiom
def feed_of_a_text(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": "a"})


@idiom
def feed_of_a_ragged_list(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": [[1, 2], [3]]})


@differs("a list in place of a dict is a TypeError, not an AttributeError")
def feed_that_is_no_dict(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, [X])


@differs("None is told before the model runs")
def feed_of_none(ort: Any, tmp: Path) -> Any:
    session(ort).run(None, {"X": None})


@idiom
def output_that_is_none(ort: Any, tmp: Path) -> Any:
    session(ort).run(["Q"], {"X": X})


@idiom
def output_by_a_text(ort: Any, tmp: Path) -> Any:
    session(ort).run("Y", {"X": X})


@idiom
def output_by_number(ort: Any, tmp: Path) -> Any:
    session(ort).run([0], {"X": X})


@idiom
def no_such_file(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(str(tmp / "nope.onnx"), providers=CPU)


@idiom
def garbage(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(b"garbage", providers=CPU)


@idiom
def cut_off(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply()[:-20], providers=CPU)


@idiom
def empty(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(b"", providers=CPU)


@idiom
def a_folder(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(str(tmp), providers=CPU)


@idiom
def a_file_of_text(ort: Any, tmp: Path) -> Any:
    (tmp / "m.onnx").write_text("hello")
    ort.InferenceSession(str(tmp / "m.onnx"), providers=CPU)


@idiom
def a_number(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(5, providers=CPU)


@idiom
def nothing(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(None, providers=CPU)


@idiom
def an_empty_path(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession("", providers=CPU)


@idiom
def a_model_proto(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(onnx.load_from_string(models.multiply()), providers=CPU)


@idiom
def unknown_operator(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.faulty("operator"), providers=CPU)


@idiom
def unknown_domain(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.faulty("domain"), providers=CPU)


@idiom
def an_edge_from_nowhere(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.faulty("edge"), providers=CPU)


@idiom
def sizes_that_do_not_fit(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.product(), providers=CPU).run(None, {"X": X, "Z": X})


@differs("a TypeError in any case; an AttributeError where providers are given")
def options_that_are_a_dict(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), sess_options={"logid": "a"}, providers=CPU)


@idiom
def providers_without_fallback_of_numbers(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), providers=[3], enable_fallback=0)


@idiom
def providers_without_fallback_of_a_dict(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), providers={"CPUExecutionProvider": {}}, enable_fallback=0)


@idiom
def options_of_providers_too_many(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), None, CPU, [{}, {}], enable_fallback=0)


@idiom
def options_of_providers_twice(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), None, [("CPUExecutionProvider", {})], [{}], enable_fallback=0)


@differs("malformed providers are an error in any case; onnxruntime prints and takes the CPU")
def providers_of_numbers(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.multiply(), providers=[3]).run(None, {"X": X})


@differs("a misspelt keyword is a TypeError; onnxruntime ignores it")
def keyword_that_is_not_there(ort: Any, tmp: Path) -> Any:
    try:
        return ort.InferenceSession(models.multiply(), nonsense=1).run(None, {"X": X})
    except TypeError:
        return "TypeError"


@idiom
def errors_by_their_names(ort: Any, tmp: Path) -> Any:
    """`except` clauses that scripts have."""
    state = __import__(f"{ort.__name__}.capi.onnxruntime_pybind11_state", fromlist=["Fail"])
    found = []
    for work in (
        lambda: session(ort).run(None, {"X": X[:2]}),
        lambda: session(ort).run(None, {}),
        lambda: ort.InferenceSession(str(tmp / "nope.onnx")),
        lambda: ort.InferenceSession(b"garbage"),
    ):
        try:
            work()
        except ValueError:
            found.append("ValueError")
        except state.NoSuchFile:
            found.append("NoSuchFile")
        except state.InvalidProtobuf:
            found.append("InvalidProtobuf")
        except (state.InvalidArgument, state.Fail, state.RuntimeException):
            found.append("InvalidArgument")
    return found


@idiom
def names_of_errors(ort: Any, tmp: Path) -> Any:
    state = __import__(f"{ort.__name__}.capi.onnxruntime_pybind11_state", fromlist=["Fail"])
    names = "Fail InvalidArgument NoSuchFile NoModel EngineError RuntimeException InvalidProtobuf ModelLoaded "
    names += "NotImplemented InvalidGraph EPFail NotFound DeviceReset ModelLoadCanceled ModelRequiresCompilation"
    return [(n, issubclass(getattr(state, n), Exception)) for n in names.split()]
