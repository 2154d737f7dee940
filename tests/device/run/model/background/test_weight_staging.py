"""Weights that the device has in the required layout are neither read nor packed again.

Several plans of one model, one after another, on a device without shared memory, after the host freed the weights.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.models.llama import Shape, decoder, save, step_feeds

import onnx
import opalite
from onnx import helper, numpy_helper
from opalite.cl.memory import shared_weights as device_weights
from opalite.cl.runtime import Runtime
from opalite.ir.constants.lazy_array import LARGE, LazyArray
from opalite.plan.bundle import write_bundle as bundles
from opalite.plan.weights import packed_weights

from .....helpers.small_models import make_model, noise, port

TINY = Shape(layers=2, width=256, heads=4, kv_heads=2, inner=1024, words=512, positions=256)
PROMPT, LONG = 12, 96


@dataclass
class Work:
    """Work on large weights: layouts packed, by key, and bytes hashed."""

    made: Counter[Any] = field(default_factory=Counter)
    hashed: int = 0
    uploaded: int = 0

    def clear(self) -> None:
        self.made.clear()
        self.hashed = self.uploaded = 0

    @property
    def is_none(self) -> bool:
        return not self.made and not self.hashed and not self.uploaded


@pytest.fixture
def work(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Counts the work, on a device with memory of its own."""
    found = Work()
    real_form, real_key, real_upload = packed_weights._form, device_weights.content_key, rt.weights._upload

    def form(held: Any, how: Any, make: Callable[[], Any], kind: Any) -> Any:
        def counted() -> Any:
            array = make()
            if array.nbytes >= LARGE:
                found.made[(getattr(held, "key", object()), how)] += 1
            return array

        return real_form(held, how, counted, kind)

    def content_key(array: Any, *each: Any) -> str:
        found.hashed += array.nbytes if array.nbytes >= LARGE else 0
        return real_key(array, *each)

    def upload(array: Any, image: bool) -> Any:
        found.uploaded += array.nbytes if array.nbytes >= LARGE else 0
        with pytest.MonkeyPatch.context() as m:
            m.setattr(rt.allocator, "wrapped", lambda *_, **__: None)
            return real_upload(array, image)

    monkeypatch.setattr(packed_weights, "_form", form)
    monkeypatch.setattr(device_weights, "content_key", content_key)
    monkeypatch.setattr(bundles, "content_key", content_key)
    monkeypatch.setattr(rt.weights, "_upload", upload)
    yield found
    gc.collect()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(decoder(TINY), tmp_path_factory.mktemp("tiny") / "model.onnx")


def open_session(model: Any, rt: Runtime, precision: str = "fp32", **options: Any) -> opalite.InferenceSession:
    return opalite.InferenceSession(model, device=rt.info.id, precision=precision, **options)


def feeds_of(ids: Any, held: int) -> dict[str, Any]:
    count = ids.shape[1]
    mask, positions = np.ones((1, held + count), np.int64), np.arange(held, held + count)[None]
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


def logits_of(session: opalite.InferenceSession, lengths: tuple[int, ...]) -> list[Any]:
    """Logits of parts of a text of these lengths, each after those before it."""
    state = session.state(reserve=sum(lengths) + 8)
    ids = np.random.default_rng(0).integers(0, TINY.words, (1, sum(lengths)))
    found, held = [], 0
    for count in lengths:
        found.append(state.run(feeds_of(ids[:, held : held + count], held))[0])
        held += count
    return found


# Plans of a decoder


