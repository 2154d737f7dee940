"""Random transposes among the products around attention: answers stay what the references give."""

from __future__ import annotations

from random import Random

import pytest

from opalite.ir import Graph, Value
from opalite.passes.pipeline import optimise
from opalite.passes.rewrite_driver import Context

from ....helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph

FLAT = {"trans_a": False, "trans_b": False}


class Rows:
    """Rows of a batch N and a length L, whichever comes first, or both joined on one axis, on which nodes are added."""

    def __init__(self, g: GraphMaker, rng: Random, x: Value, n: int, length: int, *, batch_first: bool) -> None:
        self.g, self.rng, self.x, self.sizes = g, rng, x, (n, length)
        self.batch_first = batch_first
        self.count = 0

    def add(self, op: str, *inputs: Value, **attrs: object) -> None:
        self.count += 1
        self.x = self.g.add(f"{self.x.name}_{self.count}", op, self.x, *inputs, **attrs)

    def ordered(self, *, batch_first: bool) -> None:
        """Has them in that order, on two axes."""
        lead = self.sizes if self.batch_first else self.sizes[::-1]
        if len(self.x.shape) == 2:
            self.add("Reshape", shape=(*lead, self.x.shape[-1]))
        if batch_first is not self.batch_first:
            self.add("Transpose", perm=(1, 0, 2))
            self.batch_first = batch_first

    def product(self, columns: int) -> None:
        self.add("MatMul", self.g.noise(f"w{self.x.name}", self.x.shape[-1], columns), **FLAT)

    def stray(self, steps: int) -> None:
        """Adds nodes at random that keep rows as long as they are."""
        for _ in range(steps):
            match self.rng.randrange(6):
                case 0:
                    self.product(self.x.shape[-1])
                case 1:
                    axis = len(self.x.shape) - 1
                    self.add("Normalize", None, None, kind="layer", axis=axis, epsilon=1e-3)  # type: ignore[arg-type]
                case 2:
                    self.x = self.g.map(f"{self.x.name}_b", "add", self.x, self.g.noise("b", self.x.shape[-1]))
                case 3:
                    self.add("Reshape", shape=(self.sizes[0] * self.sizes[1], self.x.shape[-1]))
                case _:
                    self.ordered(batch_first=not self.batch_first)

    def heads(self, count: int, *, stacks: bool) -> Value:
        """[N,heads,L,D], by way of [N*heads,L,D] if `stacks`."""
        (n, length), depth = self.sizes, self.x.shape[-1] // count
        self.ordered(batch_first=not stacks and self.batch_first)
        if stacks:
            self.add("Reshape", shape=(length, n * count, depth))
            self.add("Transpose", perm=(1, 0, 2))
            self.add("Reshape", shape=(1, n * count, length, depth))
        else:
            lead = self.sizes if self.batch_first else self.sizes[::-1]
            self.add("Reshape", shape=(*lead, count, depth))
            self.add("Transpose", perm=(0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3))
        return self.x


def make(seed: int) -> Graph:
    rng, g = Random(seed), GraphMaker()
    n, length, keys, heads = rng.randint(1, 3), rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 3)
    width, stacks = 4 * heads, rng.random() < 0.5
    batch_first = rng.random() < 0.5
    q = Rows(
        g, rng, g.input("q", *((n, length) if batch_first else (length, n)), width), n, length, batch_first=batch_first
    )
    batch_first = rng.random() < 0.5
    k = Rows(g, rng, g.input("k", *((n, keys) if batch_first else (keys, n)), width), n, keys, batch_first=batch_first)
    for each in (q, k):
        each.stray(rng.randint(0, 4))
    v = Rows(g, rng, k.x, n, keys, batch_first=k.batch_first)
    v.count = 100
    for each in (q, k, v):
        each.product(width)
        each.stray(rng.randint(0, 2))
    operands = [each.heads(heads, stacks=stacks) for each in (q, k, v)]
    y = g.add("attention", "Attention", *operands, None, scale=0.5, causal=False, softcap=0.0)
    if stacks:
        y = g.add("lead", "Transpose", g.add("stack", "Reshape", y, shape=(n * heads, length, 4)), perm=(1, 0, 2))
    else:
        batch_first = rng.random() < 0.5
        y = g.add("lead", "Transpose", y, perm=(0, 2, 1, 3) if batch_first else (2, 0, 1, 3))
    out = Rows(g, rng, y, n, length, batch_first=not stacks and batch_first)
    out.add("Reshape", shape=(n * length, width))
    out.stray(rng.randint(0, 5))
    return g.done(g.map("y", "tanh", out.x))


@pytest.mark.parametrize("seed", range(150))
def test_answers_stay(seed: int) -> None:
    graph = make(seed)
    feeds = feeds_for(graph)
    wanted = run_graph(graph, feeds)
    before = operators(graph).count("Transpose")
    optimise(graph, Context(check=True))
    check_same(wanted, run_graph(graph, feeds))
    assert operators(graph).count("Transpose") <= before - 4


def test_hardly_any_movement_is_left() -> None:
    left = [sum(op in ("Transpose", "PermuteRows") for op in _optimised(seed)) for seed in range(60)]
    assert sum(left) < 0.1 * len(left)


def _optimised(seed: int) -> list[str]:
    graph = make(seed)
    optimise(graph, Context())
    return operators(graph)
