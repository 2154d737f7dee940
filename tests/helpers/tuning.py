"""Tuning without a device: placed graphs, and measurements that are formulas instead of a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opalite.ir import DeviceInfo, Graph, Node
from opalite.ir.device.device_descriptions import read_description
from opalite.passes.pipeline import optimise, place
from opalite.tune.tuner import find_tuning_jobs
from opalite.tune.tuning_levels import KernelCandidate, Level, Trial
from opalite.tune.tuning_lookup import Lookup

from .graphs import GraphMaker

CPU = DeviceInfo(
    name="a processor",
    driver="1",
    kind="cpu",
    family="pocl",
    native_float_width=16,
    max_work_group_size=4096,
    max_work_item_sizes=(4096, 4096, 4096),
    compute_units=2,
)


def fixture_device(name: str) -> DeviceInfo:
    """A real device as it described itself."""
    return read_description(name)


def conv_graph(channels: int = 23, size: int = 13, more: Sequence[str] = ()) -> Graph:
    """3x3 convolutions of prime sizes, those called `more` alike, and a row-major tail."""
    g = GraphMaker()
    v = g.conv("first", g.input("x", 1, channels, size, size), channels)
    for name in more:
        v = g.conv(name, v, channels)
    return g.done(g.add("tail", "Softmax", v, axis=3, log=False))


def placed_nodes(graph: Graph, device: DeviceInfo) -> list[Node]:
    """Nodes of `graph` that a kernel computes on `device`, in their layouts."""
    optimise(graph)
    place(graph, device)
    return [n for n in graph.nodes if n.chosen.kernel is not None]


def candidates_of(graph: Graph, op: str, device: DeviceInfo, lookup: Lookup) -> list[KernelCandidate]:
    """What competes for the first node of operator `op` in the layouts that were chosen for it."""
    nodes = [n for n in placed_nodes(graph, device) if n.op.name == op]
    return find_tuning_jobs(nodes, lookup, Level.FAST)[0].candidates


@dataclass
class Replay:
    """Measures by a formula, and keeps what it was asked for. None stands for a refusal, infinity for a wrong output.

    Work-groups of a kernel have at most `most_items` work-items.
    """

    formula: Callable[[Trial], float | None]
    asked: list[Trial] = field(default_factory=list)
    reasons: dict[Trial, str] = field(default_factory=dict)
    most_items: int | None = None

    def __call__(self, trial: Trial) -> float | None:
        self.asked.append(trial)
        return self.formula(trial)

    def group_limit(self, trial: Trial) -> int | None:
        """As CL_KERNEL_WORK_GROUP_SIZE of the trial's kernel."""
        return self.most_items


class Ticks:
    """A clock on which a second passes at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def no_time() -> float:
    """A clock that stands still."""
    return 0.0
