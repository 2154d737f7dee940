"""The tuning database: exact keys, neighbours that say so, files that heal, entries that travel."""

from __future__ import annotations

import dataclasses
import importlib
import math
import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.ir import DeviceInfo
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.kernels.kernel import Binding, Kernel, kernels_for
from opalite.layout.assign_precision import set_precision
from opalite.ops.conv import Conv
from opalite.tune import database_files as files
from opalite.tune import kernel_digest as digest
from opalite.tune.database_files import database_path, has_tuning
from opalite.tune.database_keys import (
    binding_signature,
    device_signature,
    graph_signature,
    node_signature,
    other_units,
    size_distance,
    size_text,
)
from opalite.tune.export_json import export_json, import_json, to_json
from opalite.tune.kernel_digest import files_of, kernel_digest
from opalite.tune.tuning_database import Entry, TuningDatabase, Verdict, open_database
from opalite.tune.tuning_levels import Level
from opalite.tune.tuning_lookup import Lookup, find_settings

from ...helpers.tuning import CPU, conv_graph, placed_nodes


def entry(seconds: float = 1e-3, **other: Any) -> Entry:
    fields = {"device": "d", "kernel": "K:1", "binding": "NCHW->NCHW", "node": "Conv f | 1x3", "params": {"TW": 7}}
    return Entry(
        **{**fields, "group": (8, 4), "default_seconds": 2e-3, "level": Level.FAST, "seconds": seconds, **other}
    )


def conv_node(device: DeviceInfo = CPU, **sizes: int) -> Any:
    return next(n for n in placed_nodes(conv_graph(**sizes), device) if n.op.name == "Conv")


def kernel_of(node: Any) -> tuple[Kernel, Binding]:
    return node.chosen.kernel, node.chosen.option.binding


def put(lookup: Lookup, node: Any, **other: Any) -> Entry:
    kernel, binding = kernel_of(node)
    e = entry(
        device=lookup.device_key,
        kernel=kernel_digest(kernel),
        binding=binding_signature(binding),
        node=lookup.signature(node),
        params={**kernel.defaults(kernel.problem(node, lookup.device)), "TW": 3},
        **{"group": None, **other},
    )
    lookup.database.put(e)
    return e


@pytest.fixture
def lookup() -> Lookup:
    return Lookup(TuningDatabase(None), CPU)


def test_entries_come_back_whole_and_the_last_one_counts() -> None:
    db = TuningDatabase(None)
    db.put(entry(2e-3))
    db.put(entry(1e-3))
    found = db.find("d", "K:1", "NCHW->NCHW", "Conv f | 1x3")
    assert found is not None
    assert (found.seconds, found.params, found.group, found.level) == (1e-3, {"TW": 7}, (8, 4), Level.FAST)
    assert db.find("d", "K:2", "NCHW->NCHW", "Conv f | 1x3") is None
    assert (db.hits, db.misses) == (1, 1)


def test_an_exact_entry_gives_time_and_parameters(lookup: Lookup) -> None:
    node = conv_node()
    put(lookup, node, seconds=5e-6)
    assert lookup.seconds(node, *kernel_of(node)) == 5e-6
    setting = lookup.setting(node, *kernel_of(node))
    assert setting is not None
    assert (setting.params["TW"], setting.origin) == (3, "measured")
    assert find_settings(lookup, [node]) == {node: setting}


@pytest.mark.parametrize("units", [1, 7, 64])
def test_where_there_are_other_cores_parameters_serve_and_times_do_not(lookup: Lookup, units: int) -> None:
    node = conv_node()
    put(lookup, node)
    other = Lookup(lookup.database, dataclasses.replace(CPU, compute_units=units))
    assert other.seconds(node, *kernel_of(node)) is None
    setting = other.setting(node, *kernel_of(node))
    assert setting is not None
    assert (setting.params["TW"], setting.origin) == (3, f"measured with {CPU.compute_units} units")


def test_of_several_numbers_of_cores_the_nearest_serves() -> None:
    of = {n: device_signature(dataclasses.replace(CPU, compute_units=n)) for n in (1, 4, 6, 64)}
    stranger = device_signature(dataclasses.replace(CPU, name="another", compute_units=4))
    assert other_units(of[4], [*of.values(), stranger, "d"]) == [of[6], of[1], of[64]]


