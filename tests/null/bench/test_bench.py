"""Comparing engines: worker processes, slices, statistics and what is reported."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.compare import COLUMNS, table_rows

from opalite.bench.compare import Comparison, Measured, Plan, compare
from opalite.bench.engines import BUILT_IN, find_maker
from opalite.bench.median_ratios import Spread, TimeSlice, accept, difference, ratios
from opalite.bench.report import as_json, milliseconds
from opalite.bench.worker_process import EngineProcess
from opalite.errors import InputError, OpaliteError

TOY, SLOW = "tests.helpers.toy_engine", "tests.helpers.toy_engine_slow"
ROOT = Path(__file__).parents[3]
FEEDS = {"x": np.arange(6, dtype=np.float32), "file": np.zeros(1)}
QUICK = Plan(threads=1, rounds=3, slice_s=0.01, tolerance=1e9)


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
    """Workers find the toy engines by the folder that they start in."""
    monkeypatch.chdir(ROOT)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_slower_engine_shows_its_ratio():
    extra = {TOY: {"pause": "0.002"}, SLOW: {"pause": "0.01"}}
    result = compare(Path("toy.onnx"), FEEDS, [TOY, SLOW], QUICK, extra)
    fast, slow = result.engines
    assert [len(m.slices) for m in result.engines] == [3, 3]
    assert result.ratio(slow, fast).median > 1.5
    assert result.ratio(fast, fast).median == 1
    assert slow.difference == 0
    assert fast.run_s.median >= 0.002


def test_wrong_results_show_as_a_difference():
    result = compare(Path("toy.onnx"), FEEDS, [TOY, SLOW], QUICK, {SLOW: {"offset": "1"}})
    assert result.engines[1].difference == pytest.approx(0.1)  # 1 beside a largest magnitude of 10


def test_an_engine_may_come_from_another_checkout(tmp_path):
    """Its folder comes first where Python looks for modules."""
    (tmp_path / "elsewhere.py").write_text("from tests.helpers.toy_engine import make_engine\n")
    (tmp_path / "opalite").symlink_to(ROOT / "src" / "opalite")
    with pytest.raises(OpaliteError, match="elsewhere"):
        compare(Path("toy.onnx"), FEEDS, ["elsewhere"], QUICK)
    name = f"elsewhere@{tmp_path}"
    assert [m.engine for m in compare(Path("toy.onnx"), FEEDS, [name], QUICK).engines] == [name]


def test_an_engine_that_fails_is_left_out_with_its_reason():
    result = compare(Path("toy.onnx"), FEEDS, [TOY, SLOW], QUICK, {SLOW: {"refuse": "yes"}})
    assert [m.engine for m in result.engines] == [TOY]
    assert "cannot do that" in result.failed[SLOW]


def test_an_engine_that_dies_leaves_its_last_words():
    with pytest.raises(OpaliteError, match=r"(?s)exit status 3.*last words"):
        compare(Path("toy.onnx"), FEEDS, [TOY], QUICK, {TOY: {"crash": "yes"}})


def test_each_engine_is_named_once():
    with pytest.raises(InputError, match="once each"):
        compare(Path("toy.onnx"), FEEDS, [TOY, TOY], QUICK)


def soon(condition, tries=6000):
    """Whether `condition` comes true within a minute: a signal is delivered when the kernel gets to it."""
    for _ in range(tries):
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads process states from /proc")
def test_a_process_is_stopped_unless_awake(tmp_path):
    with EngineProcess(TOY) as process:
        pid = int(process.load(Path("m"), 1, {"x": np.ones(2)}, tmp_path, {})["device"].split()[1])
        assert soon(lambda: state_of(pid) == "T")
        with process.awake():
            assert state_of(pid) != "T"
            assert len(process.slice(0, 0, 4)) == 4
        np.testing.assert_array_equal(process.outputs(tmp_path)[0], [2, 2])
        assert soon(lambda: state_of(pid) == "T")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_unknown_engines_are_explained():
    with pytest.raises(InputError, match="built in: opalite, onnxruntime, openvino"):
        find_maker("no_such_engine")
    with pytest.raises(InputError, match="make_engine"):
        find_maker("tests.helpers")
    assert "opalite" in BUILT_IN


def test_slices_beside_a_slow_probe_are_left_out():
    slices = [TimeSlice(i, (1.0,), probe) for i, probe in enumerate([1.0, 1.1, 1.0, 3.0])]
    assert [s.round for s in accept(slices, 1.0, 1.15)] == [0, 1, 2]
    assert accept(slices[2:], 1.0, 1.15) == slices[2:], "two calm slices are too few to leave any out"


def test_ratios_pair_slices_of_one_round():
    engine = [TimeSlice(0, (4.0,), 1), TimeSlice(2, (6.0, 6.0, 9.0), 1)]
    baseline = [TimeSlice(1, (1.0,), 1), TimeSlice(2, (2.0,), 1)]
    assert ratios(engine, baseline) == [3.0]


def test_spread_is_median_and_quartiles():
    assert Spread.of([5, 1, 3, 2, 4]) == Spread(3, 2, 4, 5)


@pytest.mark.parametrize(
    "got, expected, worst",
    [
        ([np.array([1.0, 2.0])], [np.array([1.0, 4.0])], 0.5),
        ([np.array([1.0]), np.array([5])], [np.array([1.0]), np.array([4])], 0.25),
        ([np.array([1.0])], [np.array([1.0, 2.0])], np.inf),
        ([], [np.array([1.0])], np.inf),
        ([np.array([np.nan])], [np.array([1.0])], np.inf),
        ([np.array([np.nan, 1.0])], [np.array([np.nan, 1.0])], 0.0),
        ([np.zeros(3)], [np.zeros(3)], 0.0),
        ([np.zeros((0, 2))], [np.zeros((0, 2))], 0.0),
    ],
)
def test_difference_is_relative_to_the_largest_magnitude(got, expected, worst):
    assert difference(got, expected) == worst


def test_the_record_survives_json():
    slices = [TimeSlice(i, (0.01, 0.012, 0.011), 0.001) for i in range(3)]
    engines = [Measured(name, "1", "cpu", 0.5, 0.1, slices, slices) for name in ("a", "b")]
    comparison = Comparison("folder/net.onnx", Plan(), 0.001, engines, {"c": "not installed"})
    record = json.loads(json.dumps(as_json(comparison)))
    assert record["model"] == "net"
    assert record["engines"][1]["ratio"]["median"] == 1
    assert record["failed"] == {"c": "not installed"}
    rows = table_rows(comparison)
    assert [len(r) for r in rows] == [len(COLUMNS)] * 2
    assert rows[1][1] == "11.0 (11.0..11.0)"


def test_milliseconds_keep_three_digits():
    assert [milliseconds(s) for s in (0.1234, 0.01234, 0.001234, 0.0001234)] == ["123", "12.3", "1.23", "0.123"]
