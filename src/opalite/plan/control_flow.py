"""Flow: programs with control flow at run time: branches, loops, and host operators between them.

Plain data, as a Program is. Steps refer to values by name; names in a loop body are separate.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..ir.constants.lazy_array import LazyArray
from ..ir.dtype import DType
from ..lazy_dataclass import dataclass
from .program import Program


@dataclass(frozen=True)
class RunProgram:
    """Run program number `program`. inputs: names of its inputs, in order; outputs: (name, output number)."""

    program: int
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Rename:
    """Bind `name` to the value of `source`."""

    name: str
    source: str


@dataclass(frozen=True)
class Constant:
    """Bind `name` to an array."""

    name: str
    array: np.ndarray[Any, Any] | LazyArray


@dataclass(frozen=True)
class HostNode:
    """Run an ONNX operator on the host; absent inputs are ''. Other fields as in HostStep."""

    op_type: str
    domain: str
    opset: int
    proto: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node: str


@dataclass(frozen=True)
class FirstRows:
    """Bind `name` to the first `count` rows of `source`; `count` is the name of a value."""

    name: str
    source: str
    count: str


@dataclass(frozen=True)
class Switch:
    """Continue with one of two lists of steps, by the value of `condition`."""

    condition: str
    if_true: tuple[Any, ...]
    if_false: tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    """A scan output of a loop: the body's value `name`, of `dtype` and `shape`, stacked along a new axis."""

    name: str
    axis: int
    reverse: bool
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class RunLoop:
    """A loop: run `body` once for each iteration (ONNX Loop or Scan).

    limit, start: values with the largest number of iterations, and whether there is a first iteration; '' for none.
    counter, condition: (the body's name, rank) of the iteration number and of true; '' for none. goes: the body's
    boolean value for whether another iteration follows, '' for always. states: loop-carried values (value, body's name,
    body's name in the next iteration). captured: (body's name, value). scanned: (value, body's name, axis, reverse) of
    arrays of which each iteration gets a slice. outputs: names of the states, then of `rows`; '' for unused ones.
    """

    body: tuple[Any, ...]
    limit: str
    start: str
    counter: tuple[str, int]
    condition: tuple[str, int]
    goes: str
    states: tuple[tuple[str, str, str], ...]
    captured: tuple[tuple[str, str], ...]
    scanned: tuple[tuple[str, str, int, bool], ...]
    rows: tuple[Rows, ...]
    outputs: tuple[str, ...]
    node: str


FlowStep: TypeAlias = RunProgram | Rename | Constant | HostNode | FirstRows | Switch | RunLoop


@dataclass(frozen=True, eq=False)
class Flow:
    """Control flow over programs. programs: by number. steps: in order. outputs: the model's names, in order."""

    programs: tuple[Program, ...]
    steps: tuple[FlowStep, ...]
    outputs: tuple[str, ...]
