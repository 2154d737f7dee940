"""An executable that is resized in place gives the results of a new executable for each size."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.plan.program import Program, Slot, Storage
from opalite.run.execute import executable as executables
from opalite.run.execute.executable import Executable
from opalite.run.execute.memory import slot_memory
from opalite.run.execute.run_trace import RunTrace
from opalite.run.execute.strategies import megakernel_builder
from opalite.run.model.background.graph_compiler import Compiler
from opalite.run.model.compile_options import CompileOptions
from opalite.run.model.imported_model import ImportedModel
from opalite.run.model.run_request import AS_OPENED

from ....helpers.counters import settled
from ....helpers.small_models import make_model, noise, port

PATIENCE_S = 120.0


def convolutions() -> Any:
    """Convolutions with tensors inside others, a pooling and a softmax: [n, 3, h, w] to [n, 8, h, w] and [n, 8]."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("Conv", ["b", "u"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=1),
        helper.make_node("Softmax", ["e"], ["y"], axis=1),
        helper.make_node("ReduceMean", ["e", "axes"], ["z"], keepdims=0),
    ]
    constants = {"w": noise(16, 3, 3, 3), "v": noise(16, 16, 1, 1, seed=1), "u": noise(16, 16, 1, 1, seed=2)}
    constants["axes"] = np.array([2, 3])
    return make_model(nodes, [port("x", ("n", 3, "h", "w"))], [port("y", None), port("z", None)], constants)


class Sizes:
    """Programs of one model for sizes that share sources and steps, and the results of each compiled alone."""

    def __init__(self, rt: Runtime, model: Any, precision: str = "fp32", memory: str = "auto") -> None:
        self.rt = rt
        self.compiler = Compiler(rt, CompileOptions(precision=precision, memory=memory, strict=False, tune="none"))
        self._model = ImportedModel(model.SerializeToString())
        self._model.importer.symbols = False  # each size is planned by itself
        self._made: dict[tuple[int, ...], Program] = {}
        self.weights: dict[int, Any] = {}

    def at(self, *shape: int) -> Program:
        """The program for an input of this shape, one object for each."""
        if shape not in self._made:
            made = self._made[shape] = self._plan(shape)
            if not self.weights:
                self.weights = made.weights
        return self._made[shape]

    def _plan(self, shape: tuple[int, ...]) -> Program:
        feeds = {"x": np.zeros(shape, np.float32)}
        return self.compiler.plan(self._model.only_segment(feeds).graph.copy(), RunTrace(), AS_OPENED).program

    def feed(self, *shape: int) -> Any:
        return noise(*shape, seed=sum(shape))

    def alone(self, *shape: int) -> list[Any]:
        """The outputs of a new executable."""
        return Executable(self.rt, self._plan(shape)).run([self.feed(*shape)])[0]

    def start(self, *shape: int) -> Executable:
        return Executable(self.rt, self.at(*shape))

    def check(self, executable: Executable, *shape: int, runs: int = 1) -> RunTrace:
        """Resize, run, and compare; the last run's trace."""
        executable.resize(self.at(*shape))
        wanted = self.alone(*shape)
        for _ in range(runs):
            got, trace = executable.run([self.feed(*shape)])
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
        return trace


SHAPES = [(1, 3, 8 + 2 * h, 8 + 2 * w) for h in range(8) for w in range(8)]