@pytest.mark.parametrize("what", ["driver", "version", "name"])
def test_another_device_or_driver_misses(lookup: Lookup, what: str) -> None:
    node = conv_node()
    put(lookup, node)
    other = Lookup(lookup.database, dataclasses.replace(CPU, **{what: "another"}))
    assert other.seconds(node, *kernel_of(node)) is None
    assert other.setting(node, *kernel_of(node)) is None


def test_another_precision_misses(lookup: Lookup) -> None:
    node = conv_node()
    put(lookup, node)
    for other in (Precision.FP16, Precision.FP16_FAST):
        half = conv_node()
        half.precision = other
        assert lookup.seconds(half, *kernel_of(half)) is None


def test_a_changed_source_misses(lookup: Lookup, monkeypatch: pytest.MonkeyPatch) -> None:
    node = conv_node()
    put(lookup, node)
    own = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: own(path) + (b"//" if path.match("conv/register_tile.cl") else b"")
    )
    digest._digest.cache_clear()
    try:
        assert lookup.seconds(node, *kernel_of(node)) is None
        assert lookup.setting(node, *kernel_of(node)) is None
    finally:
        monkeypatch.undo()
        digest._digest.cache_clear()
    assert lookup.seconds(node, *kernel_of(node)) is not None


def test_a_digest_covers_what_a_kernel_is_made_of() -> None:
    kernel = next(k for k in kernels_for("Conv") if k.name == "ConvPointwise")
    files = files_of(kernel.source, (type(kernel).__module__,))
    own = {
        "conv/direct_packed.py",
        "conv/pointwise.cl",
        "conv/register_tile.cl",
        "conv/optional_bias.cl",
        "conv/register_tiles.py",
    }
    shared = {
        "include/common.cl",
        "include/prefetch.cl",
        "codegen/epilogue.py",
        "codegen/expression_code.py",
        "kernel.py",
    }
    assert own | shared <= set(files)
    assert not {"norm/softmax.cl", "norm/softmax.py", "conv/winograd.py"} & set(files)


def test_a_digest_covers_what_a_kernel_puts_in_front() -> None:
    kernel = next(k for k in kernels_for("TopK") if k.tier == "optimized")
    assert "include/ordering_and_heap.cl" in files_of(kernel.source, (type(kernel).__module__,))


