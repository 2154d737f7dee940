"""Workers in processes: the same answers through shared memory, and nothing but its request lost when one is killed."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.run.queue.session_workers import ProcessWorker

from ....helpers.onnx_text import by_onnxruntime
from ....helpers.small_models import classifier, noise

MODEL = classifier().SerializeToString()
FEEDS = [{"x": noise(1, 3, 16, 16, seed=i)} for i in range(30)]


@pytest.fixture(scope="module")
def queue() -> Iterator[opalite.InferQueue]:
    with opalite.InferQueue(MODEL, workers=2, processes=True) as queue:
        yield queue


def own(queue: opalite.InferQueue) -> list[ProcessWorker]:
    return [w for w in queue._workers if isinstance(w, ProcessWorker)]


def test_every_request_is_answered_once(queue: opalite.InferQueue) -> None:
    assert len({w.pid for w in own(queue)} - {None, os.getpid()}) == 2
    for job in queue.map(FEEDS):
        expected = by_onnxruntime(classifier(), FEEDS[job.userdata])
        np.testing.assert_allclose(job.result()[0], expected[0], rtol=1e-4, atol=1e-5)


def test_results_stay_when_others_follow_and_grow(queue: opalite.InferQueue) -> None:
    worker = own(queue)[0]
    small = worker.run(None, FEEDS[0])[0]
    kept = small.copy()
    large = worker.run(None, {"x": noise(300, 3, 16, 16)})[0]
    worker.run(None, FEEDS[1])
    np.testing.assert_array_equal(small, kept)
    assert large.shape[0] == 300


def test_errors_are_those_of_the_session(queue: opalite.InferQueue) -> None:
    wrong = queue.start_async({"x": noise(1, 4, 16, 16)})
    assert isinstance(wrong.exception(), opalite.InputError)
    assert queue.start_async(FEEDS[0]).result()
    with pytest.raises(opalite.InputError, match="x"):
        queue.wait_all()
    assert queue.start_async(FEEDS[0], output_names=["nothing"]).exception() is not None
    with pytest.raises(opalite.InputError, match="nothing"):
        queue.wait_all()


def test_a_killed_process_loses_what_it_held_and_no_more(
    queue: opalite.InferQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = own(queue)[0]
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # so that it holds a request when it is killed
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            worker.run(None, FEEDS[0])
        except opalite.DeviceError as e:
            found.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    os.kill(pid, signal.SIGKILL)
    thread.join(60)
    assert "SIGKILL" in str(found[0])
    assert all(job.result() for job in queue.map(FEEDS))
    assert worker.run(None, FEEDS[0])
    assert worker.pid not in (None, pid)


def test_processes_of_a_cpu_are_pinned_to_cores_of_their_own(queue: opalite.InferQueue) -> None:
    cores = [os.sched_getaffinity(w.pid or 0) for w in own(queue)]
    if own(queue)[0].device.kind != "cpu":
        assert all(c == os.sched_getaffinity(0) for c in cores)
    elif len(os.sched_getaffinity(0)) > 1:
        assert not cores[0] & cores[1]
    assert set.union(*cores) <= os.sched_getaffinity(0)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no list of open files")
def test_a_model_that_does_not_load_raises_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(opalite.ModelFileError, match="none"):
        opalite.InferQueue(tmp_path / "none.onnx", processes=True, workers=2)
    with pytest.raises(opalite.InputTypeError, match="picklable"):
        opalite.InferQueue(MODEL, processes=True, workers=1, sess_options=lambda: None)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_closing_ends_processes() -> None:
    queue = opalite.InferQueue(MODEL, workers=1, processes=True)
    pid = own(queue)[0].pid
    assert pid is not None
    queue.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_text_passes_to_the_process(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    info: Any = helper.make_tensor_value_info
    node = helper.make_node("Identity", ["s"], ["t"])
    graph = helper.make_graph(
        [node], "g", [info("s", TensorProto.STRING, ["N"])], [info("t", TensorProto.STRING, ["N"])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with opalite.InferQueue(model.SerializeToString(), workers=1, processes=True) as queue:
        (t,) = queue.start_async({"s": np.array(["a", "bc"], object)}).result()
        assert t.tolist() == ["a", "bc"]
