"""Modes of throughput: which are tried, that they are measured by turns, and what is said of them."""

from pathlib import Path

import numpy as np
import pytest

from opalite.bench.compare import Plan
from opalite.bench.engines import find_maker
from opalite.bench.median_ratios import Spread, TimeSlice
from opalite.bench.report import throughput_json
from opalite.bench.throughput import Mode, ModeResult, Throughput, measure_throughput, modes_of
from opalite.cli.bench import mode_expression
from opalite.errors import InputError, OpaliteError

TOY = "tests.helpers.toy_engine"
ROOT = Path(__file__).parents[3]
FEEDS = {"x": np.arange(6, dtype=np.float32)}
QUICK = Plan(threads=1, rounds=3, slice_s=0.02, settle=2, tolerance=1e9)


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_workers_share_out_the_cores():
    def names(*arguments):
        return [str(m) for m in modes_of(*arguments)]

    assert names(["opalite"], 1, True) == ["opalite latency"]
    assert names(["opalite"], 2, True) == ["opalite latency", "opalite threads 2", "opalite processes 2"]
    assert [m.workers for m in modes_of(["opalite"], 6, True)] == [1, 2, 4, 6, 2, 4, 6]
    assert names(["opalite"], 16, False) == ["opalite latency", "opalite threads 2", "opalite processes 2"]
    others = names(["opalite", "onnxruntime", "openvino"], 2, True)[3:]
    assert others == ["onnxruntime latency", "onnxruntime sessions 2", "openvino latency", "openvino hint"]


def test_more_workers_show_as_more_inferences():
    modes = [Mode(TOY, "latency"), Mode(TOY, "threads", 3), Mode(TOY, "refused", 2)]
    found = measure_throughput(Path("toy.onnx"), FEEDS, modes, QUICK, {TOY: {"pause": "0.002"}})
    one, three = found.modes
    assert [len(y.slices) for y in found.modes] == [3, 3]
    rates = [[s.rate for s in mode.slices] for mode in (one, three)]
    assert min(rates[1]) / max(rates[0]) <= found.gain(three) <= max(rates[1]) / min(rates[0])
    assert three.rate.median < 1500, "three that pause for 2 ms each"
    assert found.gain(one) == 1
    assert one.rate.median < 500
    assert one.latency_s(50) == pytest.approx(0.002)
    assert one.difference == three.difference == 0
    assert list(found.failed) == [f"{TOY} refused 2"]
    assert "no such mode" in found.failed[f"{TOY} refused 2"]


def test_a_first_mode_that_fails_is_an_error():
    with pytest.raises(OpaliteError, match="no such mode"):
        measure_throughput(Path("toy.onnx"), FEEDS, [Mode(TOY, "refused")], QUICK)
    with pytest.raises(InputError, match="no function make_worker_pool"):
        find_maker("tests.helpers.words", "make_worker_pool")


def test_the_best_is_opalites_and_its_code_is_told():
    def measured(engine, kind, workers, rate):
        slices = [TimeSlice(i, (0.01,) * rate, 1.0, 1.0) for i in range(3)]
        return ModeResult(Mode(engine, kind, workers), "1", "cpu", slices, slices)

    modes = [measured("opalite", "latency", 1, 20), measured("opalite", "processes", 4, 50)]
    found = Throughput("m.onnx", QUICK, [*modes, measured("openvino", "hint", 1, 90)], {})
    assert found.best.mode == Mode("opalite", "processes", 4)
    assert found.best.rate == Spread(50, 50, 50, 3)
    record = throughput_json(found)
    assert record["best"] == {"engine": "opalite", "kind": "processes", "workers": 4}
    assert [m["gain"] for m in record["modes"]] == [1, 2.5, 4.5]
    assert record["modes"][1]["latency_s"]["p99"] == pytest.approx(0.01)
    code = [mode_expression(Mode("opalite", kind, 4), "m.onnx") for kind in ("latency", "threads", "processes")]
    assert code == [
        "opalite.InferenceSession('m.onnx')",
        "opalite.InferQueue('m.onnx', workers=4)",
        "opalite.InferQueue('m.onnx', workers=4, processes=True)",
    ]