def test_a_digest_covers_a_foreign_kernels_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that somebody registered: its .cl, which it names by an absolute path, and its module."""
    (tmp_path / "answer.cl").write_text('#include "include/count_unpadded.cl"\n')
    (tmp_path / "theirs_of_test.py").write_text("import json\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("theirs_of_test")
    files = files_of(str(tmp_path / "answer.cl"), ("theirs_of_test", "json", "builtins"))
    own = {str(tmp_path / "answer.cl"), str(tmp_path / "theirs_of_test.py")}
    assert own | {"include/common.cl", "include/count_unpadded.cl"} == set(files)


def test_signatures_hold_what_a_time_depends_on() -> None:
    node, larger = conv_node(), conv_node(size=17)
    assert node_signature(node) == node_signature(conv_node())
    assert node_signature(node) != node_signature(larger)
    assert size_text(node_signature(node)).startswith("1x23x13x13 ")
    other = conv_node()
    other.op = replace(other.as_(Conv), strides=(2, 2))
    assert size_distance(node_signature(node), node_signature(other)) == float("inf")
    assert 0 < size_distance(node_signature(node), node_signature(larger)) < 4
    graph = conv_graph()
    assert graph_signature(graph.nodes, "auto") == graph_signature(conv_graph().nodes, "auto")
    assert graph_signature(graph.nodes, "auto") != graph_signature(graph.nodes, "image")
    half = conv_graph()
    set_precision(half, PrecisionPolicy(Precision.FP16))
    assert graph_signature(graph.nodes, "auto") != graph_signature(half.nodes, "auto")


def test_a_neighbour_gives_parameters_but_no_time_and_says_so(lookup: Lookup) -> None:
    put(lookup, conv_node(size=11), group=(8, 4, 1))
    put(lookup, conv_node(size=5))
    node = conv_node()
    assert lookup.seconds(node, *kernel_of(node)) is None
    setting = lookup.setting(node, *kernel_of(node))
    assert setting is not None
    assert setting.params["TW"] == 3
    assert setting.group is None, "a work-group belongs to its grid"
    assert setting.origin.startswith("of the nearest entry, sizes 1x23x11x11")


def test_a_neighbour_far_away_or_with_illegal_parameters_is_no_help(lookup: Lookup) -> None:
    put(lookup, conv_node(channels=3, size=61))
    node = conv_node(channels=509, size=7)
    assert lookup.setting(node, *kernel_of(node)) is None
    near = put(lookup, conv_node(channels=499, size=7))
    assert lookup.setting(node, *kernel_of(node)) is not None
    lookup.database.put(dataclasses.replace(near, params={**near.params, "TW": 4000}))
    assert lookup.setting(node, *kernel_of(node)) is None


def test_shipped_entries_serve_a_family_after_the_users_own(
    lookup: Lookup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = conv_node()
    e = put(lookup, node)
    lookup.database.clear()
    monkeypatch.setattr(files, "SHIPPED", tmp_path)
    assert lookup.setting(node, *kernel_of(node)) is None
    (tmp_path / "pocl.json").write_text(to_json([dataclasses.replace(e, device="whoever measured it")]))
    setting = lookup.setting(node, *kernel_of(node))
    assert setting is not None
    assert setting.origin == "shipped for pocl"
    assert lookup.seconds(node, *kernel_of(node)) is None, "another device's time is no time of this one"
    put(lookup, node, seconds=1.0)
    own = lookup.setting(node, *kernel_of(node))
    assert own is not None
    assert own.origin == "measured"
    assert has_tuning(CPU)
    assert [name for name, _ in files.shipped_layers(dataclasses.replace(CPU, generation="avx512"))] == ["pocl"]


def test_an_entry_whose_parameters_the_kernel_no_longer_has_is_no_help(lookup: Lookup) -> None:
    node = conv_node()
    e = put(lookup, node)
    lookup.database.put(dataclasses.replace(e, params={"OTHER": 1}))
    assert lookup.setting(node, *kernel_of(node)) is None


def test_entries_survive_in_the_file_and_are_shared(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "tuning.sqlite"
    one, two = TuningDatabase(path), TuningDatabase(path)
    one.put(entry())
    assert two.find("d", "K:1", "NCHW->NCHW", "Conv f | 1x3") is not None
    one.put_trial("d", "n", ("K:1", "b", "{}", ""), None)
    one.put_trial("d", "n", ("K:1", "b", "{}", "[8]"), 2.0)
    assert two.trials("d", "n") == {("K:1", "b", "{}", ""): None, ("K:1", "b", "{}", "[8]"): 2.0}
    one.put_verdict("d", "g", Verdict(False, 1.0, 2.0, Level.WIDE))
    assert two.verdict("d", "g") == Verdict(False, 1.0, 2.0, Level.WIDE)
    assert two.verdict("d", "other") is None
    assert one.clear() == 1
    assert list(two.entries()) == []
    assert two.trials("d", "n") == {}


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite"
    path.write_bytes(b"this is no database" * 100)
    db = TuningDatabase(path)
    db.put(entry())
    assert len(list(TuningDatabase(path).entries())) == 1


def test_a_file_that_is_damaged_while_open_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite"
    db = TuningDatabase(path)
    for i in range(200):
        db.put(entry(node=f"Conv f | {i}"))
    size = path.stat().st_size
    path.write_bytes(b"x" * size)
    assert db.find("d", "K:1", "NCHW->NCHW", "Conv f | 1") is None
    db.put(entry())
    assert len(list(TuningDatabase(path).entries())) == 1


@pytest.mark.parametrize("seed", range(30))
def test_a_changed_bit_is_never_an_answer(tmp_path: Path, seed: int) -> None:
    """A number of another size would be another kernel, and a text that is none would stop a session."""
    path = tmp_path / "tuning.sqlite"
    db = TuningDatabase(path)
    wanted = [entry(node=f"Conv f | {i}") for i in range(20)]
    for e in wanted:
        db.put(e)
        db.put_trial("d", e.node, ("K:1", "NCHW->NCHW", "{}", ""), 1)
    db.put_verdict("d", "graph", Verdict(True, 1, np.float64(0.5), Level.FAST))
    db.close()
    raw = bytearray(path.read_bytes())
    rng = random.Random(seed)
    for _ in range(40):
        raw[rng.randrange(100, len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    db = TuningDatabase(path)
    for e in wanted:
        assert db.find("d", e.kernel, e.binding, e.node) in (None, e)
        assert db.nearest("d", e.kernel, e.binding, e.node) in (None, *wanted)
        assert db.trials("d", e.node) in ({}, {("K:1", "NCHW->NCHW", "{}", ""): 1})
    assert db.verdict("d", "graph") in (None, Verdict(True, 1, 0.5, Level.FAST))
    assert all(e in wanted for e in db.entries())
    db.put(wanted[0])


def test_numbers_of_any_kind_are_found_whole(tmp_path: Path) -> None:
    db = TuningDatabase(tmp_path / "tuning.sqlite")
    db.put(dataclasses.replace(entry(), seconds=1, default_seconds=np.float64(2)))
    for seconds in (None, 1, 0.5, math.inf, np.float64(0.25)):
        db.put_trial("d", "node", ("K:1", "b", str(seconds), ""), seconds)
    again = TuningDatabase(tmp_path / "tuning.sqlite")
    assert len(list(again.entries())) == 1
    assert {k[2]: v for k, v in again.trials("d", "node").items()} == {
        "None": None,
        "1": 1,
        "0.5": 0.5,
        "inf": math.inf,
        "0.25": 0.25,
    }


def test_a_file_of_another_format_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite"
    TuningDatabase(path).put(entry())
    with sqlite3.connect(path) as raw:
        raw.execute("update meta set value='0'")
    assert list(TuningDatabase(path).entries()) == []


def test_a_folder_that_cannot_be_written_costs_no_session(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    db = TuningDatabase(tmp_path / "file" / "tuning.sqlite")
    db.put(entry())
    assert len(list(db.entries())) == 1


def test_json_carries_entries_and_keeps_the_faster() -> None:
    one, two = TuningDatabase(None), TuningDatabase(None)
    one.put(entry(1e-3))
    one.put(entry(5e-3, node="Conv f | 1x5", group=None))
    two.put(entry(2e-3))
    two.put(entry(4e-3, node="Conv f | 1x5"))
    assert import_json(two, export_json(one)) == 1
    assert [e.seconds for e in two.entries()] == [1e-3, 4e-3]
    assert next(iter(one.entries())) == next(iter(two.entries()))
    assert import_json(two, export_json(one, device="another")) == 0


@pytest.mark.parametrize(
    "text, why",
    [
        ("nothing", "expected as JSON"),
        ("[]", "got list"),
        ('{"format": 99, "entries": []}', "got 99"),
        ('{"format": 1, "entries": [{"device": "d"}]}', "incomplete"),
        ('{"format": 1, "entries": [3]}', "incomplete"),
    ],
)
def test_json_that_is_no_export_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        import_json(TuningDatabase(None), text)


def test_the_database_lies_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    assert database_path() == tmp_path / "tuning.sqlite"
    assert not has_tuning(CPU)
    open_database().put(entry())
    assert has_tuning(CPU)
    assert open_database() is open_database()
    monkeypatch.setenv("OPALITE_CACHE", "0")
    assert database_path() is None
    assert open_database().path is None


def test_asking_makes_no_file(tmp_path: Path) -> None:
    """Kept plans are known by the file's state, which the first question of a session must not change."""
    path, e = tmp_path / "tuning.sqlite", entry()
    asking, writing = TuningDatabase(path), TuningDatabase(path)
    assert asking.find(e.device, e.kernel, e.binding, e.node) is None
    assert not path.exists()
    writing.put(e)
    assert asking.find(e.device, e.kernel, e.binding, e.node) == e
