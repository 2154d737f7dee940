"""passes/attention/rotary.py: rotated keys are written where they are appended."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.models.llama import LLAMA_TINY, decoder, step_feeds

import onnx
from opalite.ir import DeviceInfo, Graph
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.growable_tensor import GrowableTensor
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.symbols import Trace
from opalite.layout.assign_precision import set_precision
from opalite.passes.attention.rotary import fuse_rotary_append
from opalite.passes.rewrite_driver import Context, run_rule
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.plan.program import LaunchStep, SlotArg
from opalite.run.model.imported_model import ImportedModel

from ....helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph
from ....helpers.symbolic import Traced
from ..texts import CPU, GPU, Case, check


def load(name: str) -> DeviceInfo:
    return read_description(name)


KEYS = """
    graph g(%m: f32[2,3,9,8], %k: f32[2,2,3,8], %c: f32[2,4], %s: f32[2,4]) {
        %r: f32[2,3,2,8] = RotaryEmbedding(%k, %c, %s) {perm=[0,2,1,3]}
        %y: f32[2,3,9,8] = Append(%m, %r) {at=4, axis=2}
        return %y
    }
"""
STARTS = KEYS.replace("%s: f32[2,4])", "%s: f32[2,4], %b: i64[2])").replace("Append(%m, %r)", "Append(%m, %r, %b)")
CASES = (
    Case(
        "fuse_rotary_append",
        "rotated keys",
        fuse_rotary_append(CPU),
        KEYS,
        """
        graph g(%m: f32[2,3,9,8], %k: f32[2,2,3,8], %c: f32[2,4], %s: f32[2,4]) {
            %y: f32[2,3,9,8] = RotaryAppend(%m, %k, %c, %s) {at=4, axis=2, perm=[0,2,1,3]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_rotary_append",
        "rotated keys that are read",
        fuse_rotary_append(CPU),
        KEYS.replace("return %y", "return %y, %r"),
    ),
    Case("fuse_rotary_append", "a position for each entry", fuse_rotary_append(GPU), STARTS.replace("at=4", "at=0")),
    Case(
        "fuse_rotary_append",
        "keys as they are",
        fuse_rotary_append(GPU),
        """
        graph g(%m: f32[2,3,9,8], %k: f32[2,3,2,8]) {
            %y: f32[2,3,9,8] = Append(%m, %k) {at=4, axis=2}
            return %y
        }
        """,
    ),
    Case(
        "fuse_rotary_append",
        "rows of bytes",
        fuse_rotary_append(CPU),
        KEYS.replace("%m: f32[2,3,9,8]", "%m: i8[2,3,9,12]").replace("%y: f32[2,3,9,8]", "%y: i8[2,3,9,12]"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


def keys() -> Graph:
    g = GraphMaker()
    k, c, s = (g.input(name, *shape) for name, shape in (("k", (2, 3, 2, 8)), ("c", (2, 4)), ("s", (2, 4))))
    return g.done(g.add("y", "Append", g.input("m", 2, 3, 9, 8), g.add("r", "RotaryEmbedding", k, c, s), axis=2, at=4))


def fuse(graph: Graph, device: DeviceInfo = GPU) -> list[str]:
    """Operators after the pass, which is to keep the answers."""
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    run_rule(graph, "fuse_rotary_append", fuse_rotary_append(device), Context(check=True))
    check_same(before, run_graph(graph, feeds))
    return operators(graph)


def test_rows_of_another_precision_stay_apart() -> None:
    for kept, wanted in (((), ["RotaryAppend"]), (("r",), ["RotaryEmbedding", "Append"])):
        graph = keys()
        set_precision(graph, PrecisionPolicy(Precision.FP16, dict.fromkeys(kept, "")))
        assert fuse(graph) == wanted


def test_it_takes_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_EXCLUDE_KERNELS", "RotateAppendRows")
    assert fuse(keys()) == ["RotaryEmbedding", "Append"]


def test_it_comes_from_both() -> None:
    graph = keys()
    fuse(graph)
    assert [o.name for o in graph.nodes[0].origin] == ["r", "y"]


@pytest.mark.parametrize("device", ["pocl_avx512", "adreno_640", "nvidia_h200"])
def test_lengths_are_arguments(device: str) -> None:
    """Of one plan: those of the cache, of its memory and of what is new."""
    trace = Trace()
    held, new, room = (trace.symbol(size) for size in (5, 3, 32))
    g = GraphMaker()
    g.graph.trace = trace
    memory, k = g.input("m", 2, 3, room, 8), g.input("k", 2, new, 3, 8)
    turned = g.add("r", "RotaryEmbedding", k, g.input("c", new, 4), g.input("s", new, 4), perm=(0, 2, 1, 3))
    y = g.add("y", "Append", memory, turned, axis=2, at=held)
    zeros, ones = (0,) * 4, (1,) * 4
    cache = g.add("a", "Slice", y, starts=zeros, steps=ones, sizes=(2, 3, held + new, 8))
    graph = g.done(y, g.map("z", "neg", cache))
    traced = Traced(graph, load(device))
    assert operators(traced.graph).count("RotaryAppend") == 1
    for sizes in ((5, 3, 32), (2, 2, 5), (70, 3, 128), (9, 22, 32)):
        assert traced.check(sizes) is not None


@pytest.mark.parametrize("device", ["pocl_avx512", "adreno_640", "nvidia_h200"])
@pytest.mark.parametrize("cache", ["concat", "grouped"])
def test_a_decoder_copies_values_alone(cache: str, device: str, tmp_path: Path) -> None:
    onnx.save(decoder(LLAMA_TINY, cache=cache), tmp_path / "decoder.onnx")
    feeds = step_feeds(LLAMA_TINY, 16, 1, cache=cache)
    for name, past in feeds.items():
        if name.startswith("past"):
            present = name.replace("past_key_values", "present")
            feeds[name] = GrowableTensor(past.dtype, past.shape, 2, 64, present)
    segment = ImportedModel(tmp_path / "decoder.onnx").fresh().only_segment(feeds)
    program = plan(segment.graph, PlanOptions(), Knowledge(load(device))).program
    steps = [s for s in program.steps if isinstance(s, LaunchStep)]
    found = [s.kernel for s in steps]
    assert found.count("RotateRows") == found.count("RotateAppendRows") == found.count("AppendCopy") == 2
    writers = [s for s in steps if s.kernel in ("RotateAppendRows", "AppendCopy")]
    named = {a.slot for s in writers for a in s.args if isinstance(a, SlotArg)}
    assert named.issuperset(port.slot for port in program.reserved)