@pytest.mark.parametrize("plans", ["0", "1"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_plans_of_a_decoder_make_each_form_once(
    model: Path, rt: Runtime, folder: Path, work: Work, monkeypatch: pytest.MonkeyPatch, precision: str, plans: str
) -> None:
    """Plans for the prompt, for the tokens after it, and for a long prompt; the host keeps no weights."""
    monkeypatch.setenv("OPALITE_PLAN_CACHE", plans)
    session = open_session(model, rt, precision)
    short = logits_of(session, (PROMPT, 1, 1))
    assert session.settle(60)
    logits_of(session, (LONG, 1))
    assert session.settle(60)
    made, hashed, uploaded = dict(work.made), work.hashed, work.uploaded
    assert made
    assert set(made.values()) == {1}
    assert hashed == uploaded > 0, "each array is hashed once"
    work.clear()
    for a, b in zip(logits_of(session, (PROMPT, 1, 1)), short, strict=True):
        np.testing.assert_array_equal(a, b)
    assert work.is_none


def test_plans_for_the_same_forms_read_nothing(model: Path, rt: Runtime, work: Work) -> None:
    """Two sizes that one template does not serve: fixed by the model's input."""
    session = open_session(model, rt)
    feeds = [step_feeds(TINY, past, 4) for past in (0, 8)]
    session.run(None, feeds[0])
    assert session.settle(60)
    work.clear()
    plans = session.stats().plans_made
    session.run(None, feeds[1])
    assert session.settle(60)
    if session.stats().plans_made == plans:
        pytest.skip("one plan serves all")
    assert work.is_none


def test_memory_is_released_with_the_last_session(model: Path, rt: Runtime, work: Work) -> None:
    gc.collect()
    before = len(rt.weights)
    first, second = open_session(model, rt), open_session(model, rt)
    wanted = logits_of(first, (PROMPT, 1))
    logits_of(second, (PROMPT, 1))
    held = len(rt.weights)
    assert held > before
    first.close()
    gc.collect()
    assert len(rt.weights) == held
    np.testing.assert_array_equal(logits_of(second, (PROMPT, 1))[1], wanted[1])
    second.close()
    gc.collect()
    assert len(rt.weights) == before
    work.clear()
    np.testing.assert_array_equal(logits_of(first, (PROMPT, 1))[1], wanted[1])  # and once more
    assert work.uploaded
    first.close()


def test_another_session_finds_them_by_the_plan_that_was_kept(
    model: Path, rt: Runtime, folder: Path, work: Work
) -> None:
    first = open_session(model, rt)
    wanted = logits_of(first, (PROMPT, 1))
    assert first.settle(60)
    work.clear()
    second = open_session(model, rt)
    for a, b in zip(logits_of(second, (PROMPT, 1)), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert second.stats().plans_made == 0
    assert work.is_none
    first.close()
    second.close()
    gc.collect()
    third = open_session(model, rt)
    np.testing.assert_array_equal(logits_of(third, (PROMPT, 1))[1], wanted[1])
    assert not work.made
    assert not work.hashed  # files are named by what they contain
    assert work.uploaded


def test_a_plan_is_kept_whole_though_the_device_has_its_weights(
    model: Path, rt: Runtime, folder: Path, work: Work
) -> None:
    """The second plan's weights are in files already, or are written if another process removed these."""
    session = open_session(model, rt)
    wanted = logits_of(session, (PROMPT,))
    assert session.settle(60)
    for file in folder.rglob("*.weight"):
        file.unlink()
    wanted += logits_of(session, (PROMPT, 1))[1:]
    assert session.settle(60)
    assert list(folder.rglob("*.weight"))
    session.close()
    again = open_session(model, rt)
    for a, b in zip(logits_of(again, (PROMPT, 1)), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_host_frees_what_a_stored_plan_read(
    model: Path, rt: Runtime, folder: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host frees them at once, and not when the garbage collector runs."""
    with open_session(model, rt) as session:
        logits_of(session, (PROMPT, 1))
        assert session.settle(60)
    gc.collect()
    read: list[weakref.ref[Any]] = []
    real = LazyArray.read

    def noted(self: LazyArray) -> Any:
        found = real(self)
        read.append(weakref.ref(found))
        return found

    monkeypatch.setattr(LazyArray, "read", noted)
    again = open_session(model, rt)
    gc.disable()
    try:
        logits_of(again, (PROMPT,))
        assert read
        assert not [r for r in read if r() is not None]
    finally:
        gc.enable()
    again.close()


# What changes


def product(weight: Any) -> Any:
    return make_model(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        [port("x", ("n", 512))],
        [port("y", ("n", 512))],
        {"w": weight},
    )


def test_a_data_file_that_changes_is_another_model(rt: Runtime, tmp_path: Path, work: Work) -> None:
    path, x = tmp_path / "one.onnx", noise(4, 512)
    sessions, wanted = [], []
    for seed in range(3):
        weight = noise(512, 512, seed=seed)
        onnx.save(product(weight), path, save_as_external_data=True, location="one.data", size_threshold=0)
        sessions.append(open_session(path, rt))
        wanted.append(np.maximum(x @ weight, 0))
        np.testing.assert_allclose(sessions[-1].run(None, {"x": x})[0], wanted[-1], rtol=1e-4, atol=1e-4)
        (tmp_path / "one.data").unlink()  # as who replaces a file does
    for session, want in zip(sessions, wanted, strict=True):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


def test_an_initializer_that_is_given_is_another_weight(rt: Runtime, tmp_path: Path, work: Work) -> None:
    path, x = tmp_path / "one.onnx", noise(4, 512)
    own, given = noise(512, 512, seed=1), noise(512, 512, seed=2)
    onnx.save(product(own), path)
    options = opalite.SessionOptions()
    value = opalite.OrtValue.ortvalue_from_numpy(given)
    options.add_initializer("w", value)
    plain, edited = open_session(path, rt), open_session(path, rt, sess_options=options)
    for _ in range(2):
        for session, weight in ((plain, own), (edited, given)):
            want = np.maximum(x @ weight, 0)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


def test_one_source_in_two_precisions(rt: Runtime, tmp_path: Path, work: Work) -> None:
    path, x = tmp_path / "one.onnx", noise(4, 512)
    weight = noise(512, 512, seed=1)
    onnx.save(product(weight), path)
    wide, half = open_session(path, rt), open_session(path, rt, "fp16")
    want = np.maximum(x @ weight, 0)
    for _ in range(2):
        np.testing.assert_allclose(wide.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(half.run(None, {"x": x})[0], want, rtol=1e-2, atol=0.3)
    assert np.abs(wide.run(None, {"x": x})[0] - half.run(None, {"x": x})[0]).max() > 0


def test_constants_that_are_computed_have_no_name(rt: Runtime, tmp_path: Path, work: Work) -> None:
    """ConstantOfShape and folded constants: two of one shape and different values."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["w"], value=numpy_helper.from_array(np.array([v], np.float32)))
        for v in (0.25, -0.5)
    ]
    x = np.abs(noise(4, 512))
    for node, value in zip(nodes, (0.25, -0.5), strict=True):
        model = make_model(
            [node, helper.make_node("MatMul", ["x", "w"], ["y"])],
            [port("x", ("n", 512))],
            [port("y", ("n", 512))],
            {"s": np.array([512, 512], np.int64)},
        )
        session = open_session(model.SerializeToString(), rt)
        for rows in (4, 1):
            want = np.broadcast_to(x[:rows].sum(1, keepdims=True) * value, (rows, 512))
            np.testing.assert_allclose(session.run(None, {"x": x[:rows]})[0], want, rtol=1e-4)


def test_a_bundle_finds_what_a_session_has(rt: Runtime, tmp_path: Path, work: Work) -> None:
    path, x = tmp_path / "one.onnx", noise(4, 512)
    onnx.save(product(noise(512, 512, seed=1)), path)
    opalite.compile(path, tmp_path / "one.opal", device=rt.info.id, shapes={"x": (4, 512)})
    session = open_session(path, rt)
    want = session.run(None, {"x": x})[0]
    assert session.settle(60)
    work.clear()
    compiled = opalite.InferenceSession(tmp_path / "one.opal", device=rt.info.id, trust=True)
    np.testing.assert_allclose(compiled.run(None, {"x": x})[0], want, rtol=1e-5, atol=1e-5)
    assert not work.uploaded


def test_threads_that_open_and_close(model: Path, rt: Runtime, work: Work) -> None:
    gc.collect()
    before = len(rt.weights)
    first = open_session(model, rt)
    wanted = logits_of(first, (PROMPT, 1))
    faults: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(3):
                with open_session(model, rt) as session:
                    for a, b in zip(logits_of(session, (PROMPT, 1)), wanted, strict=True):
                        np.testing.assert_array_equal(a, b)
        except BaseException as e:
            faults.append(e)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    first.close()
    gc.collect()
    assert len(rt.weights) == before
