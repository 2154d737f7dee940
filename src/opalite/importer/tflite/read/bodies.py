"""Body: a subgraph as a graph, with its tensors and the variables that it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....ir import Array, DType
from ...proto.graphdef import GraphDef
from .tensors import TensorInfo

PAST, NEXT = ".past", ".next"
"""Endings of the names of a variable as input and output of the model; `session.state()` pairs them."""


@dataclass(frozen=True, eq=False)
class NodeTensors:
    """Tensors of a node as the file declares them; None for an absent optional input.

    intermediates: what it computes on the way, of which quantised recurrent operators state the scales.
    """

    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    intermediates: tuple[TensorInfo, ...] = ()


@dataclass(frozen=True)
class Variable:
    """A variable: its name, and type of its contents."""

    name: str
    dtype: DType
    signature: tuple[int | None, ...]
    zero: int = 0

    def initial(self) -> Array:
        """Return zeros, in the variable's own scale."""
        return np.full([1 if d is None else d for d in self.signature], self.zero, self.dtype.np)


@dataclass(eq=False)
class Body:
    """A subgraph as a graph. reads, writes: variables that are further inputs and outputs, in order.

    outer_handles: for each output that is a handle the variable or table it stands for, else ''.
    """

    graph: GraphDef
    tensors: tuple[TensorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reads: tuple[Variable, ...]
    writes: tuple[Variable, ...]
    handles: tuple[str, ...]
    initial: dict[str, Array]