def alike(sizes: Sizes, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The largest number of `shapes` whose programs have the same sources and steps."""
    kinds: dict[Any, list[tuple[int, ...]]] = {}
    for shape in shapes:
        program = sizes.at(*shape)
        steps = tuple((getattr(s, "source", -1), getattr(s, "entry", ""), type(s)) for s in program.steps)
        slots = tuple((s.storage, s.within, s.image is None) for s in program.slots)
        kinds.setdefault((tuple(program.sources), steps, slots), []).append(shape)
    return max(kinds.values(), key=len)


@pytest.fixture(params=["fp32-buffer", "fp32-image", "fp16-buffer"])
def sizes(request: pytest.FixtureRequest, rt: Runtime) -> Sizes:
    precision, memory = request.param.split("-")
    if memory == "image" and not rt.info.image_support:
        pytest.skip("no images")
    return Sizes(rt, convolutions(), precision, memory)


def test_sizes_up_and_down_give_what_fresh_ones_give(sizes: Sizes) -> None:
    shapes = alike(sizes, random.Random(1).sample(SHAPES, 24))
    assert len(shapes) >= 4
    executable = sizes.start(*shapes[0])
    kernels = [launch.kernel for launch in executable.launches.values()]
    before = settled(sizes.rt)
    for shape in [*shapes, *shapes[::-1], *shapes[:2] * 3]:
        sizes.check(executable, *shape)
    assert [launch.kernel for launch in executable.launches.values()] == kernels
    done = sizes.rt.counters.snapshot() - before
    assert done.programs_built == done.programs_built_in_background  # the step loop may be built by now


def test_a_smaller_size_needs_no_memory_and_a_size_seen_sets_only_what_differs(rt: Runtime) -> None:
    sizes = Sizes(rt, convolutions())
    big, small, *_ = sorted(alike(sizes, SHAPES[:32]), reverse=True)
    executable = sizes.start(*big)
    executable.resize(sizes.at(*small))
    executable.run([sizes.feed(*small)])
    executable.resize(sizes.at(*big))
    before = settled(rt)
    arguments = sum(len(s.args) for s in sizes.at(*big).steps if hasattr(s, "args"))
    for shape in (small, big, small):
        executable.resize(sizes.at(*shape))
        executable.run([sizes.feed(*shape)])
    spent = rt.counters.snapshot() - before
    assert (spent.kernels_made, spent.memory_objects, spent.bytes_allocated) == (0, 0, 0)
    assert 0 < spent.args_set < 3 * arguments


def test_neighbouring_sizes_allocate_nothing_more(rt: Runtime) -> None:
    sizes = Sizes(rt, convolutions())
    shapes = sorted(alike(sizes, [(1, 3, 32, 32 + 2 * i) for i in range(6)]))
    executable = sizes.start(*shapes[0])
    sizes.check(executable, *shapes[1])
    before = settled(rt)
    for shape in shapes[2:]:
        executable.resize(sizes.at(*shape))
        executable.run([sizes.feed(*shape)])
    assert (rt.counters.snapshot() - before).bytes_allocated == 0


def test_memory_is_given_back_when_many_sizes_in_turn_need_little(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_memory, "MIN_WASTE_BYTES", 1 << 10)
    monkeypatch.setattr(slot_memory, "WASTE_FACTOR", 1.5)
    monkeypatch.setattr(slot_memory, "WASTE_RUNS", 3)
    monkeypatch.setattr(executables, "SIZES_KEPT", 1)
    sizes = Sizes(rt, convolutions())
    small, other, *_, big = sorted(alike(sizes, SHAPES), key=lambda s: s[2] * s[3])
    executable = sizes.start(*small)
    sizes.check(executable, *big)
    held = executable.memory.nbytes
    for shape in (small, other, small):
        sizes.check(executable, *shape)
    assert executable.memory.nbytes < held / 1.5
    sizes.check(executable, *big)


def test_device_tensors_stay_bound_to_their_own_size(rt: Runtime) -> None:
    sizes = Sizes(rt, convolutions())
    one, two, *_ = alike(sizes, SHAPES[:32])
    executable = sizes.start(*one)
    tensor = opalite.OrtValue.ortvalue_from_numpy(sizes.feed(*one), rt.info).value
    (first, _), _ = executable.run([tensor])
    sizes.check(executable, *two)
    executable.resize(sizes.at(*one))
    np.testing.assert_array_equal(executable.run([tensor])[0][0], first)
    sizes.check(executable, *one)


def test_many_sizes_keep_no_more_sub_buffers_than_some(rt: Runtime) -> None:
    sizes = Sizes(rt, convolutions())
    shape = alike(sizes, SHAPES[:32])[0]
    executable = sizes.start(*shape)
    plain = sizes.at(*shape)
    for _ in range(50):  # of other objects, so that each is another size
        executable.resize(Program(**{name: getattr(plain, name) for name in plain.__dataclass_fields__}))
        executable.run([sizes.feed(*shape)])
    assert len(executable._instances) == executables.SIZES_KEPT


# Step loops


@pytest.fixture
def linking(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setattr(megakernel_builder, "WORTH_RUNS", 2)
    monkeypatch.setenv("OPALITE_STRATEGY", "megakernel")
    if not megakernel_builder.supports_megakernel(rt) or rt.programs._pool is None:
        pytest.skip(f"{rt.info.name} keeps its launches")
    return rt


def until_joined(executable: Executable, feed: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while executable.current.selector.megakernel is None:
        executable.run([feed])
        assert not executable.current.selector.builder.is_idle
        assert time.monotonic() < end, "nothing was linked"
        time.sleep(0.01)


@pytest.mark.parametrize("stays", [True, False])
def test_one_step_loop_serves_all_sizes(linking: Runtime, monkeypatch: pytest.MonkeyPatch, stays: bool) -> None:
    monkeypatch.setenv("OPALITE_SPIN_US", "1000" if stays else "0")
    sizes = Sizes(linking, convolutions())
    shapes = alike(sizes, random.Random(2).sample(SHAPES, 32))
    executable = sizes.start(*shapes[0])
    until_joined(executable, sizes.feed(*shapes[0]))
    before = linking.counters.snapshot()
    for shape in [*shapes, *shapes[::-1], *shapes[:2] * 20]:
        trace = sizes.check(executable, *shape, runs=3)
        assert trace.strategy == ("host_fast_path" if stays else "megakernel")
    assert len(shapes) > 8  # more than a host loop has tables
    assert (linking.counters.snapshot() - before).programs_loaded <= len(shapes) * len(sizes.at(*shapes[0]).sources)


def test_bound_tensors_and_step_loops_take_turns_with_sizes(linking: Runtime) -> None:
    sizes = Sizes(linking, convolutions())
    one, two, *_ = alike(sizes, SHAPES[:32])
    executable = sizes.start(*one)
    until_joined(executable, sizes.feed(*one))
    tensors = {s: opalite.OrtValue.ortvalue_from_numpy(sizes.feed(*s), linking.info).value for s in (one, two)}
    wanted = {s: sizes.alone(*s) for s in (one, two)}
    for shape in [one, two, two, one] * 3:
        executable.resize(sizes.at(*shape))
        for feed in (tensors[shape], sizes.feed(*shape)):
            got, _ = executable.run([feed])
            np.testing.assert_array_equal(got[0], wanted[shape][0])


def test_a_layout_scaled_up_keeps_regions_apart() -> None:
    slots = [Slot(0, 100, Storage.DYNAMIC, 0), Slot(1, 60, Storage.DYNAMIC, 128), Slot(2, 300, Storage.DYNAMIC, 256)]
    found = [slot_memory._widened(s.offset, s.nbytes, 64, slot_memory.GROWTH) for s in slots]
    for (start, nbytes), slot in zip(found, slots, strict=True):
        assert start % 64 == 0
        assert nbytes >= slot.nbytes
    for (start, nbytes), (following, _) in pairwise(found):
        assert start + nbytes <= following
