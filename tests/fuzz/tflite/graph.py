"""A random graph in .tflite's format, grown operator by operator: LiteRT runs each one before it stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...helpers.tflite_writer import Quant, Subgraph, write_model
from .oracle import Lite, Refused

Array = np.ndarray[Any, Any]
SIZES = (1, 1, 2, 3, 3, 4, 5, 7, 8, 11, 16)
QUANTIZED = ("int8", "int8", "int8", "uint8", "int16")


@dataclass(frozen=True)
class Val:
    """A tensor that operators may read."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    quant: Quant | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def scale(self) -> float:
        assert self.quant is not None
        return self.quant.scale


@dataclass
class Case:
    """A file with its inputs by name, and what LiteRT makes of them by the outputs' order."""

    graph: Subgraph
    feeds: dict[str, Array]
    want: list[Array] = field(default_factory=list)

    @property
    def model(self) -> bytes:
        return write_model(self.graph)

    @property
    def operators(self) -> str:
        return " ".join(o.name for o in self.graph.operators)


class Builder:
    """Draws tensors and operators from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = Subgraph()
        self.values: list[Val] = []
        self.feeds: dict[int, Array] = {}

    # Numbers

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def size(self) -> int:
        return int(self.pick(SIZES))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        count = int(self.rng.integers(1, 5)) if rank is None else rank
        found = [self.size() for _ in range(count)]
        while np.prod(found, dtype=np.int64) > 3000:
            found[int(np.argmax(found))] //= 2
        return tuple(max(1, d) for d in found)

    def axis(self, rank: int) -> int:
        if not rank:
            raise Refused("a scalar has no axes")
        a = int(self.rng.integers(rank))
        return a - rank if self.chance(0.3) else a

    def quant(self, dtype: str, scale: float | None = None) -> Quant:
        """Scale and zero point of a tensor; near `scale` if that is given."""
        factor = float(np.exp(self.rng.uniform(-1.2, 1.2)))
        base = float(2.0 ** self.rng.uniform(-7, 0)) if scale is None else scale
        if dtype == "int16":
            return Quant((base * factor / (1 if scale is not None else 128),), (0,))
        low, high = (0, 255) if dtype == "uint8" else (-128, 127)
        zero = (
            int(self.rng.integers(low, high + 1)) if self.chance(0.7) else self.pick((low, high, (low + high + 1) // 2))
        )
        return Quant((base * factor,), (zero,))

    def numbers(self, dtype: str, shape: Sequence[int]) -> Array:
        shape = tuple(shape)
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype.startswith("float"):
            spread = self.pick((0.3, 1.0, 3.0))
            return np.asarray(self.rng.standard_normal(shape) * spread).astype(dtype)
        if dtype in ("int32", "int64", "uint32"):
            return self.rng.integers(0 if dtype[0] == "u" else -9, 10, shape).astype(dtype)
        ends = np.iinfo(dtype)
        low, high = ends.min, ends.max
        if dtype == "int16" and self.chance(0.7):
            low, high = -3000, 3000
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    # Tensors

    def new(self, dtype: str, shape: Sequence[int], quant: Quant | None = None, data: Array | None = None) -> Val:
        """A further input of the graph."""
        at = self.g.tensor(dtype, shape, quant=quant)
        self.g.inputs.append(at)
        self.feeds[at] = self.numbers(dtype, shape) if data is None else np.asarray(data, dtype)
        made = Val(at, dtype, tuple(shape), quant)
        self.values.append(made)
        return made

    def const(self, array: Any, quant: Quant | None = None) -> Val:
        held = np.asarray(array)
        return Val(self.g.const(held, quant=quant), str(held.dtype), held.shape, quant)

    def ints(self, numbers: Any, dtype: str = "int32") -> Val:
        return self.const(np.asarray(numbers, dtype))

    def value(
        self,
        dtypes: str | Sequence[str] = "float32",
        rank: int | Sequence[int] | None = None,
        fits: Callable[[Val], bool] = lambda v: True,
        shape: Sequence[int] | None = None,
    ) -> Val:
        """A tensor of one of the types: one that is there, else a new input."""
        kinds = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
        ranks = (rank,) if isinstance(rank, int) else rank
        there = [
            v
            for v in self.values
            if v.dtype in kinds and (ranks is None or v.rank in ranks) and fits(v) and np.prod(v.shape) > 0
        ]
        there = [v for v in there if shape is None or v.shape == tuple(shape)]
        if there and self.chance(0.75):
            return there[-1] if self.chance(0.5) else self.pick(there)
        for _ in range(50):
            dtype = self.pick(kinds)
            dims = tuple(shape) if shape is not None else self.shape(None if ranks is None else self.pick(ranks))
            quant = self.quant(dtype) if dtype in QUANTIZED else None
            if fits(Val(-1, dtype, dims, quant)):
                return self.new(dtype, dims, quant)
        raise Refused("no tensor fits")

    def any(self, rank: int | Sequence[int] | None = None, fits: Callable[[Val], bool] = lambda v: True) -> Val:
        """A tensor of any type whose elements movements carry."""
        kinds = ("float32", "float32", "int32", *QUANTIZED)
        return self.value((self.pick(kinds),), rank, fits)

    # Operators

    def op(
        self,
        name: str,
        inputs: Sequence[Val | None],
        outputs: Sequence[tuple[str, Quant | None]],
        options: str = "",
        **fields: Any,
    ) -> list[Val]:
        """Add an operator with outputs of these types; Refused if LiteRT does not run it on what it would get."""
        before = deepcopy((self.g.tensors, self.g.operators, self.g.inputs))
        at = [self.g.tensor(dtype, (), quant=quant) for dtype, quant in outputs]
        given = [-1 if v is None else v.index for v in inputs]
        while given[-1:] == [-1]:
            given.pop()
        self.g.op(name, given, at, options, **fields)
        held, self.g.outputs = self.g.outputs, at
        try:
            found = Lite(self.g).run(list(self.feeds.values()))
            if any(f.size > 20000 or (not f.size and name != "STRIDED_SLICE") for f in found):
                raise Refused("too large, or empty")
        except Refused:
            self.g.tensors, self.g.operators, self.g.inputs = before
            raise
        finally:
            self.g.outputs = held
        made = []
        for i, (dtype, quant), array in zip(at, outputs, found, strict=True):
            self.g.tensors[i].shape = array.shape
            made.append(Val(i, dtype, array.shape, quant))
        self.values += made
        return made

    def finish(self) -> Case | None:
        """The graph with what nothing reads as outputs, and now and then everything; None if it is empty."""
        read = {i for o in self.g.operators for i in o.inputs}
        made = [i for o in self.g.operators for i in o.outputs]
        if not made:
            return None
        self.g.outputs = made if self.chance(0.3) else [i for i in made if i not in read]
        feeds = {self.g.tensors[i].name: a for i, a in self.feeds.items()}
        case = Case(self.g, feeds)
        case.want = Lite(self.g).run(list(feeds.values()))
        return case


Generator = Callable[[Builder], Any]
GENERATORS: dict[str, list[tuple[Generator, float]]] = {}


def generator(theme: str, weight: float = 1.0) -> Callable[[Generator], Generator]:
    """Decorate a function that adds an operator, for graphs of `theme`: float, quantized or movement."""

    def register(fn: Generator) -> Generator:
        GENERATORS.setdefault(theme, []).append((fn, weight))
        return fn

    return register


def make_case(seed: int, most: int = 8, only: str = "") -> Case | None:
    """The graph of a seed. only: names of generators, by commas, that draw all operators."""
    from . import floats, integers, movement  # noqa: F401  (they register themselves)

    b = Builder(seed)
    main = b.pick(("float", "quantized", "quantized"))
    table = [row for theme in (main, main, "movement") for row in GENERATORS[theme]]
    if only:
        every = [row for rows in GENERATORS.values() for row in rows]
        table = [row for row in every if row[0].__name__ in only.split(",")]
    weights = np.array([w for _, w in table])
    for _ in range(int(b.rng.integers(1, most + 1))):
        fn = table[int(b.rng.choice(len(table), p=weights / weights.sum()))][0]
        kept = (deepcopy(b.g), list(b.values), dict(b.feeds))
        try:
            fn(b)
        except Refused:
            b.g, b.values, b.feeds = kept
    return b.finish()
