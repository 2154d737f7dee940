"""Sessions: how they are opened, what they say, how they run.

Longer than 400 lines: a list of idioms.
"""

from __future__ import annotations

import pathlib
import threading
from pathlib import Path
from typing import Any

import numpy as np

from onnx import TensorProto as T

from . import models
from .idiom import differs, idiom, refused
from .models import W, X

CPU = ["CPUExecutionProvider"]


def saved(folder: Path, model: bytes) -> str:
    path = folder / "model.onnx"
    path.write_bytes(model)
    return str(path)


# Opening


@idiom
def open_by_path(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(saved(tmp, models.multiply())).run(None, {"X": X})


@idiom
def open_by_path_object(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(pathlib.Path(saved(tmp, models.multiply())), providers=CPU).run(None, {"X": X})


@idiom
def open_by_bytes(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.multiply(), providers=ort.get_available_providers()).run(["Y"], {"X": X})


@idiom
def open_by_position(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.multiply(), ort.SessionOptions(), CPU, [{}]).run(None, {"X": X})


@idiom
def open_by_names(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(
        path_or_bytes=models.multiply(), sess_options=ort.SessionOptions(), providers=CPU, provider_options=[{}]
    )
    return session.run(output_names=["Y"], input_feed={"X": X}, run_options=None)


@idiom
def open_with_provider_tuples(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=[("CPUExecutionProvider", {"some": 1})])
    return session.run(None, {"X": X}), session.get_providers()


@idiom
def open_for_cuda_else_the_cpu(ort: Any, tmp: Path) -> Any:
    """Without a GPU the second name counts."""
    if ort.get_device() != "CPU":
        return ["CPUExecutionProvider"]
    return ort.InferenceSession(
        models.multiply(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
    ).get_providers()


@idiom
def open_with_a_name_twice(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.multiply(), providers=CPU * 2).get_providers()


@idiom
def open_with_no_fallback(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU, enable_fallback=0)
    session.disable_fallback()
    session.enable_fallback()
    return session.run(None, {"X": X})


@differs("the default is the best OpenCL device, so its provider is named first")
def providers_by_default(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.multiply()).get_providers()


@idiom
def providers_asked_for(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    return session.get_providers(), session.get_provider_options()


@idiom
def set_providers_later(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    session.set_providers(["CPUExecutionProvider"], [{"use_arena": "1"}])
    return session.get_providers(), session.run(None, {"X": X})


@idiom
def set_providers_unknown(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), providers=CPU).set_providers(["InvalidProvider"])


@idiom
def providers_unknown_go_on(ort: Any, tmp: Path) -> Any:
    """onnxruntime warns, and takes what it has."""
    return ort.InferenceSession(models.multiply(), providers=["InvalidProvider", *CPU]).run(None, {"X": X})


# What a session says


@idiom
def inputs_and_outputs(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    return [(a.name, a.type, a.shape) for a in (*session.get_inputs(), *session.get_outputs())]


@idiom
def inputs_as_text(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.product(), providers=CPU)
    return [str(a) for a in (*session.get_inputs(), *session.get_outputs())]


@idiom
def open_sizes(ort: Any, tmp: Path) -> Any:
    return [a.shape for a in ort.InferenceSession(models.same(shape=(None, "n")), providers=CPU).get_inputs()]


@idiom
def inputs_in_the_order_of_the_model(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.logical(), providers=CPU)
    a, b = np.array([[True, True], [False, False]]), np.array([[True, False], [True, False]])
    first, second = session.get_inputs()
    return first.name, second.name, first.type, session.run(None, {first.name: a, second.name: b})


@idiom
def metadata(ort: Any, tmp: Path) -> Any:
    meta = ort.InferenceSession(models.described(), providers=CPU).get_modelmeta()
    return [
        meta.producer_name,
        meta.graph_name,
        meta.domain,
        meta.description,
        meta.graph_description,
        meta.version,
        meta.custom_metadata_map,
    ]


@idiom
def metadata_that_is_not_there(ort: Any, tmp: Path) -> Any:
    meta = ort.InferenceSession(models.multiply(), providers=CPU).get_modelmeta()
    return meta.domain, meta.version, meta.custom_metadata_map


@idiom
def initializers_that_may_be_fed(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.overridable(), providers=CPU)
    names = [a.name for a in session.get_overridable_initializers()]
    return names, session.run(None, {"X": X}), session.run(None, {"X": X, "W": W * 2})


@idiom
def memory_of_inputs(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    infos = (*session.get_input_memory_infos(), *session.get_output_memory_infos())
    return [(m.device_id, m.mem_type, m.device_mem_type) for m in infos], len(session.get_input_epdevices())


@idiom
def assignment_must_be_asked_for(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.chain(), providers=CPU).get_provider_graph_assignment_info()


@differs("fused nodes count as one, and the provider is OpenCL's")
def assignment_of_nodes(ort: Any, tmp: Path) -> Any:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(models.chain(), options)
    return [(s.ep_name, [n.op_type for n in s.get_nodes()]) for s in session.get_provider_graph_assignment_info()]


@idiom
def tuning_results(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    session.set_tuning_results([])
    return session.get_tuning_results()


# Running


@idiom
def run_all_outputs_by_an_empty_list(ort: Any, tmp: Path) -> Any:
    a = np.arange(10, dtype=np.float32)
    return ort.InferenceSession(models.two_outputs(), providers=CPU).run([], {"A": a, "B": a})


@idiom
def run_outputs_in_any_order(ort: Any, tmp: Path) -> Any:
    a = np.arange(10, dtype=np.float32)
    session = ort.InferenceSession(models.two_outputs(), providers=CPU)
    return session.run(("difference", "sum", "difference"), {"A": a, "B": a * 2})


@idiom
def run_by_the_names_that_it_says(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    return session.run([o.name for o in session.get_outputs()], {i.name: X for i in session.get_inputs()})


@idiom
def run_lists(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.multiply(), providers=CPU).run([], {"X": X.tolist()})


@idiom
def run_numbers(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.scalar(), providers=CPU)
    return session.run(None, {"X": np.array(2, np.float32)})


@idiom
def run_columns(ort: Any, tmp: Path) -> Any:
    """An array that is not contiguous."""
    return ort.InferenceSession(models.multiply(), providers=CPU).run(None, {"X": X[:, [1, 0]][:, ::-1]})


@idiom
def run_any_size(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.product(), providers=CPU)
    return [session.run(None, {"X": np.ones((n, 4), np.float32), "Z": np.ones((4, 2), np.float32)}) for n in (1, 3, 0)]


@idiom
def run_every_type(ort: Any, tmp: Path) -> Any:
    kinds = {T.DOUBLE: "f8", T.INT8: "i1", T.INT16: "i2", T.INT32: "i4", T.INT64: "i8", T.UINT8: "u1", T.UINT16: "u2"}
    kinds |= {T.UINT32: "u4", T.UINT64: "u8", T.BOOL: "?", T.FLOAT16: "f2"}
    found = []
    for kind, name in kinds.items():
        session = ort.InferenceSession(models.same(kind), providers=CPU)
        found.append((session.get_inputs()[0].type, session.run(None, {"X": np.arange(4).reshape(2, 2).astype(name)})))
    return found


@idiom
def run_text(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.same(T.STRING), providers=CPU)
    texts = [["this", "is"], ["Olá", "你好"]]
    return [session.run(None, {"X": x}) for x in (np.array(texts), np.array(texts, object), texts)]


@idiom
def run_bytes_as_text(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.same(T.STRING), providers=CPU)
    x = np.array([b"this", b"is", b"a", b"test"], "S8").reshape(2, 2)  # longer than any: onnxruntime reads to a zero
    return session.get_inputs()[0].type, session.run(None, {"X": x})


@idiom
def run_void_as_text(ort: Any, tmp: Path) -> Any:
    x = np.array([b"must", b"have", b"same", b"size"], np.void).reshape(2, 2)
    return ort.InferenceSession(models.same(T.STRING), providers=CPU).run(None, {"X": x})


@idiom
def run_objects_as_text(ort: Any, tmp: Path) -> Any:
    x = np.array([["a", None], [1, "c"]], object)
    return ort.InferenceSession(models.same(T.STRING), providers=CPU).run(None, {"X": x})


@differs("single numbers serve for scalars")
def run_a_python_number(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.scalar(), providers=CPU).run(None, {"X": 2.0})


@idiom
def run_labels(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.encoded(), providers=CPU)
    return session.run(None, {"X": np.array([["4"], ["cat"], ["?"]])})


@idiom
def run_from_sequences(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.length(), providers=CPU)
    return session.get_inputs()[0].type, session.run(None, {"X": [X, X]})


@idiom
def run_to_sequences(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.constructed(), providers=CPU)
    a = np.arange(6).reshape(2, 3)
    return session.get_outputs()[0].type, session.get_outputs()[0].shape, session.run(None, {"A": a, "B": a * 2})


@idiom
def run_empty_sequences(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.inserted(), providers=CPU)
    return session.run(["Y"], {"A": np.arange(6).reshape(2, 3), "S": []})


@idiom
def run_optional_sequences(ort: Any, tmp: Path) -> Any:
    return ort.InferenceSession(models.optional_sequence(), providers=CPU).run(None, {"X": [np.ones(5, np.float32)]})


@idiom
def run_optionals(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.optional_tensor(), providers=CPU)
    feeds = {"X": None}, {}, {"X": np.ones(2, np.float32)}
    return str(session.get_inputs()[0]), [session.run(None, f) for f in feeds]


@idiom
def run_to_maps(ort: Any, tmp: Path) -> Any:
    found = []
    for by_text in (True, False):
        session = ort.InferenceSession(models.zipped(by_text), providers=CPU)
        found.append(
            (session.get_outputs()[0].type, session.run(None, {"X": np.arange(6, dtype=np.float32).reshape(2, 3)}))
        )
    return found


@idiom
def run_from_maps(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.vectorized(), providers=CPU)
    feed = {0: 25.0, 2: 5.5, 7: 1.0}
    numpy_feed = {np.int64(k): np.float32(v) for k, v in feed.items()}
    said = session.get_inputs()[0].type, session.get_inputs()[0].shape
    return said, session.run(None, {"X": feed}), session.run(None, {"X": numpy_feed})


@idiom
def outputs_are_the_callers(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.passed_through(), providers=CPU)
    kept = []
    for i in range(4):
        x = np.full((2, 2), i, np.float32)
        outputs = session.run(None, {"X": x})
        assert not np.shares_memory(outputs[1], x)
        kept.append(outputs)
    return kept


@idiom
def run_in_threads(ort: Any, tmp: Path) -> Any:
    session = ort.InferenceSession(models.multiply(), providers=CPU)
    found: dict[int, Any] = {}

    def work(i: int) -> None:
        options = ort.RunOptions()
        options.logid = f"thread{i}"
        found[i] = session.run([], {"X": X * i}, run_options=options)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [found[i] for i in range(4)]


@idiom
def run_async(ort: Any, tmp: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(models.multiply(), options, providers=CPU)
    done, found = threading.Event(), []

    def callback(outputs: Any, data: Any, error: str) -> None:
        found.extend((outputs, data, error))
        done.set()

    session.run_async(["Y"], {"X": X}, callback, 123456)
    assert done.wait(60)
    return found


@idiom
def run_async_that_fails(ort: Any, tmp: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(models.multiply(), options, providers=CPU)
    done, found = threading.Event(), []

    def callback(outputs: Any, data: Any, error: str) -> None:
        found.extend((outputs, data, error != ""))
        done.set()

    session.run_async(None, {"X": X[:2]}, callback, None)
    assert done.wait(60)
    return found


@idiom
def run_async_for_an_unknown_output(ort: Any, tmp: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(models.multiply(), options, providers=CPU)
    done, found = threading.Event(), []

    def callback(outputs: Any, data: Any, error: str) -> None:
        found.extend((outputs, data, error != ""))
        done.set()

    session.run_async(["nothing"], {"X": X}, callback, None)
    assert done.wait(60)
    return found


@idiom
def run_async_without_inputs(ort: Any, tmp: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    ort.InferenceSession(models.multiply(), options, providers=CPU).run_async(None, {}, print, None)


@idiom
def random_runs(ort: Any, tmp: Path) -> Any:
    """Each run draws others; a seed makes sessions repeat each other."""
    zeros = np.zeros(3, np.float32)
    ort.set_seed(5)
    first = ort.InferenceSession(models.random_numbers(), providers=CPU)
    a, b = first.run(None, {"X": zeros})[0], first.run(None, {"X": zeros})[0]
    ort.set_seed(5)
    c = ort.InferenceSession(models.random_numbers(), providers=CPU).run(None, {"X": zeros})[0]
    return np.array_equal(a, b), np.array_equal(a, c)


@refused("onnxruntime's options of providers may change while a session lives; here none does")
def change_provider_options(ort: Any, tmp: Path) -> Any:
    ort.InferenceSession(models.multiply(), providers=CPU).set_ep_dynamic_options({"key": "value"})
