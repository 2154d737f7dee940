"""Flow: programs with what decides at run time which of them run: branches, loops, operators on the host between them.

Plain data, as a Program is. Steps work on values by name; those of a loop's body have names of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..ir.constants.lazy_array import LazyArray
from ..ir.dtype import DType
from .program import Program


@dataclass(frozen=True)
class RunProgram:
    """Run the program of that number. inputs: names of what it is given, in order; outputs: (name, its number)."""

    program: int
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Rename:
    """`name` is what `source` is."""

    name: str
    source: str


@dataclass(frozen=True)
class Constant:
    """`name` is an array."""

    name: str
    array: np.ndarray[Any, Any] | LazyArray


@dataclass(frozen=True)
class HostNode:
    """Run an ONNX operator on the host; inputs that are absent are ''. The rest is as in HostStep."""

    op_type: str
    domain: str
    opset: int
    proto: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node: str


@dataclass(frozen=True)
class FirstRows:
    """`name` is the first rows of `source`, as many as `count` says."""

    name: str
    source: str
    count: str


@dataclass(frozen=True)
class Switch:
    """Go on with one of two lists of steps, by whether `condition` is true."""

    condition: str
    if_true: tuple[Any, ...]
    if_false: tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    """What the trips of a loop collect: the body's value `name`, of `dtype` and `shape`, stacked along a new axis."""

    name: str
    axis: int
    reverse: bool
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class RunLoop:
    """Run `body` once for each trip.

    limit, start: values that say how many trips there are at most, and whether there is a first one, '' for none.
    counter, condition: (the body's name, rank) of the number of the trip and of true; '' for none. goes: the body's
    value that says whether another trip follows, '' for always. states: (value, body's name, body's name of what it is
    in the next trip). captured: (body's name, value). scanned: (value, body's name, axis, reverse) of arrays of which
    each trip is given another part. outputs: names of the states, then of what `rows` collect; '' for one that nobody
    asks for.
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
    """programs: by number. steps: in order. outputs: names of the model's, in order."""

    programs: tuple[Program, ...]
    steps: tuple[FlowStep, ...]
    outputs: tuple[str, ...]
