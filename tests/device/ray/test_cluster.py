"""Ray Data and Ray Serve on two nodes: every item once and right, though a worker is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
import opalite.ray

from ...helpers.onnx_text import by_onnxruntime
from ...helpers.small_models import classifier, noise

ITEMS = 10_000
ROW = (3, 8, 8)


class Witness(opalite.ray.Predictor):
    """Writes down which process computes, on which device and node, and takes its time."""

    def __init__(self, model: Any, folder: str, pause_s: float, **options: Any) -> None:
        import ray

        super().__init__(model, **options)
        self._pause_s = pause_s
        self._note = Path(folder, str(os.getpid()))
        node = ray.get_runtime_context().get_node_id()
        threads = os.environ.get("POCL_MAX_PTHREAD_COUNT")
        self._note.write_text(f"{node} {self.session.device.id} {self._assignment.device} {threads}\n")

    def __call__(self, batch: Any) -> dict[str, Any]:
        time.sleep(self._pause_s)
        found = super().__call__(batch)
        with self._note.open("a") as file:
            file.write(f"{len(batch['id'])}\n")
        return found


def rows_of(ids: Any) -> Any:
    """The picture of each item, by its number alone."""
    pattern = noise(*ROW)
    return pattern * (1 + ids[:, None, None, None].astype(np.float32) / ITEMS)


def test_each_of_ten_thousand_items_once_though_a_worker_is_killed(cluster: Any, model: bytes, tmp_path: Path) -> None:
    dataset = cluster.data.range(ITEMS, override_num_blocks=40)
    dataset = dataset.map_batches(lambda b: {"id": b["id"], "x": rows_of(b["id"])}, batch_size=256)
    dataset = dataset.map_batches(
        Witness,
        fn_constructor_args=(opalite.ray.put(model), str(tmp_path), 0.05),
        fn_constructor_kwargs={"keep": ["id"], "outputs": {"y": "scores"}},
        batch_size=96,  # blocks of 250 rows: 96, 96, 58
        concurrency=2,
        num_cpus=1,
        resources={"opencl": 1},
    )
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            for note in tmp_path.iterdir():
                if len(note.read_text().splitlines()) > 4:  # it computes
                    os.kill(int(note.name), signal.SIGKILL)
                    killed.append(int(note.name))
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    ids, scores = [], []
    for batch in dataset.iter_batches(batch_size=None):
        ids.append(batch["id"])
        scores.append(batch["scores"])
    killer.join()
    order = np.concatenate(ids)
    assert len(order) == ITEMS
    np.testing.assert_array_equal(np.sort(order), np.arange(ITEMS))
    expected = by_onnxruntime(classifier(), {"x": rows_of(order)})[0]
    np.testing.assert_allclose(np.concatenate(scores), expected, rtol=1e-4, atol=1e-6)
    assert len(killed) == 1
    notes = {int(p.name): p.read_text().splitlines() for p in tmp_path.iterdir()}
    assert len(notes) >= 3, "nobody came in the killed worker's place"
    assert len({lines[0].split()[0] for lines in notes.values()}) == 2, "one node did all"
    for lines in notes.values():
        _, used, claimed, threads = lines[0].split()
        assert used == claimed
        assert threads == "1"
    assert sum(int(n) for lines in notes.values() for n in lines[1:]) >= ITEMS


def test_actors_of_one_node_never_share_a_device(cluster: Any, model: bytes) -> None:
    @cluster.remote(num_cpus=0, resources={"opencl": 1})
    class Actor:
        def __init__(self, model: Any) -> None:
            self.predictor = opalite.ray.Predictor(model)

        def where(self) -> tuple[str, str | None]:
            return cluster.get_runtime_context().get_node_id(), self.predictor._assignment.device

    reference = opalite.ray.put(model)
    actors = [Actor.remote(reference) for _ in range(2)]
    nodes = {node for node, _ in cluster.get([a.where.remote() for a in actors], timeout=60)}
    assert len(nodes) == 2
    third = Actor.remote(reference)
    assert cluster.wait([third.where.remote()], timeout=0.5)[0] == []  # it waits for a device
    cluster.kill(actors[0])
    assert cluster.get(third.where.remote(), timeout=60)[1] == opalite.ray.device_resources.announced_devices()[0]
    for actor in (actors[1], third):
        cluster.kill(actor)


def test_errors_of_columns_reach_the_driver(cluster: Any, model: bytes) -> None:
    dataset = cluster.data.range(10).map_batches(
        opalite.ray.Predictor, fn_constructor_args=(model,), concurrency=1, batch_size=4
    )
    with pytest.raises(Exception, match=r"the batch has no column \['x'\]; it has id"):
        dataset.take_all()


def test_a_deployment_batches_rows_and_answers_each(cluster: Any, model: bytes) -> None:
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'opalite-cl[test-ray]'")
    port = _free_port()
    address = f"http://127.0.0.1:{port}/"
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    app = opalite.ray.deployment(
        opalite.ray.put(model),
        max_batch_size=8,
        batch_wait_timeout_s=0.05,
        predictor={"shapes": {"x": ROW}},
        ray_actor_options={"num_cpus": 1},
    )
    handle = serve.run(app, name="opalite-test")
    try:
        x = rows_of(np.arange(40))
        expected = by_onnxruntime(classifier(), {"x": x})[0]
        answers = [handle.predict.remote({"x": row}) for row in x]
        wrong = handle.predict.remote({"x": x[0, :2]})
        for want, answer in zip(expected, answers, strict=True):
            np.testing.assert_allclose(answer.result(timeout_s=60)["y"], want, rtol=1e-4, atol=1e-6)
        with pytest.raises(Exception, match="InputError"):
            wrong.result(timeout_s=60)
        status, found = _post(address, {"x": x[3].tolist()})
        assert status == 200
        np.testing.assert_allclose(found["y"], expected[3], rtol=1e-3, atol=1e-5)
        for body in ({"z": 1}, [1], "text"):
            status, found = _post(address, body)
            assert status == 400
            assert found["error"]
    finally:
        serve.delete("opalite-test")
        serve.shutdown()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _post(address: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)
