"""The table of everything a graph may be made of, by family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .builder import Builder

Add = Callable[["Builder"], None]


@dataclass(frozen=True)
class Operation:
    """A way to add nodes to a graph. `add` raises Rejected where it has nothing to work on."""

    name: str
    family: str
    weight: float
    add: Add


OPERATIONS: dict[str, Operation] = {}


@dataclass(frozen=True)
class Focus:
    """What graphs are made of above all. operations: by name, which get together `share` times the weight of all.
    contents: "empty" for sizes of 0, "special" for NaN and its like, in every graph. dtype: of the graph's floats.
    """

    operations: tuple[str, ...] = ()
    contents: str = ""
    dtype: str = ""
    share: float = 1.0


def operation(family: str, weight: float = 1.0) -> Callable[[Add], Add]:
    """Decorator: enter a function under its own name."""

    def enter(add: Add) -> Add:
        name = add.__name__.strip("_")
        assert name not in OPERATIONS, f"two operations are called {name}"
        OPERATIONS[name] = Operation(name, family, weight, add)
        return add

    return enter


THEMES: dict[str, dict[str, float]] = {
    "any": {},
    "vision": {"window": 5, "norm": 3, "elementwise": 2},
    "language": {"product": 4, "norm": 3, "movement": 2, "attention": 3, "elementwise": 1.5},
    "movement": {"movement": 5, "index": 3, "shape": 2},
    "motifs": {"motif": 6},
    "machines": {"machine": 8, "product": 2},
    "fused": {"microsoft": 6},
    "decoders": {"decoder": 8, "few_bits": 6, "product": 1.5, "norm": 2},
    "integers": {"integer": 6, "quantize": 4, "cast": 2},
    "recurrent": {"recurrent": 6, "control": 3},
}
"""What the families' weights are multiplied by, so that neighbours that are fused, joined or nested meet often."""
